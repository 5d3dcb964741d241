//! Methods of tracking the processes of a unit.

use std::fmt;

/// Method by which a native service manager finds all processes of a unit in order to stop them.
/// `Display` describes the method in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracking {
    /// By a control group per run, which its processes cannot leave.
    ControlGroups,
    /// By process group, parent process and environment variables. A process that has changed all
    /// three is not found.
    Environment {
        /// Reason why control groups are not used.
        why: String,
    },
}

impl fmt::Display for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroups => f.write_str("by control groups"),
            Self::Environment { why } => write!(
                f,
                "by process group, parent and environment, not by control groups: {why}; a \
                 process that leaves all three is not found"
            ),
        }
    }
}
