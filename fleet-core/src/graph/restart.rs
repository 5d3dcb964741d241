//! Restart policies.

use std::time::Duration;

use super::StatusSet;

/// Restart policy of a unit. By default, the unit of a stanza is restarted after each failure,
/// without a limit. The delay is one second at first and doubles up to one minute. A unit file has
/// systemd's defaults instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// The exits that lead to a restart.
    pub when: RestartWhen,
    /// Exits of the main process that never lead to a restart, regardless of `when` and `force`.
    pub prevent: StatusSet,
    /// Exits of the main process that always lead to a restart, regardless of `when`.
    pub force: StatusSet,
    /// Delay after the first failure.
    pub delay: Duration,
    /// Maximum delay.
    pub max_delay: Duration,
    /// Growth of the delay.
    pub growth: DelayGrowth,
    /// Limit after which the unit is not restarted again.
    pub limit: RestartLimit,
    /// Time for which the unit has to be active until its earlier failures are forgotten. `None`
    /// stands for ten seconds or twice the restart delay, the longer of the two.
    pub reset: Option<Duration>,
}

/// Exits after which a unit is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartWhen {
    /// Never.
    Never,
    /// After success only.
    OnSuccess,
    /// After any failure.
    OnFailure,
    /// After a failure such as a signal, a timeout or a missed watchdog. A failure status, or a
    /// program that cannot be executed, leads to no restart.
    OnAbnormal,
    /// Only after an unrequested signal, or an exit with unknown status.
    OnAbort,
    /// Only after a missed watchdog.
    OnWatchdog,
    /// After any unrequested exit.
    Always,
}

/// Growth of the delay from one failure to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayGrowth {
    /// Multiplies the delay by this factor; 1 keeps it constant.
    Factor(u32),
    /// Multiplies the delay by the same ratio after each failure, so that it reaches the maximum
    /// after this many failures (`RestartSteps=`).
    Steps(u32),
}

/// Limit after which a failing unit is not restarted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartLimit {
    /// No limit.
    None,
    /// The unit is not restarted after more failures than this. A success, or a long active time,
    /// resets the count.
    Failures(u32),
    /// The unit is not restarted if that would be more than `burst` starts within `interval`. In
    /// systemd, `StartLimitBurst=` and `StartLimitIntervalSec=` set this limit.
    Starts {
        /// Maximum number of starts.
        burst: u32,
        /// Length of the interval.
        interval: Duration,
    },
}

impl Restart {
    /// Returns the policy that never restarts.
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
