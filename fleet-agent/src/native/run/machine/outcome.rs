//! Pure: no I/O, no clock. Exits of processes, and the outcome of a run.

use fleet_core::ExitStatus;
use fleet_core::graph::{Exit, InitUnit, ServiceType};
use serde::{Deserialize, Serialize};

use crate::native::linux::exit::ProcessExit;
use crate::native::linux::signals::Sig;

/// Outcome of a run; systemd's `Result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunOutcome {
    Success,
    ExitCode,
    Signal,
    CoreDump,
    Timeout,
    StartLimitHit,
    Resources,
    /// The service did not behave as its type requires.
    Protocol,
    Watchdog,
    /// A condition did not hold, which is no failure.
    Condition,
    /// An assertion did not hold.
    Assert,
    /// Unknown. For the restart policy, an unknown exit of the main process counts as a death by
    /// signal.
    Unobserved,
}

impl RunOutcome {
    /// Returns systemd's name of the outcome. An unobserved exit is called `exit-code`: systemd has
    /// no name for it, and `exit-code` is the least misleading of its names.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ExitCode | Self::Unobserved => "exit-code",
            Self::Signal => "signal",
            Self::CoreDump => "core-dump",
            Self::Timeout => "timeout",
            Self::StartLimitHit => "start-limit-hit",
            Self::Resources => "resources",
            Self::Protocol => "protocol",
            Self::Condition => "exec-condition",
            Self::Assert => "assert",
            Self::Watchdog => "watchdog",
        }
    }
}

impl ProcessExit {
    /// Returns the exit status in the terms common to all service managers.
    pub(crate) const fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Code(code) => Some(ExitStatus::Code(code)),
            Self::Signal(signal) | Self::Dumped(signal) => Some(ExitStatus::Signal(signal)),
            Self::Unobserved => Some(ExitStatus::Unknown),
            Self::NotSpawned => None,
        }
    }

    /// Returns the outcome for a plain command: only exit code zero is success.
    const fn as_command(self) -> RunOutcome {
        match self {
            Self::Code(0) => RunOutcome::Success,
            Self::Code(_) => RunOutcome::ExitCode,
            Self::Signal(_) => RunOutcome::Signal,
            Self::Dumped(_) => RunOutcome::CoreDump,
            Self::Unobserved => RunOutcome::Unobserved,
            Self::NotSpawned => RunOutcome::Resources,
        }
    }

    /// Returns the exit in the graph's terms.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Code(code) => u8::try_from(code).map_or(Exit::Unknown, Exit::Status),
            Self::Signal(number) | Self::Dumped(number) => {
                Sig::portable_number(number).map_or(Exit::Unknown, Exit::Signal)
            }
            Self::Unobserved | Self::NotSpawned => Exit::Unknown,
        }
    }
}

/// Returns whether the service is a oneshot.
pub(crate) fn is_oneshot(spec: &InitUnit) -> bool {
    matches!(spec.kind, ServiceType::Oneshot { .. })
}

/// Returns the outcome of a control process. `SuccessExitStatus=` applies to it as well.
pub(crate) fn command_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    if spec.run.success.contains(end.exit()) { RunOutcome::Success } else { end.as_command() }
}

/// Returns the outcome of the main process.
pub(crate) fn main_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    match end.as_command() {
        _ if spec.is_success(end.exit()) => RunOutcome::Success,
        // It succeeded, but should not have exited.
        RunOutcome::Success => RunOutcome::ExitCode,
        outcome => outcome,
    }
}
