//! Pure: no I/O, no clock. How processes end, and what that makes of a service.

use fleet_core::ExitStatus;
use fleet_core::graph::{Exit, Kind, Unit};
use serde::{Deserialize, Serialize};

use super::signals::Sig;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// This signal ended it, and its memory was written to a file.
    Dumped(i32),
    /// It ended while nobody watched.
    Unseen,
    /// It never was: the machine had no room for another process.
    NeverWas,
}

/// What became of a run; systemd's `Result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
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
    Unseen,
}

impl Outcome {
    /// systemd's word for it. It has none for an unseen end; `exit-code` is the least misleading.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ExitCode | Self::Unseen => "exit-code",
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

impl End {
    /// The same in the words that all service managers share.
    pub(crate) const fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Code(code) => Some(ExitStatus::Code(code)),
            Self::Signal(signal) | Self::Dumped(signal) => Some(ExitStatus::Signal(signal)),
            Self::Unseen => Some(ExitStatus::Unknown),
            Self::NeverWas => None,
        }
    }

    /// What this end means by itself: nothing but exit code zero is success.
    const fn as_command(self) -> Outcome {
        match self {
            Self::Code(0) => Outcome::Success,
            Self::Code(_) => Outcome::ExitCode,
            Self::Signal(_) => Outcome::Signal,
            Self::Dumped(_) => Outcome::CoreDump,
            Self::Unseen => Outcome::Unseen,
            Self::NeverWas => Outcome::Resources,
        }
    }

    /// The same in the graph's words.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Code(code) => u8::try_from(code).map_or(Exit::Unknown, Exit::Status),
            Self::Signal(number) | Self::Dumped(number) => {
                Sig::usual_number(number).map_or(Exit::Unknown, Exit::Signal)
            }
            Self::Unseen | Self::NeverWas => Exit::Unknown,
        }
    }
}

/// Whether starting it is running it to its end.
pub(crate) fn is_oneshot(spec: &Unit) -> bool {
    matches!(spec.kind, Kind::Oneshot { .. })
}

/// What the end of a helper means. What the service may exit with, its helpers may as well.
pub(crate) fn command_outcome(spec: &Unit, end: End) -> Outcome {
    if spec.run.success.contains(end.exit()) { Outcome::Success } else { end.as_command() }
}

/// What the end of the main process means.
pub(crate) fn main_outcome(spec: &Unit, end: End) -> Outcome {
    match end.as_command() {
        _ if spec.is_success(end.exit()) => Outcome::Success,
        // It ended well, and should not have ended.
        Outcome::Success => Outcome::ExitCode,
        outcome => outcome,
    }
}
