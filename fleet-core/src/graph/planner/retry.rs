//! Restart policy: whether and when a unit is restarted. [`Restart::delay_of`] computes the delay.
//! The supervisor of native units runs this state machine, and has no delays of its own.

use std::time::Duration;

use super::event::{ObservedUnit, StartRateLimit};
use super::node::Node;
use super::phase::FailureCause;
use crate::Timestamp;
use crate::graph::model::{DelayGrowth, Exit, Restart, RestartLimit, RestartWhen};

/// Minimum active time after which failures are forgotten by default.
const LEAST_RESET: Duration = Duration::from_secs(10);

/// Delay before a start that could not be recorded is retried.
const UNRECORDED_RETRY: Duration = Duration::from_secs(1);

/// Nanoseconds per second.
const NANOS: u128 = 1_000_000_000;

impl Node {
    /// Applies the restart policy after a run. Schedules a restart if the policy demands one, or
    /// gives up if the unit has failed too often; otherwise the unit is not restarted. `cause` is
    /// the cause of the failure, or `None` after a success. `exit` is the exit of the main process,
    /// even if another event caused the failure.
    ///
    /// A start that could not be recorded says nothing about the unit. So it is always retried, and
    /// does not count.
    pub(super) fn schedule(
        &mut self,
        cause: Option<FailureCause>,
        exit: Option<Exit>,
        now: Timestamp,
    ) {
        let restart = &self.unit.restart;
        let observed = &mut self.observed;
        if cause == Some(FailureCause::Unrecorded) {
            observed.starts.count = observed.starts.count.saturating_sub(1);
            (observed.retry_at, observed.gave_up) = (Some(now.after(UNRECORDED_RETRY)), false);
            return;
        }
        observed.attempts = observed.attempts.saturating_add(1);
        observed.failures = if cause.is_some() { observed.failures.saturating_add(1) } else { 0 };
        observed.retry_at = None;
        observed.gave_up = false;
        if !restart.applies(cause, exit) {
            return;
        }
        observed.gave_up =
            matches!(restart.limit, RestartLimit::Failures(most) if observed.failures > most);
        if !observed.gave_up {
            observed.retry_at = Some(now.after(restart.delay_of(observed.attempts)));
        }
    }

    /// Returns whether a restart now would exceed the start rate limit.
    pub(super) fn exceeds_start_limit(&self, now: Timestamp) -> bool {
        let RestartLimit::Starts { burst, interval } = self.unit.restart.limit else {
            return false;
        };
        let starts = self.observed.starts;
        burst > 0 && starts.count >= burst && now.since(starts.since) < interval
    }

    /// Counts a start.
    pub(super) fn count_start(&mut self, now: Timestamp) {
        let RestartLimit::Starts { interval, .. } = self.unit.restart.limit else { return };
        let starts = &mut self.observed.starts;
        if starts.count == 0 || now.since(starts.since) >= interval {
            *starts = StartRateLimit { since: now, count: 0 };
        }
        starts.count = starts.count.saturating_add(1);
    }

    /// Clears the count of earlier failures if the unit was active long enough. Called when the
    /// unit stops being active.
    pub(super) fn clear_attempts_if_stable(&mut self, now: Timestamp) {
        let restart = &self.unit.restart;
        if self
            .observed
            .active_since
            .is_some_and(|since| restart.is_stable(&self.observed, now.since(since)))
        {
            self.observed.clear_attempts();
        }
    }
}

impl Restart {
    /// Returns whether the policy restarts a unit after a run. `cause` is the cause of the failure,
    /// or `None` after a success. `exit` is the exit of the main process, even if another event
    /// caused the failure.
    #[must_use]
    pub fn applies(&self, cause: Option<FailureCause>, exit: Option<Exit>) -> bool {
        if cause == Some(FailureCause::Assertion)
            || exit.is_some_and(|exit| self.prevent.contains(exit))
        {
            return false;
        }
        if exit.is_some_and(|exit| self.force.contains(exit)) {
            return true;
        }
        match self.when {
            RestartWhen::Never => false,
            RestartWhen::Always => true,
            RestartWhen::OnSuccess => cause.is_none(),
            RestartWhen::OnFailure => cause.is_some(),
            RestartWhen::OnAbnormal => cause.is_some_and(|cause| !cause.is_bad_status()),
            RestartWhen::OnAbort => cause.is_some_and(FailureCause::is_signal),
            RestartWhen::OnWatchdog => cause == Some(FailureCause::Watchdog),
        }
    }

    /// Returns the restart delay after `attempts` consecutive exits that were not requested. The
    /// delay never decreases from one exit to the next.
    #[must_use]
    pub fn delay_of(&self, attempts: u32) -> Duration {
        let before = attempts.saturating_sub(1);
        match self.growth {
            DelayGrowth::Factor(0 | 1) | DelayGrowth::Steps(0) => self.delay,
            // A delay of zero stays zero.
            DelayGrowth::Factor(_) if self.delay.is_zero() => self.delay,
            DelayGrowth::Factor(factor) => {
                let times = u128::from(factor).checked_pow(before);
                let nanos = times.and_then(|times| times.checked_mul(self.delay.as_nanos()));
                nanos.and_then(of_nanos).unwrap_or(self.max_delay).min(self.max_delay)
            }
            DelayGrowth::Steps(steps) if before >= steps => self.max_delay.max(self.delay),
            DelayGrowth::Steps(_) if before == 0 => self.delay,
            DelayGrowth::Steps(steps) => self.step(f64::from(before) / f64::from(steps)),
        }
    }

    /// Returns the restart delay at a fraction `part` (from 0 to 1) of the way from the initial to
    /// the maximum delay. The delay grows exponentially: each step multiplies it by the same ratio.
    /// An initial delay of zero cannot be multiplied, so one millisecond is used instead.
    fn step(&self, part: f64) -> Duration {
        let least = self.delay.max(Duration::from_millis(1)).as_secs_f64();
        let ratio = (self.max_delay.as_secs_f64() / least).max(1.0);
        let delay = Duration::try_from_secs_f64(least * ratio.powf(part));
        let delay = delay.unwrap_or(self.max_delay);
        delay.clamp(self.delay, self.max_delay.max(self.delay))
    }

    fn is_stable(&self, observed: &ObservedUnit, up: Duration) -> bool {
        let twice = self.delay_of(observed.attempts).saturating_mul(2);
        up >= self.reset.unwrap_or_else(|| LEAST_RESET.max(twice))
    }
}

/// Converts nanoseconds, if the duration can hold them.
fn of_nanos(nanos: u128) -> Option<Duration> {
    let (seconds, rest) = (nanos / NANOS, nanos % NANOS);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(rest).ok()?))
}

impl FailureCause {
    /// Returns whether a process exited with a status that counts as a failure, or its program
    /// could not be executed.
    fn is_bad_status(self) -> bool {
        self == Self::Spawn || matches!(self.exit(), Some(Exit::Status(_)))
    }

    /// Returns whether a signal killed a process. An unknown exit of the main process counts too,
    /// because a signal may have caused it.
    fn is_signal(self) -> bool {
        self == Self::Exit(Exit::Unknown) || matches!(self.exit(), Some(Exit::Signal(_)))
    }

    /// Returns the exit of the process that failed, if the failure was an exit.
    fn exit(self) -> Option<Exit> {
        match self {
            Self::Exit(exit) | Self::Script(exit) | Self::StopCommand(exit) => Some(exit),
            _ => None,
        }
    }
}
