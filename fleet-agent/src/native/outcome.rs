//! Pure: no I/O, no clock. How processes end, and what that makes of a service.

use fleet_core::ExitStatus;
use fleet_core::graph::{Exit, InitUnit, ServiceType};
use serde::{Deserialize, Serialize};

use super::signals::Sig;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// This signal ended it, and its memory was written to a file.
    Dumped(i32),
    /// It ended while nobody watched.
    Unobserved,
    /// It never was: the machine had no room for another process.
    NotSpawned,
}

/// What became of a run; systemd's `Result`.
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
    /// It did not do what its type promises.
    Protocol,
    Watchdog,
    /// A condition of it did not hold, which is no failure.
    Condition,
    /// An assertion of it did not hold.
    Assert,
    /// How it ended is not known, which counts as a failure of any kind that would restart it.
    Unobserved,
}

impl RunOutcome {
    /// systemd's word for it. It has none for an unseen end; `exit-code` is the least misleading.
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
    /// The same in the words that all service managers share.
    pub(crate) const fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Code(code) => Some(ExitStatus::Code(code)),
            Self::Signal(signal) | Self::Dumped(signal) => Some(ExitStatus::Signal(signal)),
            Self::Unobserved => Some(ExitStatus::Unknown),
            Self::NotSpawned => None,
        }
    }

    /// What this end means by itself: nothing but exit code zero is success.
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

    /// The same in the graph's words.
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

/// Whether starting it is running it to its end.
pub(crate) fn is_oneshot(spec: &InitUnit) -> bool {
    matches!(spec.kind, ServiceType::Oneshot { .. })
}

/// What the end of a helper means. What the service may exit with, its helpers may as well.
pub(crate) fn command_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    if spec.run.success.contains(end.exit()) { RunOutcome::Success } else { end.as_command() }
}

/// What the end of the main process means.
pub(crate) fn main_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    match end.as_command() {
        _ if spec.is_success(end.exit()) => RunOutcome::Success,
        // It ended well, and should not have ended.
        RunOutcome::Success => RunOutcome::ExitCode,
        outcome => outcome,
    }
}
