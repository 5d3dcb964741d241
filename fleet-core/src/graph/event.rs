//! Actions that the planner requests, and events that the supervisor reports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Exit, FailureCause, InitUnit, Name, StopReason};

/// Number that identifies one start of a unit. It is unique within one
/// [`InitState`](super::InitState), so events of an earlier start can be recognized as stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Something to do for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitAction {
    /// The unit.
    pub unit: Name,
    /// The incarnation that the action applies to. A start begins a new one.
    pub incarnation: Incarnation,
    /// The kind of action.
    pub kind: ActionKind,
    /// Definition that the incarnation runs or will run. The graph may contain a newer definition
    /// of the unit.
    pub definition: Arc<InitUnit>,
}

/// Kind of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionKind {
    /// Kill all remaining processes at once with the final signal.
    Kill,
    /// Stop the unit as its definition specifies. If its processes have already exited, only the
    /// commands that run after a stop are left to run.
    Stop {
        /// Why the unit stops.
        reason: StopReason,
        /// Whether the unit was active. A unit that was not yet active gets the stop signals, but
        /// its stop commands are not run.
        was_active: bool,
    },
    /// Reload the unit's configuration.
    Reload,
    /// Start the unit.
    Start,
}

/// Something that happened to a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitEvent {
    /// The unit.
    pub unit: Name,
    /// The incarnation. Events of an earlier incarnation are ignored.
    pub incarnation: Incarnation,
    /// The kind of event.
    pub kind: EventKind,
}

/// Kind of an event. [`AllGone`](Self::AllGone) is the last event of every incarnation, even of one
/// that could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The unit is ready or, if it was reloading, its reload is complete. The type of the unit
    /// determines in which of these ways it becomes ready:
    ///
    /// - It sent a notification.
    /// - Its program was executed, or stayed alive long enough.
    /// - It wrote the readiness line to its output, or wrote its PID file.
    /// - Its start script succeeded.
    Ready,
    /// The unit failed for this reason. The exit of its main process is reported as
    /// [`MainExited`](Self::MainExited) instead.
    Failed(FailureCause),
    /// The start was skipped because a condition does not hold.
    Skipped,
    /// The unit reloads its configuration without a request.
    Reloading,
    /// The reload commands have ended.
    ReloadEnded {
        /// Whether they succeeded.
        well: bool,
    },
    /// The unit announced that it stops.
    Stopping,
    /// The main process exited. For a oneshot, the main process is its last command, or the command
    /// that failed.
    MainExited(Exit),
    /// The unit asked for more time. The deadline of its current operation becomes at least this
    /// long from now.
    Extend(Duration),
    /// No process of the incarnation is left, and the supervisor will start no further ones for it.
    AllGone,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for UnitAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ActionKind::Kill => write!(f, "kill {}", self.unit),
            ActionKind::Stop { reason, .. } => write!(f, "stop {}: {reason}", self.unit),
            ActionKind::Reload => write!(f, "reload {}", self.unit),
            ActionKind::Start => write!(f, "start {}", self.unit),
        }
    }
}
