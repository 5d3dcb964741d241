//! The accepted words of directives with a choice.

pub(super) use crate::check::system_words::*;

pub(super) type Words = &'static [&'static str];

/// The words of a list, and the rules by which systemd reads the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordList {
    pub(super) words: Words,
    /// A word that may only be the whole value.
    pub(super) alone: Option<&'static str>,
    pub(super) ignores_case: bool,
    /// Whether a tilde at the start of the value inverts the list.
    pub(super) may_invert: bool,
    pub(super) removes_quotes: bool,
}

const EXACT: WordList = WordList {
    words: &[],
    alone: None,
    ignores_case: false,
    may_invert: false,
    removes_quotes: false,
};
const ANY_CASE: WordList =
    WordList { ignores_case: true, may_invert: true, removes_quotes: true, ..EXACT };

pub(super) const ADDRESS_FAMILY_LIST: WordList =
    WordList { words: ADDRESS_FAMILIES, alone: Some("none"), ..ANY_CASE };
pub(super) const ARCHITECTURE_LIST: WordList =
    WordList { words: ARCHITECTURES, removes_quotes: true, ..EXACT };
pub(super) const CAPABILITY_LIST: WordList = WordList { words: CAPABILITIES, ..ANY_CASE };
pub(super) const DELEGATE_LIST: WordList =
    WordList { words: CONTROLLERS, removes_quotes: true, ..EXACT };
pub(super) const DISABLE_LIST: WordList = WordList { words: CONTROLLERS, ..EXACT };
pub(super) const NAMESPACE_LIST: WordList =
    WordList { words: NAMESPACES, may_invert: true, ..EXACT };
pub(super) const SECURE_BIT_LIST: WordList =
    WordList { words: SECURE_BITS, removes_quotes: true, ..EXACT };

pub(super) const ACTIONS: Words = &[
    "none",
    "reboot",
    "reboot-force",
    "reboot-immediate",
    "poweroff",
    "poweroff-force",
    "poweroff-immediate",
    "exit",
    "exit-force",
    "soft-reboot",
    "soft-reboot-force",
    "kexec",
    "kexec-force",
    "halt",
    "halt-force",
    "halt-immediate",
];
/// Every architecture, including those without system call filters.
pub(super) const ALL_ARCHITECTURES: Words = &[
    "x86",
    "x86-64",
    "arm",
    "arm-be",
    "arm64",
    "arm64-be",
    "alpha",
    "arc",
    "arc-be",
    "cris",
    "ia64",
    "loongarch64",
    "m68k",
    "mips",
    "mips-le",
    "mips64",
    "mips64-le",
    "nios2",
    "parisc",
    "parisc64",
    "ppc",
    "ppc-le",
    "ppc64",
    "ppc64-le",
    "riscv32",
    "riscv64",
    "s390",
    "s390x",
    "sh",
    "sh64",
    "sparc",
    "sparc64",
    "tilegx",
];
pub(super) const ARCHITECTURES: Words = &[
    "native",
    "arm",
    "arm64",
    "loongarch64",
    "m68k",
    "mips",
    "mips-le",
    "mips64",
    "mips64-le",
    "mips64-le-n32",
    "mips64-n32",
    "parisc",
    "parisc64",
    "ppc",
    "ppc64",
    "ppc64-le",
    "riscv64",
    "s390",
    "s390x",
    "x32",
    "x86",
    "x86-64",
];
pub(super) const BIND_IPV6_ONLY: Words = &["default", "both", "ipv6-only"];
pub(super) const COLLECT_MODES: Words = &["inactive", "inactive-or-failed"];
pub(super) const CONTROLLERS: Words = &[
    "cpu",
    "cpuacct",
    "cpuset",
    "io",
    "blkio",
    "memory",
    "devices",
    "pids",
    "bpf-firewall",
    "bpf-devices",
    "bpf-foreign",
    "bpf-socket-bind",
    "bpf-restrict-network-interfaces",
];
/// Kinds of partitions in `CPUSetPartition=`.
pub(super) const CPU_PARTITIONS: Words = &["member", "root", "isolated"];
pub(super) const CPU_POLICIES: Words = &["other", "batch", "idle", "fifo", "rr", "ext"];
pub(super) const DEFER_TRIGGER: Words = &["patient"];
pub(super) const DEVICE_POLICIES: Words = &["auto", "closed", "strict"];
pub(super) const EXIT_TYPES: Words = &["main", "cgroup"];
pub(super) const FACILITIES: Words = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];
pub(super) const IDLE: Words = &["idle"];
pub(super) const INPUTS: Words =
    &["null", "tty", "tty-force", "tty-fail", "data", "socket", "fd", "file:", "fd:"];
pub(super) const IO_CLASSES: Words = &["none", "realtime", "best-effort", "idle"];
pub(super) const JOB_MODES: Words = &[
    "fail",
    "lenient",
    "replace",
    "replace-irreversibly",
    "isolate",
    "flush",
    "ignore-dependencies",
    "ignore-requirements",
    "triggering",
    "restart-dependencies",
];
pub(super) const KEYRING_MODES: Words = &["inherit", "private", "shared"];
pub(super) const KILL_MODES: Words = &["control-group", "mixed", "process", "none"];
pub(super) const LEVELS: Words =
    &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
pub(super) const MANAGED_OOM: Words = &["auto", "kill"];
pub(super) const MANAGED_OOM_PREFERENCES: Words = &["none", "avoid", "omit"];
pub(super) const MOUNT_FLAGS: Words = &["shared", "slave", "private"];
pub(super) const NAMESPACES: Words = &["cgroup", "ipc", "net", "mnt", "pid", "user", "uts", "time"];
/// No words, for a boolean that also accepts an empty value.
pub(super) const NONE: Words = &[];
pub(super) const NOTIFY_ACCESS: Words = &["none", "main", "exec", "all"];
pub(super) const NUMA_POLICIES: Words = &[
    "default",
    "preferred",
    "bind",
    "interleave",
    "local",
    "preferred-many",
    "weighted-interleave",
];
pub(super) const OOM_POLICIES: Words = &["continue", "stop", "kill"];
pub(super) const OUTPUTS: Words = &[
    "inherit",
    "null",
    "tty",
    "journal",
    "journal+console",
    "kmsg",
    "kmsg+console",
    "syslog",
    "syslog+console",
    "socket",
    "fd",
    "file:",
    "append:",
    "truncate:",
    "fd:",
];
pub(super) const PRESERVE: Words = &["restart"];
pub(super) const PRESSURE_WATCH: Words = &["auto", "skip"];
pub(super) const PRIVATE: Words = &["private", "private:", "yes:"];
pub(super) const PRIVATE_TMP: Words = &["connected", "disconnected"];
pub(super) const PRIVATE_USERS: Words = &["self", "identity", "full", "managed"];
pub(super) const PROC_SUBSETS: Words = &["all", "pid"];
pub(super) const PROTECT_CONTROL_GROUPS: Words = &["private", "strict"];
pub(super) const PROTECT_HOME: Words = &["read-only", "tmpfs"];
pub(super) const PROTECT_PROC: Words = &["default", "noaccess", "invisible", "ptraceable"];
pub(super) const PROTECT_SYSTEM: Words = &["full", "strict"];
pub(super) const RESTARTS: Words =
    &["no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"];
pub(super) const RESTART_MODES: Words = &["normal", "direct", "debug"];
pub(super) const SECURE_BITS: Words = &[
    "keep-caps",
    "keep-caps-locked",
    "no-setuid-fixup",
    "no-setuid-fixup-locked",
    "noroot",
    "noroot-locked",
];
pub(super) const SERVICE_TYPES: Words =
    &["simple", "exec", "forking", "oneshot", "dbus", "notify", "notify-reload", "idle"];
pub(super) const SIGNALS: Words = &[
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
pub(super) const SOCKET_PROTOCOLS: Words = &["udplite", "sctp", "mptcp"];
pub(super) const TIMEOUT_MODES: Words = &["terminate", "abort", "kill"];
pub(super) const TIMESTAMPING: Words = &["off", "us", "usec", "µs", "ns", "nsec"];
pub(super) const TYPES_OF_SERVICE: Words = &["low-delay", "throughput", "reliability", "low-cost"];
pub(super) const UTMP_MODES: Words = &["init", "login", "user"];
