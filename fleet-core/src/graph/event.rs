//! Actions that the planner requests, and events that the supervisor reports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Exit, FailureCause, InitUnit, Name, StopReason};

/// Number of one start of a unit. Within one init state no two starts have the same number, so
/// events of an earlier start can be recognized as stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Something to do for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitAction {
    /// The unit.
    pub unit: Name,
    /// The incarnation. A start begins a new one.
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
    /// commands that follow a stop are run.
    Stop {
        /// Why the unit stops.
        reason: StopReason,
        /// Whether the unit was active. If it was not, it gets the stop signals, but its stop
        /// commands are not run.
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

/// Kind of an event. [`AllGone`](Self::AllGone) ends every incarnation, even one that could not be
/// started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The unit is ready, or its reload is complete if it was reloading. Depending on its type, the
    /// unit sent a notification, was executed, stayed alive long enough, wrote the readiness line
    /// or left its PID file. For a scripted unit, the start script succeeded.
    Ready,
    /// The unit failed in a way other than the exit of its main process.
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
    /// The main process exited. The main process of a oneshot is its last command, or the command
    /// that failed.
    MainExited(Exit),
    /// The unit asked to extend the deadline of its current operation to this long from now.
    Extend(Duration),
    /// No process is left, and the incarnation starts no more.
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
