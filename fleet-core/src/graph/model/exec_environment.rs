//! Execution environment of a unit's processes.

use std::collections::BTreeMap;

/// Execution environment of each process of a unit. The default is minimal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecEnvironment {
    /// Variables; later ones override earlier ones.
    pub environment: Vec<(String, String)>,
    /// Environment files, read when a process starts. They override `environment`.
    pub environment_files: Vec<EnvironmentFile>,
    /// Variables passed on from the supervisor.
    pub pass_environment: Vec<String>,
    /// Variables removed last: a name, or a name with its value.
    pub unset_environment: Vec<String>,
    /// Working directory.
    pub directory: WorkingDirectory,
    /// User by name or number; `None` is the supervisor's user.
    pub user: Option<String>,
    /// Group by name or number; `None` is the user's primary group.
    pub group: Option<String>,
    /// Supplementary groups.
    pub supplementary_groups: Vec<String>,
    /// File mode creation mask; `None` is 0o022.
    pub umask: Option<u32>,
    /// Whether the process starts with `SIGPIPE` ignored.
    pub ignore_sigpipe: bool,
    /// Nice level, from -20 (highest priority) to 19.
    pub nice: Option<i32>,
    /// OOM score adjustment, from -1000 to 1000. The kernel kills processes with a high value
    /// first.
    pub oom_score_adjust: Option<i32>,
    /// Kernel limits of each process.
    pub limits: Rlimits,
    /// Standard output.
    pub output: ExecOutput,
    /// Standard error; `None` is the same as standard output.
    pub error: Option<ExecOutput>,
}

/// A file with environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentFile {
    /// Absolute path.
    pub path: String,
    /// Whether a file that cannot be read is skipped.
    pub optional: bool,
}

/// Working directory of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// The directory.
    pub path: DirectoryPath,
    /// Whether `/` is used if the directory cannot be entered.
    pub optional: bool,
}

/// Path of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DirectoryPath {
    /// The root directory.
    #[default]
    Root,
    /// The user's home directory.
    Home,
    /// This absolute path.
    At(String),
}

/// Destination of a standard stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExecOutput {
    /// The unit's log.
    #[default]
    Log,
    /// `/dev/null`.
    Null,
    /// The stream of the supervisor.
    Inherit,
    /// This file, written from its beginning without truncation.
    File(String),
    /// The end of this file.
    Append(String),
    /// This file, truncated first.
    Truncate(String),
}

/// Soft and hard limits of `setrlimit`. The keys are the kernel's names in lower case, such as
/// `nofile`. `None` means no limit.
pub type Rlimits = BTreeMap<&'static str, (Option<u64>, Option<u64>)>;

/// Limits on all processes of a unit together. They need cgroup v2; on a machine without it, a unit
/// with such a limit is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Maximum memory in bytes; beyond it processes are killed.
    pub memory_max: Option<u64>,
    /// Memory in bytes beyond which processes are throttled.
    pub memory_high: Option<u64>,
    /// Maximum number of processes and threads.
    pub tasks_max: Option<u64>,
    /// CPU weight under contention, from 1 to 10000; the usual value is 100.
    pub cpu_weight: Option<u64>,
    /// CPU quota, in hundredths of a percent of one processor.
    pub cpu_quota: Option<u64>,
    /// I/O weight under contention, from 1 to 10000; the usual value is 100.
    pub io_weight: Option<u64>,
}

impl ResourceLimits {
    /// Returns whether no limit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
