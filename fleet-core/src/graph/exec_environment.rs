//! What surrounds the processes of a unit.

use std::collections::BTreeMap;

/// What each process of a unit finds around it. The default is the least that there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecEnvironment {
    /// Variables, later ones winning.
    pub environment: Vec<(String, String)>,
    /// Files of variables, which are read when a process is started and win over `environment`.
    pub environment_files: Vec<EnvironmentFile>,
    /// Variables that are passed on from whoever runs the units.
    pub pass_environment: Vec<String>,
    /// What is taken away in the end: a name, or a name with its value.
    pub unset_environment: Vec<String>,
    /// Where it starts.
    pub directory: WorkingDirectory,
    /// Who it is, by name or number; nothing is whoever runs the units.
    pub user: Option<String>,
    /// Its group, by name or number; nothing is the user's own.
    pub group: Option<String>,
    /// Groups beside.
    pub supplementary_groups: Vec<String>,
    /// The rights that files which it makes do not have; nothing is 0o022.
    pub umask: Option<u32>,
    /// Whether `SIGPIPE` does nothing to it, as long as it does not ask for anything else.
    pub ignore_sigpipe: bool,
    /// From -20, the most urgent, to 19.
    pub nice: Option<i32>,
    /// From -1000 to 1000, the first to be ended when memory is short.
    pub oom_score_adjust: Option<i32>,
    /// Rlimits of the kernel for each process.
    pub limits: Rlimits,
    /// Where it writes.
    pub output: ExecOutput,
    /// Where it writes its errors; nothing is where it writes.
    pub error: Option<ExecOutput>,
}

/// A file of variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentFile {
    /// Its absolute path.
    pub path: String,
    /// Whether it is passed over where it cannot be read.
    pub optional: bool,
}

/// Where a process starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// Which directory.
    pub path: DirectoryPath,
    /// Whether the root directory serves where it cannot be entered.
    pub optional: bool,
}

/// A directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DirectoryPath {
    /// `/`.
    #[default]
    Root,
    /// The one that the user calls home.
    Home,
    /// This one, by its absolute path.
    At(String),
}

/// Where a process writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExecOutput {
    /// To the unit's log.
    #[default]
    Log,
    /// Nowhere.
    Null,
    /// To wherever whoever runs the units writes.
    Inherit,
    /// To this file from its beginning, without cutting it off.
    File(String),
    /// To the end of this file.
    Append(String),
    /// To this file, which is emptied first.
    Truncate(String),
}

/// Rlimits by the names that `setrlimit` has for them, in lower case (`nofile`): the soft and the
/// hard one, where `None` is no limit.
pub type Rlimits = BTreeMap<&'static str, (Option<u64>, Option<u64>)>;

/// What the processes of a unit may take together. It needs cgroup v2; without it, a unit that asks
/// for any of this is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Bytes of memory, beyond which processes are ended.
    pub memory_max: Option<u64>,
    /// Bytes of memory, beyond which they are slowed down.
    pub memory_high: Option<u64>,
    /// How many processes and threads.
    pub tasks_max: Option<u64>,
    /// The share of the processors when they are short, from 1 to 10000; 100 is usual.
    pub cpu_weight: Option<u64>,
    /// Hundredths of a percent of one processor.
    pub cpu_quota: Option<u64>,
    /// The share of the disks when they are short, from 1 to 10000; 100 is usual.
    pub io_weight: Option<u64>,
}

impl ResourceLimits {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
