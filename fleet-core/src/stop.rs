//! Upper bounds for the duration of a unit's stop.

use std::time::Duration;

use fleet_unitfile::values::{parse_bool, parse_timespan};
use fleet_unitfile::{UnitFile, UnitType};

use crate::Unit;

/// Default stop timeout of systemd.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);

/// The options of a unit type that determine the duration of a stop.
struct StopOptions {
    section: &'static str,
    /// The options that set the timeout. The last one in the file counts.
    timeouts: &'static [&'static str],
    /// Commands that run at the beginning of a stop.
    stop_commands: &'static str,
    /// Commands that run after the unit's processes have exited.
    post_stop_commands: &'static str,
}

impl Unit {
    /// Returns the maximum time from a stop request until all processes of the unit have exited.
    /// Returns `None` if the time is unlimited.
    ///
    /// The service manager applies the unit's timeout to each stop command. It applies the timeout
    /// once more to the remaining processes before it kills them. The commands that run after the
    /// stop are limited in the same way. A unit of a type without processes (such as a target)
    /// stops at once.
    ///
    /// If the unit file contains no valid timeout, systemd's default of 90 seconds is assumed. The
    /// time is unlimited if the timeout is infinite, or if `SendSIGKILL=no` lets processes survive.
    #[must_use]
    pub fn max_stop_duration(&self) -> Option<Duration> {
        let stop_options = stop_options(self.name.unit_type());
        stop_options.map_or(Some(Duration::ZERO), |stop_options| {
            stop_options.max_stop_duration(&self.file, stop_options.timeout(&self.file))
        })
    }

    /// Returns the same as [`max_stop_duration`](Self::max_stop_duration), but with the timeout
    /// that the service manager reports. Unlike the unit file, that timeout reflects the manager's
    /// configuration and the machine's drop-ins. `None` stands for an infinite timeout.
    #[must_use]
    pub fn max_stop_duration_with(&self, timeout: Option<Duration>) -> Option<Duration> {
        let stop_options = stop_options(self.name.unit_type());
        stop_options.map_or(Some(Duration::ZERO), |stop_options| {
            stop_options.max_stop_duration(&self.file, timeout)
        })
    }
}

fn stop_options(unit_type: UnitType) -> Option<StopOptions> {
    let (stop_commands, post_stop_commands) = ("ExecStop", "ExecStopPost");
    Some(match unit_type {
        UnitType::Service | UnitType::Container => {
            let timeouts = &["TimeoutStopSec", "TimeoutSec"];
            StopOptions { section: "Service", timeouts, stop_commands, post_stop_commands }
        }
        UnitType::Scope => StopOptions {
            section: "Scope",
            timeouts: &["TimeoutStopSec"],
            stop_commands,
            post_stop_commands,
        },
        UnitType::Socket => StopOptions {
            section: "Socket",
            timeouts: &["TimeoutSec"],
            stop_commands: "ExecStopPre",
            post_stop_commands,
        },
        UnitType::Mount => StopOptions {
            section: "Mount",
            timeouts: &["TimeoutSec"],
            stop_commands,
            post_stop_commands,
        },
        UnitType::Swap => StopOptions {
            section: "Swap",
            timeouts: &["TimeoutSec"],
            stop_commands,
            post_stop_commands,
        },
        _ => return None,
    })
}

impl StopOptions {
    fn max_stop_duration(&self, file: &UnitFile, timeout: Option<Duration>) -> Option<Duration> {
        let kills = file.values(self.section, "SendSIGKILL").next_back();
        if kills.is_some_and(|option| parse_bool(option.value()) == Some(false)) {
            return None;
        }
        timeout?.checked_mul(self.phases(file))
    }

    /// Returns the timeout of each phase; `None` if it is infinite.
    fn timeout(&self, file: &UnitFile) -> Option<Duration> {
        let mut timeout = Some(DEFAULT_TIMEOUT);
        for option in file.options().filter(|option| option.section() == self.section) {
            if !self.timeouts.contains(&option.name()) {
                continue;
            }
            match parse_timespan(option.value()) {
                // Zero means infinity here.
                Ok(span) => timeout = span.as_duration().filter(|span| !span.is_zero()),
                Err(_) if option.value().is_empty() => timeout = Some(DEFAULT_TIMEOUT),
                Err(_) => {}
            }
        }
        timeout
    }

    /// Returns how often the timeout can elapse, one phase after another.
    fn phases(&self, file: &UnitFile) -> u32 {
        let count = |name| file.effective(self.section, name).count();
        let (stop_commands, post_stop_commands) =
            (count(self.stop_commands), count(self.post_stop_commands));
        // The unit's processes get one phase, those of the post-stop commands another.
        let phases =
            stop_commands + 1 + if post_stop_commands > 0 { post_stop_commands + 1 } else { 0 };
        // The service manager runs a command of its own to unmount.
        let own = usize::from(["Mount", "Swap"].contains(&self.section));
        u32::try_from(phases + own).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Requirements, TargetState};

    fn unit(name: &str, text: &str) -> Unit {
        let (name, file) = (name.parse().unwrap(), UnitFile::parse(text).unwrap());
        Unit::new(name, file, Requirements::default(), TargetState::Launched)
    }

    fn max_stop_duration(name: &str, text: &str) -> Option<u64> {
        unit(name, text).max_stop_duration().map(|time| time.as_secs())
    }

    #[test]
    fn max_stop_duration_follows_the_unit_file() {
        let cases = [
            ("ExecStart=/bin/a", Some(90)),
            ("TimeoutStopSec=10", Some(10)),
            ("TimeoutStopSec=10\nTimeoutSec=1min", Some(60)),
            ("TimeoutSec=1min\nTimeoutStopSec=10", Some(10)),
            ("TimeoutStartSec=1min", Some(90)),
            ("TimeoutStopSec=10\nTimeoutStopSec=", Some(90)),
            ("TimeoutStopSec=10\nTimeoutStopSec=soon", Some(10)),
            ("TimeoutStopSec=infinity", None),
            ("TimeoutStopSec=0", None),
            ("TimeoutStopSec=10\nSendSIGKILL=no", None),
            ("TimeoutStopSec=10\nSendSIGKILL=yes", Some(10)),
            ("TimeoutStopSec=10\nExecStop=/bin/a\nExecStop=/bin/b", Some(30)),
            ("TimeoutStopSec=10\nExecStop=/bin/a\nExecStop=", Some(10)),
            ("TimeoutStopSec=10\nExecStop=/bin/a\nExecStopPost=/bin/b", Some(40)),
        ];
        for (lines, expected) in cases {
            let found = max_stop_duration("a.service", &format!("[Service]\n{lines}\n"));
            assert_eq!(found, expected, "{lines}");
        }
    }

    #[test]
    fn units_without_processes_stop_at_once() {
        let cases = [
            ("a.timer", "[Timer]\nOnBootSec=1\n", Some(0)),
            ("a.target", "[Unit]\nDescription=a\n", Some(0)),
            ("a.socket", "[Socket]\nListenStream=1\n", Some(90)),
            ("a.socket", "[Socket]\nTimeoutSec=5\nExecStopPre=/bin/a\n", Some(10)),
            ("a.socket", "[Service]\nTimeoutSec=5\n", Some(90)),
            ("a.mount", "[Mount]\nTimeoutSec=5\n", Some(10)),
            ("a.scope", "[Scope]\nTimeoutStopSec=5\n", Some(5)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(max_stop_duration(name, text), expected, "{name}: {text}");
        }
    }

    #[test]
    fn reported_timeout_overrides_the_unit_file() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let rows = [
            ("TimeoutStopSec=10", seconds(40), seconds(40)),
            ("ExecStop=/bin/a", seconds(40), seconds(80)),
            ("TimeoutStopSec=10", None, None),
            ("SendSIGKILL=no", seconds(40), None),
        ];
        for (lines, timeout, expected) in rows {
            let unit = unit("a.service", &format!("[Service]\n{lines}\n"));
            assert_eq!(unit.max_stop_duration_with(timeout), expected, "{lines}");
        }
        assert_eq!(unit("a.target", "").max_stop_duration_with(None), Some(Duration::ZERO));
    }
}
