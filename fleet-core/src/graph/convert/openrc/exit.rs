//! How a daemon of OpenRC is stopped, and started again.

use std::time::Duration;

use super::service::{Own, Why};
use super::values::not_read;
use crate::graph::{DelayGrowth, Restart, RestartLimit, RestartWhen, Signal};

/// The `respawn_max` of who gives none.
const RESPAWN_MAX: u32 = 10;

impl Own<'_, '_> {
    /// How it is stopped, and started again.
    pub(super) fn ends(&mut self, supervised: bool) -> Result<(), Why> {
        if let Some((line, text)) = self.text("stopsig")? {
            let signal = Signal::parse(&text).ok_or_else(|| not_read(line, "stopsig"))?;
            self.unit.run.kill.signal = signal;
        }
        if let Some((line, text)) = self.text("retry")? {
            let (signal, seconds) = retry(&text).ok_or_else(|| not_read(line, "retry"))?;
            // A number goes with `stopsig`, to which supervise-daemon then pays no heed.
            let kill = &mut self.unit.run.kill;
            kill.signal = signal.unwrap_or(if supervised { Signal::TERM } else { kill.signal });
            self.unit.timeouts.stop = Some(Duration::from_secs(seconds));
        }
        if !supervised {
            return Ok(());
        }
        // Without one supervise-daemon waits for nothing, and its limits are made for that.
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

    /// When supervise-daemon gives up. It counts how often it starts one again, so that there is
    /// one start more. Without a period it counts all failures that there ever were; of the most it
    /// has a default, which old versions had not.
    fn limit(&mut self) -> Result<RestartLimit, Why> {
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
                "without `respawn_period` each failure counts for ever; here those count that \
                 come in a row",
                "write a restart-reset into the stanza, after which they are forgotten",
                RestartLimit::Failures(most),
            ),
            (None, Some(interval)) => (
                "respawn_period",
                "without `respawn_max` OpenRC starts it again 10 times in that time",
                "write another restart-limit into the stanza, if it is not to be that",
                starts(RESPAWN_MAX, interval),
            ),
            (None, None) => (
                "",
                "how often supervise-daemon would start it again is its own matter: here it is 10 \
                 times in a row",
                "write restart-delay and restart-limit into the stanza",
                RestartLimit::Failures(RESPAWN_MAX),
            ),
        };
        let line = self.script.value(name).map_or(1, |(line, _)| line);
        self.report.remark((self.file, line), message, help);
        Ok(limit)
    }
}

/// The signal and the seconds of `TERM/30/KILL/5`, whose end is what is done here anyway, or the
/// seconds of a number by itself.
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
