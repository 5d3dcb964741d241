//! What whoever runs the units is told to do, and what it tells of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Exit, FailureCause, InitUnit, Name, StopReason};

/// One start of one unit, and all that came of it. No two starts in a system share a number, so
/// what is told of an earlier one can be told from what is told of this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// What is to be done for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitAction {
    /// For which unit.
    pub unit: Name,
    /// For which start of it; a new one if it is to be started.
    pub incarnation: Incarnation,
    /// What.
    pub kind: ActionKind,
    /// What that incarnation runs, or is to run. The graph may have another definition by now.
    pub definition: Arc<InitUnit>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionKind {
    /// End whatever is left of it at once, by its last signal.
    Kill,
    /// End it as its definition says. Its processes may be gone already; then only what follows the
    /// end of a unit is left to do, and to say that all is gone.
    Stop {
        /// Why.
        reason: StopReason,
        /// Whether it was up. A unit that never was is signalled, and not asked by its commands.
        was_up: bool,
    },
    /// Have it read its configuration again.
    Reload,
    /// Start it.
    Start,
}

/// What happened to a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitEvent {
    /// To which.
    pub unit: Name,
    /// To which start of it. What befell an earlier one is not heeded.
    pub incarnation: Incarnation,
    /// What.
    pub kind: EventKind,
}

/// What may happen to a unit. Every incarnation ends with [`AllGone`](Self::AllGone), whatever else
/// happened before, one that could not be started too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is up: it said so, or was executed, was alive for long enough, wrote the line, left its
    /// pidfile, or its script ended well. Of one that reloads: it works by its new configuration.
    Ready,
    /// It failed in another way than by the end of its main process.
    Failed(FailureCause),
    /// It was not started, because a condition of it does not hold.
    Skipped,
    /// It reads its configuration again, and nobody asked it to.
    Reloading,
    /// What was to make it read its configuration again has ended.
    ReloadEnded {
        /// Whether as it should.
        well: bool,
    },
    /// It says that it stops.
    Stopping,
    /// Its main process has ended; of a oneshot, its last command, or the one that failed.
    MainExited(Exit),
    /// It asks for so much more time, from now, for what it is doing.
    Extend(Duration),
    /// None of its processes is left, and none will be started for this incarnation.
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
