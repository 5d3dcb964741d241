//! What systemd is told of the daemon; elsewhere nobody listens, and nothing is said.

use std::time::Duration;

use sd_notify::NotifyState;

/// How long to wait at most between two words to systemd.
const LONGEST: Duration = Duration::from_secs(5);

/// Says what the daemon does now, in words for people.
pub(crate) fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Says that the daemon is ready, or is so again after a reload.
pub(crate) fn ready(text: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(text)]);
}

/// Says that the configuration is being read again. It is over when the daemon is
/// [ready](ready()).
pub(crate) fn reloading() {
    // systemd compares the time with that of its own question.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the time to systemd"),
    }
}

/// Says that the daemon is about to end.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("ending; units run on")]);
}

/// Says that all loops are alive.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Has systemd take a daemon for hung that is silent for that long, if that is less than its unit
/// says. Returns how often there is something to say; nothing where nobody listens.
pub(crate) fn guard(longest: Duration) -> Option<Duration> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let limit = sd_notify::watchdog_enabled();
    if limit.is_some_and(|limit| longest < limit) {
        let micros = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
        tell(&[NotifyState::WatchdogUsec(micros)]);
    }
    Some(pace(limit.map(|limit| limit.min(longest))))
}

/// systemd is to miss two words before it takes the daemon for hung.
fn pace(limit: Option<Duration>) -> Duration {
    limit.map_or(LONGEST, |limit| limit / 3).clamp(Duration::from_millis(10), LONGEST)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell systemd how the daemon is");
    }
}
