//! The steps of an executor.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// Exit statuses of systemd for steps that failed.
pub(in crate::native) const EXIT_CHDIR: i32 = 200;
pub(in crate::native) const EXIT_EXEC: i32 = 203;
pub(in crate::native) const EXIT_LIMITS: i32 = 205;
pub(in crate::native) const EXIT_IOPRIO: i32 = 211;
pub(in crate::native) const EXIT_TIMERSLACK: i32 = 212;
pub(in crate::native) const EXIT_SECUREBITS: i32 = 213;
pub(in crate::native) const EXIT_SETSCHEDULER: i32 = 214;
pub(in crate::native) const EXIT_CPUAFFINITY: i32 = 215;
pub(in crate::native) const EXIT_GROUP: i32 = 216;
pub(in crate::native) const EXIT_USER: i32 = 217;
pub(in crate::native) const EXIT_CAPABILITIES: i32 = 218;
pub(in crate::native) const EXIT_NETWORK: i32 = 225;
pub(in crate::native) const EXIT_NAMESPACE: i32 = 226;
pub(in crate::native) const EXIT_NO_NEW_PRIVILEGES: i32 = 227;
pub(in crate::native) const EXIT_SECCOMP: i32 = 228;
pub(in crate::native) const EXIT_PERSONALITY: i32 = 230;
pub(in crate::native) const EXIT_KEYRING: i32 = 237;

/// All steps from the start of the executor to the program of the unit. The steps are carried out
/// in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct ExecPlan {
    pub(in crate::native) scheduling: SchedulingPlan,
    /// The kernel's number of the personality.
    pub(in crate::native) personality: Option<u32>,
    pub(in crate::native) keyring: KeyringPlan,
    /// Namespaces to create, as `CLONE_NEW…` bits.
    pub(in crate::native) namespaces: i32,
    /// Network and IPC namespaces to enter, in place of new ones, by path.
    pub(in crate::native) namespace_paths: [Option<String>; 2],
    /// Process whose network and IPC namespaces are entered, in place of new ones.
    pub(in crate::native) shares_namespaces_of: Option<u32>,
    /// Changes to what the process sees of the file system. They need a mount namespace.
    pub(in crate::native) mounts: Vec<Mount>,
    /// Limits by the kernel's names, soft and hard.
    pub(in crate::native) limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Capabilities that programs may gain; `None` changes nothing.
    pub(in crate::native) bounding_set: Option<u64>,
    /// User and group of the unit, if the process shall see all others as nobody. `None` stands for
    /// the executor's.
    pub(in crate::native) private_users: Option<(Option<u32>, Option<u32>)>,
    /// User and groups; `None` keeps the executor's.
    pub(in crate::native) identity: Option<IdentityPlan>,
    /// Capabilities that the program has, even if its user is not root.
    pub(in crate::native) ambient: u64,
    pub(in crate::native) umask: u32,
    pub(in crate::native) directory: DirectoryPlan,
    pub(in crate::native) secure_bits: u32,
    pub(in crate::native) no_new_privileges: bool,
    /// Filters of system calls, each a BPF program for the kernel.
    pub(in crate::native) filters: Vec<Vec<BpfInstruction>>,
    pub(in crate::native) ignore_sigpipe: bool,
    /// Environment of the program. The executor adds the variables with its own process ID.
    pub(in crate::native) environment: BTreeMap<String, String>,
    /// Paths of the program; the first one that can be executed counts.
    pub(in crate::native) candidates: Vec<String>,
    /// Arguments, beginning with the name of the program.
    pub(in crate::native) arguments: Vec<String>,
}

/// Scheduling of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct SchedulingPlan {
    /// Processors to run on; empty keeps the executor's.
    pub(in crate::native) processors: Vec<u16>,
    /// Policy with its flags, and priority.
    pub(in crate::native) cpu: Option<(i32, i32)>,
    /// Class and priority.
    pub(in crate::native) io: Option<(i32, i32)>,
    /// Nanoseconds.
    pub(in crate::native) timer_slack: Option<u64>,
    /// The kernel's bits of memory that a core dump contains.
    pub(in crate::native) coredump_filter: Option<u32>,
}

/// Session keyring of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) enum KeyringPlan {
    /// The executor's.
    #[default]
    Inherit,
    /// A new one.
    Private,
    /// A new one that contains the keyring of the user.
    Shared,
}

/// User and groups by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct IdentityPlan {
    pub(in crate::native) uid: Option<u32>,
    pub(in crate::native) gid: Option<u32>,
    /// All supplementary groups; `None` keeps the executor's.
    pub(in crate::native) groups: Option<Vec<u32>>,
}

/// Working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct DirectoryPlan {
    pub(in crate::native) path: String,
    /// Whether to use the root directory if `path` cannot be entered.
    pub(in crate::native) optional: bool,
}

/// One instruction of a BPF program: code, two jumps, and an operand.
pub(in crate::native) type BpfInstruction = (u16, u8, u8, u32);

/// A change to what the process sees at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct Mount {
    /// Absolute path.
    pub(in crate::native) path: String,
    pub(in crate::native) kind: MountKind,
    /// Whether a missing path, or source, is skipped.
    pub(in crate::native) optional: bool,
}

/// Kinds of mounts. Of two for one path, the first kind of this list counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::native) enum MountKind {
    /// Nothing can be read or written there. A file is covered by the empty file at this path.
    Inaccessible {
        empty_file: String,
    },
    /// Shows another path there.
    Bind {
        source: String,
        recursive: bool,
        read_only: bool,
        /// Whether programs there get no other user or privileges.
        no_suid: bool,
    },
    /// A `/dev` with the pseudo devices alone.
    Devices,
    /// A file system of the kernel, such as `proc`, with these mount options.
    FileSystem {
        name: String,
        options: Vec<(String, String)>,
    },
    ReadOnly,
    ReadWrite,
    NoExec,
    Exec,
    /// An empty file system with these mount options.
    Tmpfs {
        options: String,
        read_only: bool,
    },
    /// Like `ReadWrite`, if no other mount names the path.
    ReadWriteByDefault,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::native) struct ExecFailure {
    /// Exit status of the executor.
    pub(in crate::native) code: i32,
    /// The step, as the end of a sentence that begins with "cannot".
    pub(in crate::native) step: String,
    /// Error number, or 0.
    pub(in crate::native) errno: i32,
}

impl ExecFailure {
    pub(in crate::native) fn new(code: i32, step: impl Into<String>, error: &io::Error) -> Self {
        Self { code, step: step.into(), errno: error.raw_os_error().unwrap_or(0) }
    }
}
