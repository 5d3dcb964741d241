//! How the processes of a unit are found.

use std::fmt;

/// How a native service manager finds the processes of its units, to end them all. Displayed it
/// says so to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracking {
    /// By a control group for each run: nothing that a unit starts can leave it.
    ControlGroups,
    /// By process group, descent and environment: a process that leaves its group, its parent and
    /// its environment behind is not found.
    Environment {
        /// Why there are no control groups, for a person.
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
