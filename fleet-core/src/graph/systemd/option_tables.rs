//! What becomes of the options of `[Unit]`, `[Install]` and `[Timer]`.

use super::support::Group;
use super::support::Support::{Honoured, Ignored, Informational, Refused, RefusedUnless};

const NO: &[&str] = &["no"];
const NONE: &[&str] = &["none"];

const ACTION: &str = "is not possible: the machine is not this supervisor's to restart or to \
                      power off: take it out, or run the unit under systemd";
const CONDITION: &str = "is not possible: only ConditionPathExists=, …PathIsDirectory=, \
                         …FileNotEmpty=, …FileIsExecutable=, …Host=, …KernelCommandLine= and \
                         …User= are checked here, and their Assert…=: make the check in an \
                         ExecCondition= command";
const FOLLOW_UP: &str = "is not possible: no unit is started because of how another ended: call \
                         what it names in an ExecStopPost= command";
const JOBS: &str = "is not possible: there are no jobs here, only states: take it out, and limit \
                    the start with TimeoutStartSec=";
const MOUNTS: &str = "is not possible: nothing is mounted here: take it out, and look for the \
                      mount in an ExecCondition= command, such as mountpoint -q";
const NO_COMMANDS: &str = "is not possible: what runs follows from what is needed, and nobody \
                           starts or stops a unit by a command: take it out or set it to no";
const RELOADS: &str = "is not possible: a reload concerns one unit alone: reload the other one \
                       in an ExecReload= command";
const REQUISITE: &str = "is not possible: what a unit needs is started for it: write Requires= \
                         and After=";
const STOPS: &str =
    "is not possible: a unit says itself with which others it stops: write PartOf= there";
const UPHOLDS: &str = "is not possible: each unit keeps itself up: write Wants= here, and \
                       Restart=always there";
const CLOCK_CHANGES: &str = "is not possible: a timer elapses at its moments alone, and follows a \
                             clock that is set: take it out, or run the unit under systemd";
const WAKING: &str = "is not possible: no machine is woken here: take it out, and a moment that it \
                      sleeps through comes when it wakes";
const DEFERRING: &str = "is not possible: moments of the calendar count from when the timer last \
                         elapsed: take it out";
const OFFSETS: &str = "is not possible: moments of the calendar are not moved as a whole: write \
                       RandomizedDelaySec= and FixedRandomDelay=yes";

/// `[Unit]`.
pub(super) const UNIT: &[Group] = &[
    (Informational, &["Documentation"]),
    (
        Honoured,
        &[
            "After",
            "AssertFileIsExecutable",
            "AssertFileNotEmpty",
            "AssertHost",
            "AssertKernelCommandLine",
            "AssertPathExists",
            "AssertPathIsDirectory",
            "AssertUser",
            "Before",
            "BindTo",
            "BindsTo",
            "ConditionFileIsExecutable",
            "ConditionFileNotEmpty",
            "ConditionHost",
            "ConditionKernelCommandLine",
            "ConditionPathExists",
            "ConditionPathIsDirectory",
            "ConditionUser",
            "Conflicts",
            "DefaultDependencies",
            "Description",
            "PartOf",
            "Requires",
            "RequiresOverridable",
            "StartLimitBurst",
            "StartLimitInterval",
            "StartLimitIntervalSec",
            "Wants",
        ],
    ),
    (Ignored("concerns `systemctl isolate` alone"), &["AllowIsolate", "IgnoreOnIsolate"]),
    (Ignored("concerns the memory of systemd alone"), &["CollectMode"]),
    (Ignored("tells where the file was made from"), &["SourcePath"]),
    (Ignored("orders nothing here, as nothing is mounted"), &["WantsMountsFor"]),
    (
        Ignored("means nothing without an action"),
        &["FailureActionExitStatus", "SuccessActionExitStatus"],
    ),
    (Ignored("means nothing without OnFailure= and OnSuccess="), UNIT_JOB_MODES),
    (
        RefusedUnless(NONE, ACTION),
        &["FailureAction", "JobTimeoutAction", "StartLimitAction", "SuccessAction"],
    ),
    (Refused(ACTION), &["JobTimeoutRebootArgument", "RebootArgument"]),
    (RefusedUnless(&["0", "infinity"], JOBS), &["JobRunningTimeoutSec", "JobTimeoutSec"]),
    (
        RefusedUnless(NO, NO_COMMANDS),
        &["RefuseManualStart", "RefuseManualStop", "StopWhenUnneeded"],
    ),
    (
        RefusedUnless(NO, "is not possible: everything ends with the supervisor: set it to no"),
        &["SurviveFinalKillSignal"],
    ),
    (Refused(FOLLOW_UP), &["OnFailure", "OnSuccess"]),
    (Refused(RELOADS), UNIT_RELOADS),
    (Refused(STOPS), &["PropagatesStopTo", "StopPropagatedFrom"]),
    (Refused(REQUISITE), &["Requisite", "RequisiteOverridable"]),
    (Refused(UPHOLDS), &["Upholds"]),
    (Refused(MOUNTS), &["RequiresMountsFor"]),
    (
        Refused("is not possible: units have no namespaces here to join: take it out"),
        &["JoinsNamespaceOf"],
    ),
    (Refused(CONDITION), UNIT_CONDITIONS),
];

const UNIT_JOB_MODES: &[&str] = &["OnFailureIsolate", "OnFailureJobMode", "OnSuccessJobMode"];

const UNIT_RELOADS: &[&str] =
    &["PropagateReloadFrom", "PropagateReloadTo", "PropagatesReloadTo", "ReloadPropagatedFrom"];

const UNIT_CONDITIONS: &[&str] = &[
    "AssertACPower",
    "AssertArchitecture",
    "AssertCPUFeature",
    "AssertCPUPressure",
    "AssertCPUs",
    "AssertCapability",
    "AssertControlGroupController",
    "AssertCredential",
    "AssertDirectoryNotEmpty",
    "AssertEnvironment",
    "AssertFirstBoot",
    "AssertGroup",
    "AssertIOPressure",
    "AssertKernelModuleLoaded",
    "AssertKernelVersion",
    "AssertMemory",
    "AssertMemoryPressure",
    "AssertNeedsUpdate",
    "AssertOSRelease",
    "AssertPathExistsGlob",
    "AssertPathIsEncrypted",
    "AssertPathIsMountPoint",
    "AssertPathIsReadWrite",
    "AssertPathIsSymbolicLink",
    "AssertSecurity",
    "AssertVersion",
    "AssertVirtualization",
    "ConditionACPower",
    "ConditionArchitecture",
    "ConditionCPUFeature",
    "ConditionCPUPressure",
    "ConditionCPUs",
    "ConditionCapability",
    "ConditionControlGroupController",
    "ConditionCredential",
    "ConditionDirectoryNotEmpty",
    "ConditionEnvironment",
    "ConditionFirmware",
    "ConditionFirstBoot",
    "ConditionGroup",
    "ConditionIOPressure",
    "ConditionKernelModuleLoaded",
    "ConditionKernelVersion",
    "ConditionMemory",
    "ConditionMemoryPressure",
    "ConditionNeedsUpdate",
    "ConditionOSRelease",
    "ConditionPathExistsGlob",
    "ConditionPathIsEncrypted",
    "ConditionPathIsMountPoint",
    "ConditionPathIsReadWrite",
    "ConditionPathIsSymbolicLink",
    "ConditionSecurity",
    "ConditionVersion",
    "ConditionVirtualization",
];

/// `[Install]`.
pub(super) const INSTALL: &[Group] = &[
    (Honoured, &["Alias", "RequiredBy", "UpheldBy", "WantedBy"]),
    (Ignored("installs nothing here: hand the other unit in as well"), &["Also"]),
    (Ignored("means nothing, as instances are always named here"), &["DefaultInstance"]),
];

/// `[Timer]`.
pub(super) const TIMER: &[Group] = &[
    (
        Honoured,
        &[
            "FixedRandomDelay",
            "OnActiveSec",
            "OnBootSec",
            "OnCalendar",
            "OnStartupSec",
            "OnUnitActiveSec",
            "OnUnitInactiveSec",
            "Persistent",
            "RandomizedDelaySec",
            "RemainAfterElapse",
            "Unit",
        ],
    ),
    (
        Ignored("allows a delay that there is not: each timer elapses at its moment"),
        &["AccuracySec"],
    ),
    (RefusedUnless(NO, CLOCK_CHANGES), &["OnClockChange", "OnTimezoneChange"]),
    (RefusedUnless(NO, WAKING), &["WakeSystem"]),
    (RefusedUnless(NO, DEFERRING), &["DeferReactivation"]),
    (RefusedUnless(&["0"], OFFSETS), &["RandomizedOffsetSec"]),
];
