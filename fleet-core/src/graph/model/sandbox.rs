//! Confinement of the processes of a unit, as the systemd options of the same names define it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Restrictions on the processes of a unit. The default restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sandbox {
    /// Options that are on or off.
    pub switches: BTreeSet<SandboxSwitch>,
    /// `ProtectSystem=`.
    pub protect_system: ProtectSystem,
    /// `ProtectHome=`.
    pub protect_home: ProtectHome,
    /// `ProtectProc=`: the value of the mount option `hidepid` of `/proc`.
    pub protect_proc: Option<&'static str>,
    /// Access to paths, in the order of the file: `ReadWritePaths=` and similar options.
    pub paths: Vec<PathAccess>,
    /// `BindPaths=` and `BindReadOnlyPaths=`.
    pub binds: Vec<BindPath>,
    /// `TemporaryFileSystem=`: paths and mount options.
    pub temporary_file_systems: Vec<(String, String)>,
    /// `CapabilityBoundingSet=`; `None` keeps all.
    pub capability_bounding_set: Option<CapabilitySet>,
    /// `AmbientCapabilities=`.
    pub ambient_capabilities: CapabilitySet,
    /// `SecureBits=`, in the kernel's bits.
    pub secure_bits: u32,
    /// `NetworkNamespacePath=`: absolute path of a network namespace.
    pub network_namespace: Option<String>,
    /// `IPCNamespacePath=`: absolute path of an IPC namespace.
    pub ipc_namespace: Option<String>,
    /// `Personality=`, as the kernel's number.
    pub personality: Option<u32>,
    /// `KeyringMode=`.
    pub keyring: KeyringMode,
    /// `RestrictAddressFamilies=`; `None` permits all.
    pub address_families: Option<AddressFamilies>,
    /// `RestrictNamespaces=`: the types that may be created, as `CLONE_NEW…` bits. `None` permits
    /// all.
    pub namespaces: Option<u32>,
    /// `SystemCallFilter=`; `None` permits all.
    pub system_calls: Option<SystemCallFilter>,
    /// `SystemCallErrorNumber=`; `None` kills the process.
    pub system_call_error: Option<u16>,
}

/// Options of a sandbox that are on or off, named like the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of the options")]
pub enum SandboxSwitch {
    /// The user exists only while the unit runs. Other switches follow from it.
    DynamicUser,
    LockPersonality,
    MemoryDenyWriteExecute,
    /// `SystemCallArchitectures=native`.
    NativeSystemCalls,
    NoNewPrivileges,
    PrivateDevices,
    PrivateIPC,
    PrivateMounts,
    PrivateNetwork,
    PrivateTmp,
    PrivateUsers,
    /// `ProcSubset=pid`.
    ProcSubsetPid,
    ProtectClock,
    ProtectControlGroups,
    ProtectHostname,
    ProtectKernelLogs,
    ProtectKernelModules,
    ProtectKernelTunables,
    RestrictRealtime,
    RestrictSUIDSGID,
}

/// Values of `ProtectSystem=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtectSystem {
    /// Protects nothing.
    #[default]
    No,
    /// Makes `/usr` and the boot loader's directories read-only.
    Yes,
    /// Also makes `/etc` read-only.
    Full,
    /// Makes everything read-only but `/dev`, `/proc`, `/sys` and the home directories.
    Strict,
}

/// Values of `ProtectHome=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtectHome {
    /// Protects nothing.
    #[default]
    No,
    /// Makes the home directories inaccessible.
    Yes,
    /// Makes the home directories read-only.
    ReadOnly,
    /// Mounts empty file systems over the home directories.
    Tmpfs,
}

/// Values of `KeyringMode=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyringMode {
    /// Keeps the session keyring of the supervisor.
    #[default]
    Inherit,
    /// Creates a session keyring for each process.
    Private,
    /// Also links the keyring of the user into it.
    Shared,
}

/// Access to a path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathAccess {
    /// The permitted access.
    pub access: Access,
    /// Absolute path.
    pub path: String,
    /// Whether a missing path is skipped.
    pub optional: bool,
}

/// Kinds of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// `InaccessiblePaths=`.
    Inaccessible,
    /// `ReadOnlyPaths=`.
    ReadOnly,
    /// `ReadWritePaths=`.
    ReadWrite,
    /// `NoExecPaths=`.
    NoExec,
    /// `ExecPaths=`.
    Exec,
}

/// A path that is visible at another path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindPath {
    /// Absolute path of the source.
    pub source: String,
    /// Absolute path at which the source is visible.
    pub target: String,
    /// Whether a missing source is skipped.
    pub optional: bool,
    /// Whether the target is read-only.
    pub read_only: bool,
    /// Whether mounts below the source are visible too.
    pub recursive: bool,
}

/// A set of Linux capabilities, as the kernel's bits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    /// All capabilities that this version knows.
    pub const ALL: Self = Self((1 << CAPABILITIES.len()) - 1);

    /// Returns the set with one capability, such as `CAP_NET_ADMIN`, or `None` for an unknown name.
    /// Case is ignored, as in systemd.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (prefix, short) = name.split_at_checked(4)?;
        let is_known = |known: &str| known.eq_ignore_ascii_case(short);
        let bit = CAPABILITIES.iter().position(|known| is_known(known))?;
        prefix.eq_ignore_ascii_case("cap_").then_some(Self(1 << bit))
    }

    /// Returns the capabilities that are in one of the sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the capabilities of this set that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for CapabilitySet {
    /// Formats the names of the capabilities.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CAPABILITIES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.debug_set().entries(names.map(|(_, name)| name)).finish()
    }
}

/// Names of the capabilities without `CAP_`, by the kernel's numbers.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Families of sockets that may, or may not, be created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressFamilies {
    /// Whether `families` lists the permitted families; otherwise it lists the forbidden ones.
    pub permit: bool,
    /// The kernel's numbers of the families.
    pub families: BTreeSet<u16>,
}

/// System calls that may, or may not, be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemCallFilter {
    /// Whether `calls` lists the permitted calls; otherwise it lists the forbidden ones.
    pub permit: bool,
    /// Names of the calls. Groups such as `@clock` are replaced by their calls. A forbidden call
    /// may have an action of its own.
    pub calls: BTreeMap<String, Option<SystemCallAction>>,
}

/// What happens when a process makes a forbidden system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCallAction {
    /// The kernel kills the process.
    Kill,
    /// The call fails with this error number.
    Error(u16),
}

impl Sandbox {
    /// Returns whether an option is on.
    #[must_use]
    pub fn has(&self, switch: SandboxSwitch) -> bool {
        self.switches.contains(&switch)
    }
}
