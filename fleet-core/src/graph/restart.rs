//! When a unit that ended is started again.

use std::time::Duration;

use super::StatusSet;

/// A unit's policy. The default is that of a stanza that says nothing: on failure, after a second,
/// twice as long each time until a minute, without an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// After which ends.
    pub when: RestartWhen,
    /// Ends of the main process after which it never is, whatever `when` says.
    pub prevent: StatusSet,
    /// Ends of the main process after which it always is, whatever `when` says.
    pub force: StatusSet,
    /// How long after the first failure.
    pub delay: Duration,
    /// How long at most.
    pub max_delay: Duration,
    /// How the delay grows.
    pub growth: DelayGrowth,
    /// When it is given up.
    pub limit: RestartLimit,
    /// How long it has to stay up for its failures to be forgotten; nothing is the longer of ten
    /// seconds and twice the delay.
    pub reset: Option<Duration>,
}

/// After which ends a unit is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartWhen {
    /// After none.
    Never,
    /// Only after a good one.
    OnSuccess,
    /// After a bad one.
    OnFailure,
    /// After each bad one but a bad exit status, and a program that cannot be executed.
    OnAbnormal,
    /// Only after a signal that was not asked for, and after an end that nobody saw.
    OnAbort,
    /// Only after a missed watchdog.
    OnWatchdog,
    /// After each that nobody asked for.
    Always,
}

/// How a delay grows from one failure to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayGrowth {
    /// It is so many times the one before; one is a constant delay.
    Factor(u32),
    /// It reaches the longest after so many failures, in even ratios, as `RestartSteps=` has it.
    Steps(u32),
}

/// When a unit that fails again and again is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartLimit {
    /// Never.
    None,
    /// When it has failed more often than this without having been up for long, or having ended
    /// well, in between.
    Failures(u32),
    /// When it would be started more often than this within the interval, as `StartLimitBurst=` and
    /// `StartLimitIntervalSec=` have it.
    Starts {
        /// How often it may be.
        burst: u32,
        /// Within which time.
        interval: Duration,
    },
}

impl Restart {
    /// Never.
    #[must_use]
    pub fn never() -> Self {
        Self { when: RestartWhen::Never, ..Self::default() }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            when: RestartWhen::OnFailure,
            prevent: StatusSet::default(),
            force: StatusSet::default(),
            delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            growth: DelayGrowth::Factor(2),
            limit: RestartLimit::None,
            reset: None,
        }
    }
}
