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

/// How often there is something to say; nothing where nobody listens. systemd is to miss two words
/// before it takes the daemon for hung.
pub(crate) fn pace() -> Option<Duration> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let watchdog = sd_notify::watchdog_enabled().map_or(LONGEST, |limit| limit / 3);
    Some(watchdog.clamp(Duration::from_millis(10), LONGEST))
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell systemd how the daemon is");
    }
}
