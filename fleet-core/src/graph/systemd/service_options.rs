//! What becomes of the options of `[Service]`.

use super::support::Group;
use super::support::Support::{Honoured, Ignored, Refused, RefusedUnless};

const NO: &[&str] = &["no"];

const ACTION: &str = "is not possible: the machine is not this supervisor's to restart or to \
                      power off: take it out, or run the unit under systemd";
const BUS: &str = "is not possible: there is no message bus here: take it out, and use Type=notify \
                   or Type=exec";
const CONFINES: &str = "is not possible: the native supervisor cannot confine processes in this \
                        way: take the option out or set it to what asks for nothing, or run the \
                        unit under systemd";
const CREDENTIALS: &str = "is not possible: no credentials are handed over here: take it out, and \
                           let the program read a file";
const DIRECTORIES: &str = "is not possible: no directories are made for units here: take it out, \
                           and make them in an ExecStartPre= command, such as mkdir -p";
const DESCRIPTORS: &str = "is not possible: units are handed no descriptors here: take it out, or \
                           run the unit under systemd";
const INPUT: &str = "is not possible: the standard input of each unit is empty here: take it out";
const LOGGING: &str =
    "is not possible: the log of a unit holds lines and nothing else: take it out";
const OLD_RESOURCES: &str = "is not possible: it belongs to control groups of the first version: \
                             write MemoryMax=, CPUWeight= or IOWeight=";
const RESOURCES: &str = "is not possible: of what a unit may use, only MemoryMax=, MemoryHigh=, \
                         TasksMax=, CPUWeight=, CPUQuota= and IOWeight= are kept to here: take it \
                         out, or run the unit under systemd";
const SCHEDULING: &str = "is not possible: of how processes are scheduled, only Nice= is set here: \
                          take it out, or begin the command with chrt, taskset, ionice or numactl";
const SESSIONS: &str = "is not possible: no session is opened for a unit here: take it out, or run \
                        the unit under systemd";

/// `[Service]`.
pub(super) const SERVICE: &[Group] = &[
    (Honoured, RUNS),
    (Honoured, SURROUNDS),
    (Honoured, LIMITS),
    (Ignored("concerns a journal that is not there"), LOGS),
    (Ignored("concerns a terminal, and no unit has one here"), TERMINALS),
    (Ignored("means nothing, as the main process is never guessed"), &["GuessMainPID"]),
    (Ignored("counts what nobody asks for"), ACCOUNTS),
    (Ignored("concerns `systemctl clean` alone"), &["TimeoutCleanSec"]),
    (RefusedUnless(&["none"], ACTION), &["FailureAction", "StartLimitAction"]),
    (Refused(ACTION), &["RebootArgument"]),
    (RefusedUnless(&[""], BUS), &["BusName"]),
    (
        RefusedUnless(
            &["main"],
            "is not possible: a service ends with its main process: take it \
                                   out, and keep the main process until the others have ended",
        ),
        &["ExitType"],
    ),
    (
        RefusedUnless(
            &["continue"],
            "is not possible: a process that lack of memory ends is not \
                                       told from others that a signal ends: write continue",
        ),
        &["OOMPolicy"],
    ),
    (
        RefusedUnless(
            &["normal"],
            "is not possible: each restart goes by way of the stop: write \
                                     normal, or take it out",
        ),
        &["RestartMode"],
    ),
    (
        RefusedUnless(
            &["terminate"],
            "is not possible: a unit that takes too long is asked to \
                                        end, and then killed: write terminate",
        ),
        &["TimeoutStartFailureMode", "TimeoutStopFailureMode"],
    ),
    (
        RefusedUnless(
            &["0"],
            "is not possible: nothing is left to chance here: write \
                                RuntimeMaxSec= alone",
        ),
        &["RuntimeRandomizedExtraSec"],
    ),
    (
        Refused(
            "is not possible: a unit that is restarted ends as it does otherwise: write \
                 KillSignal=",
        ),
        &["RestartKillSignal"],
    ),
    (RefusedUnless(&["0", "no"], DESCRIPTORS), &["FileDescriptorStoreMax"]),
    (RefusedUnless(NO, DESCRIPTORS), &["FileDescriptorStorePreserve", "NonBlocking"]),
    (
        Refused(DESCRIPTORS),
        &["OpenFile", "Sockets", "USBFunctionDescriptors", "USBFunctionStrings"],
    ),
    (RefusedUnless(NO, CONFINES), SWITCHES),
    (RefusedUnless(&[""], CONFINES), CONFINING),
    (Refused(CONFINES), CONFINING_EVEN_IF_EMPTY),
    (RefusedUnless(&["auto"], CONFINES), &["DevicePolicy"]),
    (RefusedUnless(&["inherit"], CONFINES), &["KeyringMode"]),
    (RefusedUnless(&["all"], CONFINES), &["ProcSubset"]),
    (RefusedUnless(&["default"], CONFINES), &["ProtectProc"]),
    (Refused(CREDENTIALS), CREDENTIAL_OPTIONS),
    (Refused(DIRECTORIES), DIRECTORY_OPTIONS),
    (RefusedUnless(NO, DIRECTORIES), &["RuntimeDirectoryPreserve"]),
    (Refused(INPUT), &["StandardInputData", "StandardInputText"]),
    (Refused(LOGGING), &["LogExtraFields", "LogFilterPatterns", "LogNamespace"]),
    (RefusedUnless(NO, SCHEDULING), &["CPUSchedulingResetOnFork", "MemoryKSM"]),
    (Refused(SCHEDULING), SCHEDULING_OPTIONS),
    (
        Refused(
            "is not possible: no name is searched for elsewhere: write the path of the program",
        ),
        &["ExecSearchPath"],
    ),
    (RefusedUnless(NO, SESSIONS), &["SetLoginEnvironment"]),
    (Refused(SESSIONS), &["PAMName", "UtmpIdentifier", "UtmpMode"]),
    (Refused(OLD_RESOURCES), OLD_RESOURCE_OPTIONS),
    (RefusedUnless(&["infinity"], RESOURCES), MEMORY_OPTIONS),
    (RefusedUnless(&["system.slice"], RESOURCES), &["Slice"]),
    (RefusedUnless(NO, RESOURCES), &["CoredumpReceive", "Delegate"]),
    (RefusedUnless(&["auto"], RESOURCES), &["ManagedOOMMemoryPressure", "ManagedOOMSwap"]),
    (Refused(RESOURCES), RESOURCE_OPTIONS),
];

const RUNS: &[&str] = &[
    "ExecCondition",
    "ExecReload",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
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

const SURROUNDS: &[&str] = &[
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
    "LogLevelMax",
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

/// Those that confine a process when they say yes.
const SWITCHES: &[&str] = &[
    "BindLogSockets",
    "DelegateNamespaces",
    "DynamicUser",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "MountAPIVFS",
    "NoNewPrivileges",
    "PermissionsStartOnly",
    "PrivateBPF",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateNetwork",
    "PrivatePIDs",
    "PrivateTmp",
    "PrivateUsers",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectSystem",
    "RemoveIPC",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RootDirectoryStartOnly",
    "RootEphemeral",
];

/// Lists and paths that an empty value takes back.
const CONFINING: &[&str] = &[
    "AmbientCapabilities",
    "AppArmorProfile",
    "BPFProgram",
    "BindPaths",
    "BindReadOnlyPaths",
    "DeviceAllow",
    "ExecPaths",
    "ExtensionDirectories",
    "ExtensionImages",
    "IPAddressAllow",
    "IPAddressDeny",
    "IPCNamespacePath",
    "IPEgressFilterPath",
    "IPIngressFilterPath",
    "InaccessibleDirectories",
    "InaccessiblePaths",
    "MountFlags",
    "MountImages",
    "NetworkNamespacePath",
    "NoExecPaths",
    "Personality",
    "ReadOnlyDirectories",
    "ReadOnlyPaths",
    "ReadWriteDirectories",
    "ReadWritePaths",
    "RestrictAddressFamilies",
    "RestrictFileSystems",
    "RestrictNetworkInterfaces",
    "RootDirectory",
    "RootHash",
    "RootHashSignature",
    "RootImage",
    "RootImageOptions",
    "RootVerity",
    "SELinuxContext",
    "SecureBits",
    "SmackProcessLabel",
    "SocketBindAllow",
    "SocketBindDeny",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "SystemCallFilter",
    "SystemCallLog",
    "TemporaryFileSystem",
];

/// An empty value takes all capabilities away, and of the others systemd 252 does not tell.
const CONFINING_EVEN_IF_EMPTY: &[&str] = &[
    "BPFDelegateAttachments",
    "BPFDelegateCommands",
    "BPFDelegateMaps",
    "BPFDelegatePrograms",
    "CapabilityBoundingSet",
    "ExtensionImagePolicy",
    "MountImagePolicy",
    "NFTSet",
    "RootImagePolicy",
];

const CREDENTIAL_OPTIONS: &[&str] = &[
    "ImportCredential",
    "LoadCredential",
    "LoadCredentialEncrypted",
    "SetCredential",
    "SetCredentialEncrypted",
];

const DIRECTORY_OPTIONS: &[&str] = &[
    "CacheDirectory",
    "CacheDirectoryMode",
    "CacheDirectoryQuota",
    "ConfigurationDirectory",
    "ConfigurationDirectoryMode",
    "LogsDirectory",
    "LogsDirectoryMode",
    "LogsDirectoryQuota",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "StateDirectory",
    "StateDirectoryMode",
    "StateDirectoryQuota",
];

const SCHEDULING_OPTIONS: &[&str] = &[
    "CPUAffinity",
    "CPUSchedulingPolicy",
    "CPUSchedulingPriority",
    "CoredumpFilter",
    "IOSchedulingClass",
    "IOSchedulingPriority",
    "NUMAMask",
    "NUMAPolicy",
    "TimerSlackNSec",
];

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

/// Those that ask for nothing when they say infinity.
const MEMORY_OPTIONS: &[&str] = &[
    "MemorySwapMax",
    "MemoryZSwapMax",
    "StartupMemoryHigh",
    "StartupMemoryMax",
    "StartupMemorySwapMax",
    "StartupMemoryZSwapMax",
];

const RESOURCE_OPTIONS: &[&str] = &[
    "AllowedCPUs",
    "AllowedMemoryNodes",
    "CPUQuotaPeriodSec",
    "DefaultMemoryLow",
    "DefaultMemoryMin",
    "DefaultStartupMemoryLow",
    "DelegateSubgroup",
    "DisableControllers",
    "IODeviceLatencyTargetSec",
    "IODeviceWeight",
    "IOReadBandwidthMax",
    "IOReadIOPSMax",
    "IOWriteBandwidthMax",
    "IOWriteIOPSMax",
    "ManagedOOMMemoryPressureDurationSec",
    "ManagedOOMMemoryPressureLimit",
    "ManagedOOMPreference",
    "MemoryLow",
    "MemoryMin",
    "MemoryPressureThresholdSec",
    "MemoryPressureWatch",
    "MemoryZSwapWriteback",
    "StartupAllowedCPUs",
    "StartupAllowedMemoryNodes",
    "StartupCPUWeight",
    "StartupIOWeight",
    "StartupMemoryLow",
];
