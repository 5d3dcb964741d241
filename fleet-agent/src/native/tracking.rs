//! How the processes of a unit are found.

/// How a native service manager finds the processes of its units, to end them all.
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
