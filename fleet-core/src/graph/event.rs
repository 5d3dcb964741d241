//! Actions that the planner requests, and events that the supervisor reports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Exit, FailureCause, InitUnit, Name, StopReason};

/// Number of one start of a unit. No two starts of one init state share a number, so events of an
/// earlier start are recognized as stale.
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
    /// Definition that the incarnation runs or is to run. The graph may have a newer one.
    pub definition: Arc<InitUnit>,
}

/// Kind of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionKind {
    /// Kill all remaining processes at once with the final signal.
    Kill,
    /// Stop the unit as its definition says. If its processes are gone already, only the commands
    /// that follow a stop remain.
    Stop {
        /// Why the unit stops.
        reason: StopReason,
        /// Whether the unit was active. A unit that was not active is signalled; its stop commands
        /// are not run.
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

/// Kind of an event. Every incarnation ends with [`AllGone`](Self::AllGone), even if it could not
/// be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The unit is ready. Depending on its type it notified, was executed, stayed alive long
    /// enough, wrote the readiness line, left its PID file, or its script succeeded. For a
    /// reloading unit: the reload is complete.
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
    /// The main process exited. For a oneshot: its last command, or the one that failed.
    MainExited(Exit),
    /// The unit asked for this much more time, counted from now, for its current operation.
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
