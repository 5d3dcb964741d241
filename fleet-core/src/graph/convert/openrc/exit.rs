//! Converts stop settings and restart settings of a daemon.

use std::time::Duration;

use super::service::{ServiceConverter, UnknownReason, unknown_value};
use crate::graph::model::{DelayGrowth, Restart, RestartLimit, RestartWhen, Signal};

/// Default of `respawn_max`.
const RESPAWN_MAX: u32 = 10;

impl ServiceConverter<'_, '_> {
    /// Sets the stop signal, the stop timeout and the restart policy.
    pub(super) fn exit_settings(&mut self, supervised: bool) -> Result<(), UnknownReason> {
        if let Some((line, text)) = self.text("stopsig")? {
            let signal = Signal::parse(&text).ok_or_else(|| unknown_value(line, "stopsig"))?;
            self.unit.run.kill.signal = signal;
        }
        if let Some((line, text)) = self.text("retry")? {
            let (signal, seconds) = retry(&text).ok_or_else(|| unknown_value(line, "retry"))?;
            // A plain number applies to `stopsig`, which supervise-daemon then ignores.
            let kill = &mut self.unit.run.kill;
            kill.signal = signal.unwrap_or(if supervised { Signal::TERM } else { kill.signal });
            self.unit.timeouts.stop = Some(Duration::from_secs(seconds));
        }
        if !supervised {
            return Ok(());
        }
        // By default supervise-daemon does not delay restarts, and its limits assume that.
        let delay = self.number("respawn_delay")?.map(Duration::from_secs).unwrap_or_default();
        self.unit.restart = Restart {
            when: RestartWhen::Always,
            delay,
            max_delay: delay,
            growth: DelayGrowth::Factor(1),
            limit: self.limit()?,
            ..Restart::default()
        };
        Ok(())
    }

    /// Returns the unit's restart limit for the settings of supervise-daemon.
    ///
    /// - supervise-daemon limits restarts but a unit limits starts, so the unit is allowed one
    ///   more. A `respawn_max` of 0 means no limit.
    /// - Without `respawn_period`, supervise-daemon never forgets a failure. The unit counts only
    ///   failures in a row instead.
    /// - Without `respawn_max`, the limit is 10, the default of supervise-daemon. Its old versions
    ///   have no default.
    fn limit(&mut self) -> Result<RestartLimit, UnknownReason> {
        let (most, period) = (self.number("respawn_max")?, self.number("respawn_period")?);
        let within = period.filter(|period| *period > 0).map(Duration::from_secs);
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let starts = |most: u32, interval| {
            let burst = most.saturating_add(1);
            RestartLimit::Starts { burst, interval }
        };
        let (name, message, help, limit) = match (most, within) {
            (Some(0), _) => return Ok(RestartLimit::None),
            (Some(most), Some(interval)) => return Ok(starts(most, interval)),
            (Some(most), None) => (
                "respawn_max",
                "without `respawn_period` every failure counts forever; here only failures in a \
                 row count",
                "write a restart-reset into the stanza to forget them after a time",
                RestartLimit::Failures(most),
            ),
            (None, Some(interval)) => (
                "respawn_period",
                "without `respawn_max` OpenRC restarts the service at most 10 times in that time",
                "write another restart-limit into the stanza, if needed",
                starts(RESPAWN_MAX, interval),
            ),
            (None, None) => (
                "",
                "the restart limit of supervise-daemon is unknown: here it is 10 times in a row",
                "write restart-delay and restart-limit into the stanza",
                RestartLimit::Failures(RESPAWN_MAX),
            ),
        };
        let line = self.script.value(name).map_or(1, |(line, _)| line);
        self.report.remark((self.file, line), message, help);
        Ok(limit)
    }
}

/// Parses a stop schedule such as `TERM/30/KILL/5` into its first signal and the seconds to wait
/// after it. The final `KILL` is not returned, because every stop here ends with it. A plain number
/// gives only the seconds. Returns `None` for any other text.
fn retry(text: &str) -> Option<(Option<Signal>, u64)> {
    if let Ok(seconds) = text.parse() {
        return Some((None, seconds));
    }
    let parts: Vec<&str> = text.split('/').collect();
    let (first, seconds) = match parts.as_slice() {
        [first, seconds] => (first, seconds),
        [first, seconds, last] | [first, seconds, last, _] => {
            (Signal::parse(last)? == Signal::KILL).then_some((first, seconds))?
        }
        _ => return None,
    };
    Some((Some(Signal::parse(first)?), seconds.parse().ok()?))
}
