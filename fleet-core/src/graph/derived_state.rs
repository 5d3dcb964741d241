//! State of a unit as shown to people; computed, not stored.

use super::{Activity, FailureCause, Incarnation, StopReason, Target};
use crate::Timestamp;

/// Status of a unit, and of every target that it provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    /// The derived state.
    pub state: DerivedState,
    /// Whether the goal or an extra target needs the unit.
    pub needed: bool,
    /// Whether the unit is active although one of its dependencies does not work or is degraded
    /// itself. The flag is only displayed and affects no decision.
    pub degraded: bool,
    /// Time of the last change of phase.
    pub since: Timestamp,
    /// The last start.
    pub incarnation: Option<Incarnation>,
    /// Number of unrequested exits in a row.
    pub attempts: u32,
    /// Number of failures since the last success, among the exits that `attempts` counts.
    pub failures: u32,
    /// Whether the last requested reload failed.
    pub reload_failed: bool,
}

/// Derived state of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedState {
    /// Inactive because it is not needed.
    Disabled,
    /// Inactive because one of its targets is masked.
    Masked,
    /// Needed and not started yet.
    Waiting(WaitReason),
    /// Started and not active yet.
    Starting,
    /// Active.
    Active(Activity),
    /// Stopping, with the reason if the planner decided it.
    Stopping(Option<StopReason>),
    /// Failed.
    Failed {
        /// Cause of the failure.
        cause: FailureCause,
        /// Whether a restart follows.
        retry: Retry,
        /// Whether processes of the unit survived SIGKILL.
        stuck: bool,
    },
    /// Completed successfully, and therefore not active.
    Completed(Retry),
}

/// Restart after a failed or completed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Restarted at this time.
    At(Timestamp),
    /// Not restarted, by its policy.
    Never,
    /// Not restarted, because its limit is reached.
    GaveUp,
}

/// Reason why a needed unit has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// Waiting for these targets, sorted by name.
    Dependencies(Vec<Target>),
    /// Blocked by these targets, sorted by name, each with the reason.
    Blocked(Vec<(Target, BlockedBy)>),
    /// Waiting for a start slot, because `max_starting` units are starting.
    Slot,
    /// Waiting for processes of its previous run to exit.
    LeftoverProcesses,
    /// Starts with the next plan.
    NextPlan,
}

/// Why a dependency blocks the start of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedBy {
    /// It failed.
    Failed,
    /// It completed, so it is not active.
    Completed,
    /// It is blocked itself.
    Blocked,
    /// It is masked.
    Masked,
    /// No unit provides it.
    Missing,
}
