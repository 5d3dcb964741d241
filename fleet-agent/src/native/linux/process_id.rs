//! The identity of a process.

use serde::{Deserialize, Serialize};

/// Identity of a process, unique even if its process ID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// Start time, in clock ticks since boot.
    pub(crate) start: u64,
}
