//! Restart policies.

use std::time::Duration;

use super::StatusSet;

/// Restart policy of a unit. A stanza without restart keys has the default policy: the unit is
/// restarted after failures, without a limit. The first delay is one second and doubles up to one
/// minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Which exits lead to a restart.
    pub when: RestartWhen,
    /// Exits of the main process that never lead to a restart, whatever the value of `when`.
    pub prevent: StatusSet,
    /// Exits of the main process that always lead to a restart, whatever the value of `when`.
    pub force: StatusSet,
    /// Delay after the first failure.
    pub delay: Duration,
    /// Maximum delay.
    pub max_delay: Duration,
    /// Growth of the delay.
    pub growth: DelayGrowth,
    /// Limit after which the unit is not restarted again.
    pub limit: RestartLimit,
    /// Active time after which earlier failures are forgotten. `None` stands for ten seconds or
    /// twice the delay, whichever is longer.
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
    /// After any failure, except when a process exits with a failure status or a program cannot be
    /// executed.
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
    /// Reaches the maximum delay after this many failures, growing by the same ratio each time, as
    /// with `RestartSteps=`.
    Steps(u32),
}

/// Limit after which a failing unit is not restarted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartLimit {
    /// No limit.
    None,
    /// The unit is not restarted after more than this number of failures. A success or a long
    /// active time resets the number of failures.
    Failures(u32),
    /// The unit is not restarted if its starts in the interval would exceed `burst`. This is the
    /// limit that `StartLimitBurst=` and `StartLimitIntervalSec=` set in systemd.
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
