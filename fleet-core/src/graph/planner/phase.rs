//! States of a unit.

use std::fmt;

use super::event::Incarnation;
use crate::Timestamp;
use crate::graph::model::{Exit, Target};

/// Phase of a unit. Other states, such as needed, waiting and degraded, are not stored, because
/// they follow from the phases of all units and the graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not started, or reset to that state.
    #[default]
    Inactive,
    /// Started, but not active yet.
    Starting,
    /// Active: the state that others depend on.
    Active(Activity),
    /// Stopping; some of its processes may be left.
    Stopping,
    /// Ended with a failure.
    Failed,
    /// Ended successfully and did not stay active. For its dependents, a completed unit satisfies
    /// `waits-for` and `depends-ms`, but not `depends-on`.
    Completed,
}

/// Sub-state of an active unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Running.
    Running,
    /// Running, and reloading its configuration.
    Reloading,
    /// Its main process exited successfully, and the unit stays active without it.
    Exited,
}

/// Why a unit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCause {
    /// A process could not be started, for example because its program cannot be executed.
    Spawn,
    /// A resource that a process needs to start was not available. For example, an environment file
    /// is missing, or there is no room for another process.
    Resources,
    /// The start could not be recorded, for example because a disk is full. The unit is retried
    /// until it can be, whatever its restart policy, and the failure does not count.
    Unrecorded,
    /// The main process exited successfully before it reported readiness.
    Protocol,
    /// The main process exited without a request, and the exit was not a success. Even exit status
    /// 0 may be a failure (see [`OnCleanExit::Fail`](crate::graph::model::OnCleanExit::Fail)).
    Exit(Exit),
    /// A command other than the main process failed: a command before or after the start, or the
    /// start script itself.
    Script(Exit),
    /// An assertion of the unit does not hold.
    Assertion,
    /// The unit was not active before its start timeout.
    StartTimeout,
    /// The unit did not stop before its stop timeout and was killed.
    StopTimeout,
    /// A command of the stop, or after it, failed. The status is unknown if the command could not
    /// be run.
    StopCommand(Exit),
    /// A command of the stop, or after it, did not end before the stop timeout.
    StopCommandTimeout,
    /// The unit exceeded its maximum runtime.
    RuntimeMax,
    /// The unit missed its watchdog deadline.
    Watchdog,
    /// The output was closed before the readiness line appeared.
    ReadyLost,
    /// The PID file is missing, or names no process of this unit.
    Pidfile,
    /// The kernel killed a process because memory was short.
    OutOfMemory,
    /// Processes survived SIGKILL.
    Unkillable,
    /// An earlier supervisor started the unit, and it is unknown which of its processes still run.
    Lost,
}

/// Why a unit has to stop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// No needed unit needs it.
    Unneeded,
    /// It is masked, so no unit may need it.
    Masked,
    /// Its definition has changed.
    DefinitionChanged,
    /// A restart was requested.
    RestartRequested,
    /// It depends on this target, which is inactive or about to stop.
    DependencyLost(Target),
    /// It failed, and its remaining processes are stopped.
    Failed(FailureCause),
    /// Its main process exited successfully, and the unit does not stay active. Its remaining
    /// processes are stopped.
    Completed,
    /// Its start was skipped because a condition does not hold.
    Skipped,
}

/// Phase that a stopping unit enters once all its processes are gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopOutcome {
    /// Inactive; it was stopped for this reason.
    Inactive(StopReason),
    /// Failed.
    Failed(FailureCause),
    /// Completed. The value is the exit of the main process, if that exit ended the unit.
    Completed(Option<Exit>),
    /// Start skipped, which counts as success.
    Skipped,
    /// Completed or failed, depending on the exit of the main process. The unit announced that it
    /// stops, although no stop was requested.
    SelfInitiated,
}

impl Phase {
    /// Returns whether the unit is active.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// Returns whether the unit has, or may have, processes to stop.
    #[must_use]
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Starting | Self::Active(_) | Self::Stopping)
    }
}

impl FailureCause {
    /// Returns whether the stop of the unit failed. Such a failure counts even if the stop was
    /// requested.
    #[must_use]
    pub fn is_failed_stop(self) -> bool {
        matches!(
            self,
            Self::StopTimeout
                | Self::StopCommand(_)
                | Self::StopCommandTimeout
                | Self::Unkillable
                | Self::Lost
        )
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "inactive",
            Self::Starting => "starting",
            Self::Active(Activity::Running) => "running",
            Self::Active(Activity::Reloading) => "reloading",
            Self::Active(Activity::Exited) => "exited",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
            Self::Completed => "completed",
        })
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn => f.write_str("a process could not be started"),
            Self::Resources => f.write_str("the resources to start a process were not available"),
            Self::Unrecorded => f.write_str("its start could not be recorded"),
            Self::Protocol => f.write_str("its main process ended before it was ready"),
            Self::Exit(exit) => write!(f, "its main process ended with {exit}"),
            Self::Script(exit) => write!(f, "one of its commands ended with {exit}"),
            Self::Assertion => f.write_str("one of its assertions does not hold"),
            Self::StartTimeout => f.write_str("its start timed out"),
            Self::StopTimeout => f.write_str("its stop timed out"),
            Self::StopCommand(exit) => write!(f, "one of its stop commands ended with {exit}"),
            Self::StopCommandTimeout => f.write_str("one of its stop commands timed out"),
            Self::RuntimeMax => f.write_str("it exceeded its maximum runtime"),
            Self::Watchdog => f.write_str("its watchdog timed out"),
            Self::ReadyLost => f.write_str("its output was closed before the readiness line"),
            Self::Pidfile => f.write_str("its PID file names no process of the unit"),
            Self::OutOfMemory => f.write_str("the kernel killed a process because memory ran out"),
            Self::Unkillable => f.write_str("processes are left after SIGKILL"),
            Self::Lost => f.write_str("it cannot be adopted and may still run"),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unneeded => f.write_str("nothing needs it"),
            Self::Masked => f.write_str("it is masked"),
            Self::DefinitionChanged => f.write_str("its definition has changed"),
            Self::RestartRequested => f.write_str("a restart was requested"),
            Self::DependencyLost(target) => {
                write!(f, "its dependency {target} is no longer active")
            }
            Self::Failed(cause) => cause.fmt(f),
            Self::Completed => f.write_str("its main process exited successfully"),
            Self::Skipped => f.write_str("one of its conditions does not hold"),
        }
    }
}

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
    /// It is not active, and nothing makes it needed.
    Inactive,
    /// No unit provides it.
    Missing,
}
