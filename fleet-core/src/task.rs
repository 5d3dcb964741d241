//! Tasks of an agent, in the order of their execution.

use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::{Epoch, Unit};

/// An operation that an agent requests from its service manager.
///
/// A task holds all data needed to execute it, so the agent has no decisions to make. Every task is
/// idempotent. See [`converge`](crate::converge) for the order.
#[derive(Debug, Clone)]
pub enum Task {
    /// Stops the unit, waits until it has stopped, and removes its file.
    Unload {
        /// The unit.
        unit: UnitName,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Passes the unit file to the service manager.
    Load {
        /// The unit with its file.
        unit: Arc<Unit>,
        /// Epoch of the placement.
        epoch: Epoch,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Makes the service manager read all files that were passed to it. The task occurs at most
    /// once, after all loads and before all starts.
    Reload,
    /// Stops the unit and keeps it loaded.
    Stop {
        /// The unit.
        unit: UnitName,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Starts the unit and records its generation as started.
    Start {
        /// The unit.
        unit: Arc<Unit>,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Stops the unit if it runs, starts it again, and records its generation as started.
    Restart {
        /// The unit.
        unit: Arc<Unit>,
        /// The reason for the task.
        reason: TaskReason,
    },
}

impl Task {
    /// Returns the unit of the task; `None` for a reload.
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

    /// Returns the position in the order of tasks; a lower rank comes first.
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

/// The reason for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskReason {
    /// The unit is loaded here, but should not be.
    NotWantedHere,
    /// The unit should be here and is not loaded.
    NotLoaded,
    /// A different unit file is loaded under the unit's name.
    ContentDiffers,
    /// The unit is loaded for an older placement, and a newer placement of the unit exists.
    NewerPlacement,
    /// The unit is loaded and should be started.
    NotStarted,
    /// The unit was started and should only be loaded.
    NotWantedStarted,
    /// A restart was requested since the last start.
    RestartRequested,
}

impl fmt::Display for TaskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWantedHere => "it is loaded but not wanted here",
            Self::NotLoaded => "it is wanted here but not loaded",
            Self::ContentDiffers => "another unit file is loaded under its name",
            Self::NewerPlacement => "a newer placement asks for it",
            Self::NotStarted => "it is loaded but should be started",
            Self::NotWantedStarted => "it is started but should only be loaded",
            Self::RestartRequested => "a restart was requested",
        })
    }
}
