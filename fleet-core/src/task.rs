//! What a machine has to do: tasks, in the order in which they must be done.

use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::{Epoch, Unit};

/// One thing that an agent asks of its service manager.
///
/// A task holds everything that is needed to carry it out; whoever does so chooses nothing.
/// Every task may be repeated without harm. See [`converge`](crate::converge) for the order.
#[derive(Debug, Clone)]
pub enum Task {
    /// Stop the unit, wait for its end, and take its file away.
    Unload {
        /// The unit.
        unit: UnitName,
        /// Why.
        reason: TaskReason,
    },
    /// Hand the unit's file to the service manager.
    Load {
        /// The unit with its file.
        unit: Arc<Unit>,
        /// The epoch of the placement that asks for it.
        epoch: Epoch,
        /// Why.
        reason: TaskReason,
    },
    /// Make the service manager read all files that were handed over. Comes once, after all loads
    /// and before all starts.
    Reload,
    /// Stop the unit and keep it loaded.
    Stop {
        /// The unit.
        unit: UnitName,
        /// Why.
        reason: TaskReason,
    },
    /// Start the unit, and remember its generation as the one that was started.
    Start {
        /// The unit.
        unit: Arc<Unit>,
        /// Why.
        reason: TaskReason,
    },
    /// Stop the unit if it runs and start it again, and remember its generation.
    Restart {
        /// The unit.
        unit: Arc<Unit>,
        /// Why.
        reason: TaskReason,
    },
}

impl Task {
    /// The unit that the task is about; a reload is about none.
    #[must_use]
    pub fn unit(&self) -> Option<&UnitName> {
        match self {
            Self::Unload { unit, .. } | Self::Stop { unit, .. } => Some(unit),
            Self::Load { unit, .. } | Self::Start { unit, .. } | Self::Restart { unit, .. } => {
                Some(&unit.name)
            }
            Self::Reload => None,
        }
    }

    /// Where the task stands in the order of all tasks; a lower rank comes first.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Unload { .. } => 0,
            Self::Load { .. } => 1,
            Self::Reload => 2,
            Self::Stop { .. } => 3,
            Self::Restart { .. } => 4,
            Self::Start { .. } => 5,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unload { unit, reason } => write!(f, "unload {unit}: {reason}"),
            Self::Load { unit, reason, .. } => write!(f, "load {}: {reason}", unit.name),
            Self::Reload => f.write_str("reload"),
            Self::Stop { unit, reason } => write!(f, "stop {unit}: {reason}"),
            Self::Start { unit, reason } => write!(f, "start {}: {reason}", unit.name),
            Self::Restart { unit, reason } => write!(f, "restart {}: {reason}", unit.name),
        }
    }
}

/// Why a task is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskReason {
    /// The unit is loaded here but is not wanted here.
    NotWantedHere,
    /// The unit is wanted here and not loaded.
    NotLoaded,
    /// Another unit file is loaded under its name.
    ContentDiffers,
    /// A newer placement asks for the unit; what is loaded belongs to an older one.
    NewerPlacement,
    /// It is loaded, and wanted to be started.
    NotStarted,
    /// It was started, and is only wanted to be loaded.
    NotWantedStarted,
    /// A restart was requested since it was last started.
    RestartRequested,
}

impl fmt::Display for TaskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWantedHere => "it is loaded but not wanted here",
            Self::NotLoaded => "it is wanted here but not loaded",
            Self::ContentDiffers => "another unit file is loaded under its name",
            Self::NewerPlacement => "a newer placement asks for it",
            Self::NotStarted => "it is loaded but wanted started",
            Self::NotWantedStarted => "it is started but only wanted loaded",
            Self::RestartRequested => "a restart was requested",
        })
    }
}
