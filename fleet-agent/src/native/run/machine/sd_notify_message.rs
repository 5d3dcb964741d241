//! Pure: no I/O, no clock. Messages of `sd_notify`.

use std::time::Duration;

/// Maximum length of a stored `STATUS=` message, in bytes.
const MAX_STATUS: usize = 1024;

/// A message of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NotifyMessage {
    pub(crate) is_ready: bool,
    pub(crate) is_reloading: bool,
    pub(crate) is_stopping: bool,
    /// `MAINPID=`.
    pub(crate) main: Option<u32>,
    pub(crate) watchdog: Option<WatchdogMessage>,
    /// `WATCHDOG_USEC=`: new watchdog interval.
    pub(crate) watchdog_span: Option<Duration>,
    /// `EXTEND_TIMEOUT_USEC=`: time to add to the current phase, from now on.
    pub(crate) extension: Option<Duration>,
    pub(crate) status: Option<String>,
}

/// `WATCHDOG=` message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchdogMessage {
    /// The service is alive.
    Alive,
    /// The service reports a failure itself.
    Trigger,
}

impl NotifyMessage {
    /// Parses lines of `NAME=value`. Unknown and invalid lines are skipped, as systemd does.
    pub(crate) fn parse(message: &[u8]) -> Self {
        let mut notice = Self::default();
        let text = String::from_utf8_lossy(message);
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            notice.take(name, value);
        }
        notice
    }

    fn take(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("READY", "1") => self.is_ready = true,
            ("RELOADING", "1") => self.is_reloading = true,
            ("STOPPING", "1") => self.is_stopping = true,
            ("MAINPID", pid) => self.main = pid.parse().ok(),
            ("WATCHDOG", "1") => self.watchdog = Some(WatchdogMessage::Alive),
            ("WATCHDOG", "trigger") => self.watchdog = Some(WatchdogMessage::Trigger),
            ("WATCHDOG_USEC", span) => self.watchdog_span = micros(span),
            ("EXTEND_TIMEOUT_USEC", span) => self.extension = micros(span),
            ("STATUS", text) => self.status = Some(cut(text).to_owned()),
            _ => {}
        }
    }
}

fn micros(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|&micros| micros > 0).map(Duration::from_micros)
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_STATUS.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_lines_are_parsed() {
        let second = Duration::from_secs(1);
        let default = NotifyMessage::default;
        for (message, expected) in [
            ("READY=1", NotifyMessage { is_ready: true, ..default() }),
            ("READY=1\n", NotifyMessage { is_ready: true, ..default() }),
            ("READY=0\nready=1\nREADY", default()),
            (
                "RELOADING=1\nMONOTONIC_USEC=17\nSTATUS=a=b",
                NotifyMessage { is_reloading: true, status: Some("a=b".into()), ..default() },
            ),
            ("STOPPING=1", NotifyMessage { is_stopping: true, ..default() }),
            ("MAINPID=7", NotifyMessage { main: Some(7), ..default() }),
            ("MAINPID=-7\nMAINPID=x", default()),
            ("WATCHDOG=1", NotifyMessage { watchdog: Some(WatchdogMessage::Alive), ..default() }),
            (
                "WATCHDOG=trigger",
                NotifyMessage { watchdog: Some(WatchdogMessage::Trigger), ..default() },
            ),
            ("WATCHDOG_USEC=1000000", NotifyMessage { watchdog_span: Some(second), ..default() }),
            ("WATCHDOG_USEC=0\nEXTEND_TIMEOUT_USEC=-1", default()),
            ("EXTEND_TIMEOUT_USEC=1000000", NotifyMessage { extension: Some(second), ..default() }),
            ("FDSTORE=1\nBARRIER=1\nERRNO=2\n\n=\nX", default()),
            ("", default()),
        ] {
            assert_eq!(NotifyMessage::parse(message.as_bytes()), expected, "{message:?}");
        }
    }

    #[test]
    fn long_status_is_cut_at_a_char_boundary() {
        let text = format!("STATUS=x{}", "\u{e9}".repeat(MAX_STATUS));
        let status = NotifyMessage::parse(text.as_bytes()).status.expect("it has one");
        assert_eq!(status.len(), MAX_STATUS - 1);
        assert!(NotifyMessage::parse(b"STATUS=\xff\xfe").status.is_some());
    }
}
