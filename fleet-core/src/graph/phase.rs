//! What a unit is doing, how it came to that, and what becomes of it.

use std::fmt;

use super::{Signal, Target};

/// What a unit is doing. Nothing else about its state is stored: whether it is needed, waits, is
/// degraded or has to stop follows from the phases of all units and the graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing: it was not started, or is as if it had not been.
    #[default]
    Inactive,
    /// It was started and is not up yet.
    Starting,
    /// It is up, which is what others depend on.
    Active(Activity),
    /// It is being ended, or what is left of it is.
    Stopping,
    /// It ended in a way that it should not have.
    Failed,
    /// It ended well and did not stay up, as units of systemd do. Whoever waits for it, or for the
    /// milestone that it is, goes on; whoever depends on it cannot.
    Completed,
}

/// What a unit that is up is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// It works.
    Running,
    /// It works, and reads its configuration again.
    Reloading,
    /// Its main process ended well, and it counts as up because of that.
    Exited,
}

/// How a main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// By itself, with this status.
    Status(u8),
    /// By this signal, as x86 and ARM count them.
    Signal(u8),
    /// Nobody knows: it was no child of whoever runs the units, or ended while nobody ran them.
    Unknown,
}

/// Why a unit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCause {
    /// A process of it could not be started, for example because its program cannot be executed.
    Spawn,
    /// What it takes to begin a process of it was not there: a file of variables, room for another
    /// process.
    Resources,
    /// Its main process ended well, before it had said that it is ready.
    Protocol,
    /// Its main process ended without being asked to, and not as a success; with status 0, too,
    /// where that is none.
    Exit(Exit),
    /// A command beside its main process failed: before the start, after it, or to start it.
    Script(Exit),
    /// Something is not so that has to be so for it to start.
    Assertion,
    /// It was not up in time.
    StartTimeout,
    /// It did not end in time and was killed.
    StopTimeout,
    /// It ran for longer than it may.
    RuntimeMax,
    /// It did not say in time that it works.
    Watchdog,
    /// Its sign of readiness can never come: its output was closed before the line was seen.
    ReadyLost,
    /// Its pidfile is missing, or names no process of this unit.
    Pidfile,
    /// The kernel ended a process of it because memory was short.
    OutOfMemory,
    /// It did not even end when it was killed.
    Unkillable,
    /// Who ran it before has left it, and nobody knows what runs of it.
    Lost,
}

/// Why a unit is to stop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// Nothing that is needed needs it.
    Unneeded,
    /// It is masked, so nothing may need it.
    Masked,
    /// It has to be started from another definition.
    DefinitionChanged,
    /// Somebody wants it to be started anew.
    RestartRequested,
    /// It depends on this target, which is not active or will not be for long.
    DependencyLost(Target),
    /// It failed, and what is left of it goes.
    Failed(FailureCause),
    /// Its main process ended well and it does not stay up; what is left of it goes.
    Completed,
    /// Its start was skipped, because a condition of it does not hold.
    Skipped,
}

/// What becomes of a unit that is stopping when none of its processes is left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopOutcome {
    /// It is off, as it was asked to be for this reason.
    Inactive(StopReason),
    /// It has failed.
    Failed(FailureCause),
    /// It has ended well; with this exit of its main process, if that is what ended it.
    Completed(Option<Exit>),
    /// Its start was skipped, which is as good.
    Skipped,
    /// It said that it stops, and nobody asked it to: how its main process ends decides.
    SelfInitiated,
}

impl Phase {
    /// Whether it is up.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// Whether there is, or may be, something of it to stop.
    #[must_use]
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Starting | Self::Active(_) | Self::Stopping)
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

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(number) => match Signal::from_number(number) {
                Some(signal) => signal.fmt(f),
                None => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("an unknown status"),
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn => f.write_str("a process could not be started"),
            Self::Resources => f.write_str("the resources to start a process were not available"),
            Self::Protocol => f.write_str("its main process ended before it was ready"),
            Self::Exit(exit) => write!(f, "its main process ended with {exit}"),
            Self::Script(exit) => write!(f, "one of its commands ended with {exit}"),
            Self::Assertion => f.write_str("one of its assertions does not hold"),
            Self::StartTimeout => f.write_str("its start timed out"),
            Self::StopTimeout => f.write_str("its stop timed out"),
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
