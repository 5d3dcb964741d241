//! Directories, credentials and scheduling of the processes of a unit.

use std::collections::BTreeSet;

/// Directories that exist while the unit runs, or longer: `RuntimeDirectory=` and its relatives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecDirectories {
    /// The directories of each kind.
    pub kinds: [DirectoryGroup; 5],
    /// `RuntimeDirectoryPreserve=`.
    pub preserve_runtime: PreserveRuntime,
}

/// Directories of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryGroup {
    /// Absolute path of the directory that contains all of them, such as `/var/lib`.
    pub base: String,
    /// Absolute paths, each with the symbolic links that lead to it.
    pub paths: Vec<(String, Vec<String>)>,
    /// File mode.
    pub mode: u32,
}

impl Default for DirectoryGroup {
    fn default() -> Self {
        Self { base: String::new(), paths: Vec::new(), mode: 0o755 }
    }
}

/// Kinds of directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirectoryKind {
    /// `RuntimeDirectory=`: removed when the unit stops.
    Runtime,
    /// `StateDirectory=`.
    State,
    /// `CacheDirectory=`.
    Cache,
    /// `LogsDirectory=`.
    Logs,
    /// `ConfigurationDirectory=`: owned by root.
    Configuration,
}

impl DirectoryKind {
    /// All kinds, in the order of [`ExecDirectories::kinds`].
    pub const ALL: [Self; 5] =
        [Self::Runtime, Self::State, Self::Cache, Self::Logs, Self::Configuration];

    /// Returns the environment variable with the paths of the directories.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Runtime => "RUNTIME_DIRECTORY",
            Self::State => "STATE_DIRECTORY",
            Self::Cache => "CACHE_DIRECTORY",
            Self::Logs => "LOGS_DIRECTORY",
            Self::Configuration => "CONFIGURATION_DIRECTORY",
        }
    }
}

impl DirectoryGroup {
    /// Returns the directory that only root can enter, for directories of dynamic users.
    #[must_use]
    pub fn private_base(&self) -> String {
        format!("{}/private", self.base)
    }

    /// Returns the path of a directory in [`private_base`](Self::private_base).
    #[must_use]
    pub fn private_path(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        format!("{}/{}", self.private_base(), below.trim_start_matches('/'))
    }

    /// Returns whether another of the directories contains this one.
    #[must_use]
    pub fn is_nested(&self, path: &str) -> bool {
        let contains = |other: &str| path.strip_prefix(other).is_some_and(|it| it.starts_with('/'));
        self.paths.iter().any(|(other, _)| contains(other))
    }
}

impl ExecDirectories {
    /// Returns the directories of a kind.
    #[must_use]
    pub fn of(&self, kind: DirectoryKind) -> &DirectoryGroup {
        &self.kinds[kind as usize]
    }

    /// Returns whether the directories of a kind are in a `private` directory, which only root can
    /// enter, if the unit has a dynamic user.
    #[must_use]
    pub fn may_be_private(&self, kind: DirectoryKind) -> bool {
        match kind {
            DirectoryKind::Configuration => false,
            DirectoryKind::Runtime => self.preserve_runtime != PreserveRuntime::No,
            _ => true,
        }
    }

    /// Returns whether there are no directories.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(|group| group.paths.is_empty())
    }
}

/// Values of `RuntimeDirectoryPreserve=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PreserveRuntime {
    /// The runtime directories are removed when the unit stops.
    #[default]
    No,
    /// They are kept for a restart.
    Restart,
    /// They are always kept.
    Yes,
}

/// Secret data that the processes find as a file (`LoadCredential=`, `SetCredential=`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Name of the file.
    pub id: String,
    /// Contents of the file.
    pub source: CredentialSource,
}

/// Contents of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// The contents of the file at this absolute path.
    File(String),
    /// This text, unless a file has set the credential.
    Text(String),
}

/// Scheduling of processes; `None` inherits the supervisor's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduling {
    /// `CPUAffinity=`; empty means all processors.
    pub cpu_affinity: BTreeSet<u16>,
    /// `CPUSchedulingPolicy=`, as the kernel's number.
    pub cpu_policy: Option<i32>,
    /// `CPUSchedulingPriority=`.
    pub cpu_priority: Option<i32>,
    /// `CPUSchedulingResetOnFork=`.
    pub reset_on_fork: bool,
    /// `IOSchedulingClass=`, as the kernel's number.
    pub io_class: Option<i32>,
    /// `IOSchedulingPriority=`, from 0 (first) to 7.
    pub io_priority: Option<i32>,
    /// `CoredumpFilter=`, in the kernel's bits.
    pub coredump_filter: Option<u32>,
    /// `TimerSlackNSec=` in nanoseconds.
    pub timer_slack: Option<u64>,
}
