//! How a process has ended.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// Exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessExit {
    /// Exited with this code.
    Code(i32),
    /// Terminated by this signal.
    Signal(i32),
    /// Terminated by this signal, with a core dump.
    Dumped(i32),
    /// Ended unobserved, with unknown status.
    Unobserved,
    /// Not spawned: the machine had no capacity for another process.
    NotSpawned,
}

/// Converts the exit status of a child.
pub(crate) fn exit_from_status(status: ExitStatus) -> ProcessExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(signal)) if status.core_dumped() => ProcessExit::Dumped(signal),
        (None, Some(signal)) => ProcessExit::Signal(signal),
        (None, None) => ProcessExit::Unobserved,
    }
}
