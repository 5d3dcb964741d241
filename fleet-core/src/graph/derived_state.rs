//! How the state of a unit is shown to a person: all of it computed.

use super::{Activity, FailureCause, Incarnation, StopReason, Target};
use crate::Timestamp;

/// The state of a unit, and of each target that it provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    /// What it is.
    pub state: DerivedState,
    /// Whether the goal needs it.
    pub needed: bool,
    /// Whether it is up although something that it depends on does not work. This changes nothing.
    pub degraded: bool,
    /// Since when it is doing what it does.
    pub since: Timestamp,
    /// Its last start.
    pub incarnation: Option<Incarnation>,
    /// How often in a row it has ended by itself.
    pub attempts: u32,
    /// How many of these ends, since the last good one, were failures.
    pub failures: u32,
    /// Whether it failed to read its configuration again when it was last asked to.
    pub reload_failed: bool,
}

/// What a unit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedState {
    /// Not needed, so it is off.
    Disabled,
    /// Not needed, because a target that it provides is masked.
    Masked,
    /// Needed, and not started yet.
    Waiting(WaitReason),
    /// Started, and not up yet.
    Starting,
    /// Up.
    Active(Activity),
    /// Being ended; for this reason, if somebody decided it.
    Stopping(Option<StopReason>),
    /// Failed.
    Failed {
        /// Why.
        cause: FailureCause,
        /// What follows.
        retry: Retry,
        /// Whether processes of it are left that do not even end when they are killed.
        stuck: bool,
    },
    /// Ended well, and so not up.
    Completed(Retry),
}

/// What follows the end of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It is started again then.
    At(Timestamp),
    /// Nothing: its policy is not to start it again.
    Never,
    /// Nothing: it was tried too often.
    GaveUp,
}

/// What a unit waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// For these targets, by name.
    Dependencies(Vec<Target>),
    /// For nothing that could come by itself: these targets failed, or cannot start, or are not
    /// there, by name.
    Blocked(Vec<(Target, BlockedBy)>),
    /// For another unit to be up, because as many are starting as may.
    Slot,
    /// For the end of its processes of before.
    LeftoverProcesses,
    /// For nothing: it starts with the next plan.
    NextPlan,
}

/// Why a dependency keeps a unit from ever starting, as things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedBy {
    /// It failed.
    Failed,
    /// It ended well, and so is not up.
    Completed,
    /// It is kept from starting itself.
    Blocked,
    /// It is masked.
    Masked,
    /// Nobody provides it.
    Missing,
}
