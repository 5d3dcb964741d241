//! Support for the options of `[Service]`.

use super::accept::OptionGroup::{Environment, Lifecycle, Sandboxing};
use super::support::Support::{Honoured, Ignored, Refused, RefusedUnless};
use super::support::{ACTION, Group, NO, Unsupported};

const CONFINES: Unsupported = Unsupported::new(
    Sandboxing,
    "is not supported: the native supervisor cannot confine processes in this \
     way: remove the option, set it to a neutral value, or run the unit under \
     systemd",
);
const CREDENTIALS: Unsupported = Unsupported::new(
    Environment,
    "is not supported: credentials are not encrypted here: write LoadCredential= and the \
     path of a file",
);
const DIRECTORIES: Unsupported = Unsupported::new(
    Environment,
    "is not supported: there are no quotas for directories: remove it",
);
const DESCRIPTORS: Unsupported = Unsupported::new(
    Environment,
    "is not supported: only sockets and stored file descriptors are passed to \
     units: remove it, or run the unit under systemd",
);
const INPUT: Unsupported = Unsupported::new(
    Environment,
    "is not supported: the standard input of units is empty: remove it",
);
const OLD_RESOURCES: &str = "has no effect: it belongs to cgroup v1: write MemoryMax=, \
                             CPUWeight= or IOWeight=";
const RESOURCES: &str = "has no effect: the only supported resource limits are MemoryMax=, \
                         MemoryHigh=, TasksMax=, CPUWeight=, CPUQuota= and IOWeight=";
const NUMA: &str = "has no effect: prefix the command with numactl or similar";
const SESSIONS: Unsupported = Unsupported::new(
    Sandboxing,
    "is not supported: no session is opened for units: remove it, or run the \
     unit under systemd",
);

/// `[Service]`.
pub(super) const SERVICE: &[Group] = &[
    (Honoured, EXECUTION),
    (Honoured, ENVIRONMENT),
    (Honoured, EXEC_OPTIONS),
    (Honoured, SANDBOX),
    (Honoured, FILTERS),
    (Honoured, CGROUP_FILTERS),
    (Honoured, SCHEDULING),
    (Honoured, LIMITS),
    (Ignored("has no effect, because there is no journal"), LOGS),
    (Ignored("has no effect, because units have no terminal"), TERMINALS),
    (Ignored("has no effect: a single remaining process is the main process"), &["GuessMainPID"]),
    (Ignored("only enables accounting"), ACCOUNTS),
    (Ignored("affects only `systemctl clean`"), &["TimeoutCleanSec"]),
    (RefusedUnless(&["none"], ACTION), &["FailureAction", "StartLimitAction"]),
    (Refused(ACTION), &["RebootArgument"]),
    (Ignored("has no effect, because names on the message bus are not observed"), &["BusName"]),
    (
        Ignored("has no effect: the kernel's choice of a process to kill is no event here"),
        &["OOMPolicy"],
    ),
    (
        RefusedUnless(
            &["normal"],
            Unsupported::new(
                Lifecycle,
                "is not supported: every restart includes a stop: write normal, or remove it",
            ),
        ),
        &["RestartMode"],
    ),
    (
        RefusedUnless(
            &["terminate"],
            Unsupported::new(
                Lifecycle,
                "is not supported: a unit that times out is terminated and then killed: write \
                 terminate",
            ),
        ),
        &["TimeoutStartFailureMode", "TimeoutStopFailureMode"],
    ),
    (
        RefusedUnless(
            &["0"],
            Unsupported::new(
                Lifecycle,
                "is not supported: the runtime is not randomized: write only RuntimeMaxSec=",
            ),
        ),
        &["RuntimeRandomizedExtraSec"],
    ),
    (
        RefusedUnless(
            &["0"],
            Unsupported::new(
                Lifecycle,
                "is not supported: the delay is not randomized: write only RestartSec=",
            ),
        ),
        &["RestartRandomizedDelaySec"],
    ),
    (
        RefusedUnless(
            NO,
            Unsupported::new(
                Lifecycle,
                "is not supported: a reload runs only ExecReload=: remove it, or set it to no",
            ),
        ),
        &["RefreshOnReload"],
    ),
    (
        Refused(Unsupported::new(
            Lifecycle,
            "is not supported: a reload runs only ExecReload=: write the command there",
        )),
        &["ExecReloadPost"],
    ),
    (
        Refused(Unsupported::new(
            Environment,
            "is not supported: units do not survive a new kernel: remove it",
        )),
        &["LUOSession"],
    ),
    (
        Refused(Unsupported::new(
            Lifecycle,
            "is not supported: a restart stops the unit like any other stop: write KillSignal=",
        )),
        &["RestartKillSignal"],
    ),
    (Honoured, &["FileDescriptorStoreMax", "NonBlocking", "Sockets"]),
    (RefusedUnless(NO, DESCRIPTORS), &["FileDescriptorStorePreserve"]),
    (Refused(DESCRIPTORS), &["OpenFile", "USBFunctionDescriptors", "USBFunctionStrings"]),
    (RefusedUnless(NO, CONFINES), SWITCHES),
    (RefusedUnless(&[""], CONFINES), CONFINING),
    (Refused(CONFINES), CONFINING_EVEN_IF_EMPTY),
    (Refused(CREDENTIALS), CREDENTIAL_OPTIONS),
    (Refused(DIRECTORIES), DIRECTORY_OPTIONS),
    (Refused(INPUT), &["StandardInputData", "StandardInputText"]),
    (Ignored(NUMA), NUMA_OPTIONS),
    (RefusedUnless(NO, SESSIONS), &["SetLoginEnvironment"]),
    (Refused(SESSIONS), &["PAMName"]),
    (Ignored("has no effect, because logins are not recorded"), &["UtmpIdentifier", "UtmpMode"]),
    (Ignored("has no effect, because calls are not logged"), &["SystemCallLog"]),
    (Ignored("has no effect without RootDirectory="), &["MountAPIVFS", "RootDirectoryStartOnly"]),
    (Ignored("has no effect: only IPC objects of dynamic users are removed"), &["RemoveIPC"]),
    (Ignored(OLD_RESOURCES), OLD_RESOURCE_OPTIONS),
    (Ignored("has no effect, because units have no slices"), &["Slice"]),
    (
        Ignored("changes nothing for root, which may create groups below its own; others may not"),
        &["Delegate"],
    ),
    (Ignored(RESOURCES), RESOURCE_OPTIONS),
];

const EXECUTION: &[&str] = &[
    "ExecCondition",
    "ExecReload",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "ExitType",
    "FinalKillSignal",
    "KillMode",
    "KillSignal",
    "NotifyAccess",
    "PIDFile",
    "ReloadSignal",
    "RemainAfterExit",
    "Restart",
    "RestartForceExitStatus",
    "RestartMaxDelaySec",
    "RestartPreventExitStatus",
    "RestartSec",
    "RestartSteps",
    "RuntimeMaxSec",
    "SendSIGHUP",
    "SendSIGKILL",
    "StartLimitBurst",
    "StartLimitInterval",
    "SuccessExitStatus",
    "TimeoutAbortSec",
    "TimeoutSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Type",
    "WatchdogSec",
    "WatchdogSignal",
];

const ENVIRONMENT: &[&str] = &[
    "CPUQuota",
    "CPUWeight",
    "Environment",
    "EnvironmentFile",
    "Group",
    "IOWeight",
    "IgnoreSIGPIPE",
    "MemoryHigh",
    "MemoryMax",
    "Nice",
    "OOMScoreAdjust",
    "PassEnvironment",
    "PermissionsStartOnly",
    "StandardError",
    "StandardInput",
    "StandardOutput",
    "SupplementaryGroups",
    "TasksMax",
    "UMask",
    "UnsetEnvironment",
    "User",
    "WorkingDirectory",
];

/// Directories, credentials, and the search path.
pub(super) const EXEC_OPTIONS: &[&str] = &[
    "CacheDirectory",
    "CacheDirectoryMode",
    "ConfigurationDirectory",
    "ConfigurationDirectoryMode",
    "ExecSearchPath",
    "LoadCredential",
    "LogsDirectory",
    "LogsDirectoryMode",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "RuntimeDirectoryPreserve",
    "SetCredential",
    "StateDirectory",
    "StateDirectoryMode",
];

/// Options of the scheduling.
pub(super) const SCHEDULING: &[&str] = &[
    "CPUAffinity",
    "CPUSchedulingPolicy",
    "CPUSchedulingPriority",
    "CPUSchedulingResetOnFork",
    "CoredumpFilter",
    "IOSchedulingClass",
    "IOSchedulingPriority",
    "TimerSlackNSec",
];

/// Restrictions that only root can impose on processes.
pub(super) const SANDBOX: &[&str] = &[
    "AmbientCapabilities",
    "BindPaths",
    "BindReadOnlyPaths",
    "CapabilityBoundingSet",
    "DynamicUser",
    "ExecPaths",
    "IPCNamespacePath",
    "InaccessibleDirectories",
    "InaccessiblePaths",
    "KeyringMode",
    "MountFlags",
    "NetworkNamespacePath",
    "NoExecPaths",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateNetwork",
    "PrivateTmp",
    "PrivateUsers",
    "ProcSubset",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyDirectories",
    "ReadOnlyPaths",
    "ReadWriteDirectories",
    "ReadWritePaths",
    "SecureBits",
    "TemporaryFileSystem",
];

/// Restrictions that every user can impose on processes.
pub(super) const FILTERS: &[&str] = &[
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "NoNewPrivileges",
    "Personality",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "SystemCallFilter",
];

/// Filters of the control group, which only root can set.
pub(super) const CGROUP_FILTERS: &[&str] =
    &["DeviceAllow", "DevicePolicy", "IPAddressAllow", "IPAddressDeny"];

const LIMITS: &[&str] = &[
    "LimitAS",
    "LimitCORE",
    "LimitCPU",
    "LimitDATA",
    "LimitFSIZE",
    "LimitLOCKS",
    "LimitMEMLOCK",
    "LimitMSGQUEUE",
    "LimitNICE",
    "LimitNOFILE",
    "LimitNPROC",
    "LimitRSS",
    "LimitRTPRIO",
    "LimitRTTIME",
    "LimitSIGPENDING",
    "LimitSTACK",
];

const LOGS: &[&str] = &[
    "LogExtraFields",
    "LogFilterPatterns",
    "LogLevelMax",
    "LogNamespace",
    "LogRateLimitBurst",
    "LogRateLimitIntervalSec",
    "SyslogFacility",
    "SyslogIdentifier",
    "SyslogLevel",
    "SyslogLevelPrefix",
];

const TERMINALS: &[&str] =
    &["TTYColumns", "TTYPath", "TTYReset", "TTYRows", "TTYVHangup", "TTYVTDisallocate"];

const ACCOUNTS: &[&str] = &[
    "BlockIOAccounting",
    "CPUAccounting",
    "CacheDirectoryAccounting",
    "IOAccounting",
    "IPAccounting",
    "LogsDirectoryAccounting",
    "MemoryAccounting",
    "StateDirectoryAccounting",
    "TasksAccounting",
];

/// Boolean options that confine a process if they are true.
const SWITCHES: &[&str] =
    &["BindLogSockets", "DelegateNamespaces", "PrivateBPF", "PrivatePIDs", "RootEphemeral"];

/// Lists and paths that an empty value resets.
const CONFINING: &[&str] = &[
    "AppArmorProfile",
    "BPFProgram",
    "BindNetworkInterface",
    "ExtensionDirectories",
    "ExtensionImages",
    "IPEgressFilterPath",
    "IPIngressFilterPath",
    "MountImages",
    "RestrictFileSystems",
    "RestrictNetworkInterfaces",
    "RootDirectory",
    "RootHash",
    "RootHashSignature",
    "RootImage",
    "RootImageOptions",
    "RootMStack",
    "RootVerity",
    "SELinuxContext",
    "SmackProcessLabel",
    "SocketBindAllow",
    "SocketBindDeny",
    "UserNamespacePath",
];

/// Options for which even an empty value may confine the unit. For example, an empty capability set
/// removes all capabilities. For most options listed here, systemd 252 does not document the effect
/// of an empty value, so these are refused too.
const CONFINING_EVEN_IF_EMPTY: &[&str] = &[
    "BPFDelegateAttachments",
    "BPFDelegateCommands",
    "BPFDelegateMaps",
    "BPFDelegatePrograms",
    "ExtensionImagePolicy",
    "MountImagePolicy",
    "NFTSet",
    "RootImagePolicy",
];

const CREDENTIAL_OPTIONS: &[&str] =
    &["ImportCredential", "LoadCredentialEncrypted", "SetCredentialEncrypted"];

const DIRECTORY_OPTIONS: &[&str] =
    &["CacheDirectoryQuota", "LogsDirectoryQuota", "StateDirectoryQuota"];

const NUMA_OPTIONS: &[&str] = &["MemoryKSM", "NUMAMask", "NUMAPolicy"];

const OLD_RESOURCE_OPTIONS: &[&str] = &[
    "BlockIODeviceWeight",
    "BlockIOReadBandwidth",
    "BlockIOWeight",
    "BlockIOWriteBandwidth",
    "CPUShares",
    "MemoryLimit",
    "StartupBlockIOWeight",
    "StartupCPUShares",
];

const RESOURCE_OPTIONS: &[&str] = &[
    "AllowedCPUs",
    "AllowedMemoryNodes",
    "CPUPressureThresholdSec",
    "CPUPressureWatch",
    "CPUQuotaPeriodSec",
    "CPUSetPartition",
    "CoredumpReceive",
    "DefaultMemoryLow",
    "DefaultMemoryMin",
    "DefaultStartupMemoryLow",
    "DelegateSubgroup",
    "DisableControllers",
    "IODeviceLatencyTargetSec",
    "IODeviceWeight",
    "IOPressureThresholdSec",
    "IOPressureWatch",
    "IOReadBandwidthMax",
    "IOReadIOPSMax",
    "IOWriteBandwidthMax",
    "IOWriteIOPSMax",
    "ManagedOOMMemoryPressure",
    "ManagedOOMMemoryPressureDurationSec",
    "ManagedOOMMemoryPressureLimit",
    "ManagedOOMPreference",
    "ManagedOOMSwap",
    "MemoryLow",
    "MemoryMin",
    "MemoryPressureThresholdSec",
    "MemoryPressureWatch",
    "MemorySwapMax",
    "MemoryTHP",
    "MemoryZSwapMax",
    "MemoryZSwapWriteback",
    "OOMRules",
    "StartupAllowedCPUs",
    "StartupAllowedMemoryNodes",
    "StartupCPUWeight",
    "StartupIOWeight",
    "StartupMemoryHigh",
    "StartupMemoryLow",
    "StartupMemoryMax",
    "StartupMemorySwapMax",
    "StartupMemoryZSwapMax",
];
