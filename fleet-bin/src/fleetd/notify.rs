//! Protocols of systemd for services: notifications and passed sockets. Without systemd they have
//! no effect.

use std::os::fd::AsFd;
use std::time::Duration;

use fleet_http::{AuthPolicy, Listener};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;

use super::run::cannot_serve;
use super::{Context as _, StartError};

/// Maximum interval between watchdog pings.
const MAX_INTERVAL: Duration = Duration::from_secs(5);

/// Sends a status text.
pub(crate) fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// Notifies systemd that the daemon has started. Returns the interval of watchdog pings; `None` if
/// systemd did not start the daemon.
///
/// If the watchdog timeout of the service is longer than `max_silence`, asks systemd to shorten it
/// to `max_silence`. systemd watches from then on, even if the service is still starting. So this
/// request must not be sent earlier: nothing pings while the daemon starts.
pub(crate) fn started(text: &str, max_silence: Duration) -> Option<Duration> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let limit = sd_notify::watchdog_enabled();
    let mut state = vec![NotifyState::Ready, NotifyState::Status(text)];
    if limit.is_some_and(|limit| max_silence < limit) {
        let micros = u32::try_from(max_silence.as_micros()).unwrap_or(u32::MAX);
        state.push(NotifyState::WatchdogUsec(micros));
    }
    send(&state);
    Some(ping_interval(limit.map(|limit| limit.min(max_silence))))
}

/// Notifies systemd that the daemon is ready after a reload.
pub(crate) fn ready(text: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(text)]);
}

/// Notifies systemd that the configuration is being reloaded. [`ready`](ready()) ends the reload.
pub(crate) fn reloading() {
    // systemd compares this timestamp with that of its request.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => {
            tracing::warn!(%error, "cannot read the clock: systemd is not notified of the reload");
        }
    }
}

/// Notifies systemd that the daemon is shutting down.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("shutting down; units keep running")]);
}

/// Pings systemd's watchdog.
pub(crate) fn ping_watchdog() {
    send(&[NotifyState::Watchdog]);
}

/// Returns the interval of watchdog pings: a third of the timeout, so that one lost ping does no
/// harm. The result is from ten milliseconds to five seconds.
fn ping_interval(limit: Option<Duration>) -> Duration {
    limit.map_or(MAX_INTERVAL, |limit| limit / 3).clamp(Duration::from_millis(10), MAX_INTERVAL)
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(
            %error,
            "cannot notify systemd, which now shows an outdated status of fleetd: the watchdog of \
             systemd might restart fleetd"
        );
    }
}

/// Number of the first passed file descriptor.
const FIRST: usize = 3;

/// Adopts all sockets that systemd passed to the daemon. The list is empty if there are none.
///
/// # Errors
///
/// Some socket is not a listening stream socket, or other hosts could reach it without protection.
pub(super) fn adopt_all(policy: &AuthPolicy) -> Result<Vec<Listener>, StartError> {
    let mut sockets = ListenFd::from_env();
    (0..sockets.len()).map(|index| adopt(&mut sockets, index, policy)).collect()
}

fn adopt(
    sockets: &mut ListenFd,
    index: usize,
    policy: &AuthPolicy,
) -> Result<Listener, StartError> {
    let what = || "cannot adopt the sockets passed by systemd".to_owned();
    // Taking a socket as the wrong kind leaves it in place.
    if let Ok(Some(unix)) = sockets.take_unix_listener(index) {
        check_listens(&unix, index)?;
        return Listener::from_std_unix(unix).context(what);
    }
    match sockets.take_tcp_listener(index) {
        Ok(Some(tcp)) => {
            check_listens(&tcp, index)?;
            Listener::from_std_tcp(tcp, policy).map_err(cannot_serve)
        }
        _ => Err(unsuitable(index, "is not a stream socket")),
    }
}

/// Refuses connected or merely bound sockets, on which accepting would wait forever.
fn check_listens(socket: impl AsFd, index: usize) -> Result<(), StartError> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        _ => Err(unsuitable(index, "is not listening")),
    }
}

fn unsuitable(index: usize, why: &str) -> StartError {
    let number = index + FIRST;
    StartError::usage(format!(
        "cannot adopt the sockets passed by systemd: file descriptor {number} {why}: write \
         ListenStream= in its .socket unit, without Accept=yes"
    ))
}
