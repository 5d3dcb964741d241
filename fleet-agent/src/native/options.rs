//! Pure: no I/O, no clock. Which options of a unit file the supervisor honours, which mean nothing
//! to it, and which it refuses.
//!
//! An option is *inert* when leaving it out changes neither what the process may do nor how long
//! it runs: words for people, the order between units (fleet orders nothing between units of one
//! machine), and tuning of systemd's own work. Everything else that is not honoured is refused: a
//! unit that asks to be confined must not run unconfined.

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The supervisor does as it says.
    Honoured,
    /// It speaks to people, or to somebody else, and means nothing to any service manager.
    Aside,
    /// It means nothing here, though it would under systemd.
    Inert,
    /// It means nothing here as long as it says no.
    InertIfOff,
    /// It cannot be obeyed, for this reason and with this advice.
    Refused(&'static str),
}

/// Options of `[Unit]` that the supervisor honours.
const UNIT: [&str; 3] = ["StartLimitBurst", "StartLimitInterval", "StartLimitIntervalSec"];

/// Options of `[Unit]` that mean nothing here.
const UNIT_INERT: [&str; 23] = [
    "After",
    "AllowIsolate",
    "Before",
    "BindsTo",
    "CollectMode",
    "Conflicts",
    "DefaultDependencies",
    "IgnoreOnIsolate",
    "JobTimeoutSec",
    "JoinsNamespaceOf",
    "OnFailure",
    "OnSuccess",
    "PartOf",
    "PropagatesReloadTo",
    "RefuseManualStart",
    "RefuseManualStop",
    "ReloadPropagatedFrom",
    "Requires",
    "RequiresMountsFor",
    "Requisite",
    "SourcePath",
    "StopWhenUnneeded",
    "Wants",
];

/// Options of `[Service]` that the supervisor honours.
const SERVICE: [&str; 43] = [
    "Environment",
    "EnvironmentFile",
    "ExecReload",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "FinalKillSignal",
    "Group",
    "KillMode",
    "KillSignal",
    "PassEnvironment",
    "RemainAfterExit",
    "Restart",
    "RestartForceExitStatus",
    "RestartPreventExitStatus",
    "ReloadSignal",
    "RestartSec",
    "SendSIGHUP",
    "SendSIGKILL",
    "StandardError",
    "StandardInput",
    "StandardOutput",
    "StartLimitBurst",
    "StartLimitInterval",
    "SuccessExitStatus",
    "TimeoutAbortSec",
    "TimeoutSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Type",
    "UMask",
    "UnsetEnvironment",
    "User",
    "WatchdogSignal",
    "WorkingDirectory",
    // Read so that their values are checked, although only one of them is possible.
    "NotifyAccess",
    "StartLimitAction",
    "WatchdogSec",
    "RuntimeMaxSec",
    "PIDFile",
    "BusName",
];

/// Options of `[Service]` that mean nothing here.
const SERVICE_INERT: [&str; 11] = [
    "CPUAccounting",
    "GuessMainPID",
    "IOAccounting",
    "LogLevelMax",
    "LogRateLimitBurst",
    "LogRateLimitIntervalSec",
    "MemoryAccounting",
    "SyslogFacility",
    "SyslogIdentifier",
    "SyslogLevel",
    "TasksAccounting",
];

/// Options of `[Service]` that confine a process when they say yes.
const SWITCHES: [&str; 24] = [
    "Delegate",
    "DynamicUser",
    "IgnoreSIGPIPE",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "NoNewPrivileges",
    "NonBlocking",
    "PermissionsStartOnly",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateNetwork",
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
    "RestrictRealtime",
    "RestrictSUIDSGID",
];

const UNKNOWN: &str = "the native service manager does not know this option: \
                       take it out, or run the unit under systemd";
const CONFINES: &str = "the native service manager cannot confine processes in this way: \
                        take the option out or set it to no, or run the unit under systemd";
const CONDITION: &str = "the native service manager checks no conditions: take the option out, \
                         or make the check in an ExecStartPre= command";

/// What becomes of the option of that name in that section.
pub(crate) fn standing(section: &str, name: &str) -> Standing {
    if section.starts_with("X-") || name.starts_with("X-") {
        return Standing::Aside;
    }
    match section {
        "Install" => Standing::Inert,
        "Unit" if ["Description", "Documentation"].contains(&name) => Standing::Aside,
        "Unit" if UNIT.contains(&name) => Standing::Honoured,
        "Unit" if UNIT_INERT.contains(&name) => Standing::Inert,
        "Unit" if name.starts_with("Condition") || name.starts_with("Assert") => {
            Standing::Refused(CONDITION)
        }
        "Service" if SERVICE.contains(&name) => Standing::Honoured,
        "Service" if SERVICE_INERT.contains(&name) => Standing::Inert,
        "Service" if SWITCHES.contains(&name) => Standing::InertIfOff,
        _ => Standing::Refused(UNKNOWN),
    }
}

/// Why an option of the kind [`Standing::InertIfOff`] is refused when it does not say no.
pub(crate) const fn confines() -> &'static str {
    CONFINES
}

/// Every option that is honoured, with its section.
#[cfg(test)]
pub(crate) fn every_honoured() -> impl Iterator<Item = (&'static str, &'static str)> {
    let unit = UNIT.into_iter().map(|name| ("Unit", name));
    unit.chain(SERVICE.into_iter().map(|name| ("Service", name)))
}
