//! The compared options, with the systemd property that shows each.

use fleet_unitfile::UnitType;

/// An option, and the systemd property of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedOption {
    pub(crate) section: &'static str,
    pub(crate) option: &'static str,
    pub(crate) property: &'static str,
    pub(crate) kind: Kind,
}

/// The way in which a value is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Calendar,
    Choice(&'static [&'static str]),
    Commands,
    /// The condition, as systemd names it.
    Condition(&'static str),
    Environment,
    EnvironmentFile,
    Limit,
    /// The socket type, as systemd names it.
    Listen(&'static str),
    Memory,
    Mode,
    /// The base of a timer, as systemd names it.
    Monotonic(&'static str),
    Number(i64, i64),
    Path,
    Quota,
    Span,
    /// A time span in which zero means infinity.
    Timeout,
    Text,
    Units,
    Urls,
    Variables,
    /// The watch type, as systemd names it.
    Watch(&'static str),
    WorkingDirectory,
}

macro_rules! known {
    ($($section:literal $option:literal $property:literal $kind:expr;)*) => {
        const ALL: &[ComparedOption] = &[
            $(ComparedOption {
                section: $section,
                option: $option,
                property: $property,
                kind: $kind,
            },)*
        ];
    };
}

known! {
    "Unit" "Description" "Description" Kind::Text;
    "Unit" "Documentation" "Documentation" Kind::Urls;
    "Unit" "Requires" "Requires" Kind::Units;
    "Unit" "Requisite" "Requisite" Kind::Units;
    "Unit" "Wants" "Wants" Kind::Units;
    "Unit" "BindsTo" "BindsTo" Kind::Units;
    "Unit" "PartOf" "PartOf" Kind::Units;
    "Unit" "Conflicts" "Conflicts" Kind::Units;
    "Unit" "Before" "Before" Kind::Units;
    "Unit" "After" "After" Kind::Units;
    "Unit" "OnFailure" "OnFailure" Kind::Units;
    "Unit" "OnSuccess" "OnSuccess" Kind::Units;
    "Unit" "PropagatesReloadTo" "PropagatesReloadTo" Kind::Units;
    "Unit" "ConditionPathExists" "Conditions" Kind::Condition("ConditionPathExists");
    "Unit" "ConditionPathIsDirectory" "Conditions" Kind::Condition("ConditionPathIsDirectory");
    "Unit" "ConditionFileNotEmpty" "Conditions" Kind::Condition("ConditionFileNotEmpty");
    "Unit" "AssertPathExists" "Asserts" Kind::Condition("AssertPathExists");
    "Unit" "RefuseManualStart" "RefuseManualStart" Kind::Bool;
    "Unit" "StopWhenUnneeded" "StopWhenUnneeded" Kind::Bool;
    "Unit" "AllowIsolate" "AllowIsolate" Kind::Bool;
    "Unit" "StartLimitBurst" "StartLimitBurst" Kind::Number(0, u32::MAX as i64);
    "Unit" "StartLimitIntervalSec" "StartLimitIntervalUSec" Kind::Span;
    "Unit" "CollectMode" "CollectMode" Kind::Choice(&["inactive", "inactive-or-failed"]);
    "Unit" "SourcePath" "SourcePath" Kind::Path;
    "Service" "Type" "Type" Kind::Choice(&["simple", "exec", "forking", "oneshot", "notify",
        "idle"]);
    "Service" "ExecStart" "ExecStartEx" Kind::Commands;
    "Service" "ExecStartPre" "ExecStartPreEx" Kind::Commands;
    "Service" "ExecStartPost" "ExecStartPostEx" Kind::Commands;
    "Service" "ExecCondition" "ExecConditionEx" Kind::Commands;
    "Service" "ExecReload" "ExecReloadEx" Kind::Commands;
    "Service" "ExecStop" "ExecStopEx" Kind::Commands;
    "Service" "ExecStopPost" "ExecStopPostEx" Kind::Commands;
    "Service" "Restart" "Restart" Kind::Choice(&["no", "always", "on-failure", "on-success",
        "on-abnormal", "on-watchdog", "on-abort"]);
    "Service" "RemainAfterExit" "RemainAfterExit" Kind::Bool;
    "Service" "GuessMainPID" "GuessMainPID" Kind::Bool;
    "Service" "RestartSec" "RestartUSec" Kind::Span;
    "Service" "RuntimeMaxSec" "RuntimeMaxUSec" Kind::Span;
    "Service" "TimeoutStartSec" "TimeoutStartUSec" Kind::Timeout;
    "Service" "TimeoutStopSec" "TimeoutStopUSec" Kind::Timeout;
    "Service" "Environment" "Environment" Kind::Environment;
    "Service" "EnvironmentFile" "EnvironmentFiles" Kind::EnvironmentFile;
    "Service" "PassEnvironment" "PassEnvironment" Kind::Variables;
    "Service" "WorkingDirectory" "WorkingDirectory" Kind::WorkingDirectory;
    "Service" "SyslogIdentifier" "SyslogIdentifier" Kind::Text;
    "Service" "UMask" "UMask" Kind::Mode;
    "Service" "RuntimeDirectoryMode" "RuntimeDirectoryMode" Kind::Mode;
    "Service" "Nice" "Nice" Kind::Number(-20, 19);
    "Service" "OOMScoreAdjust" "OOMScoreAdjust" Kind::Number(-1000, 1000);
    "Service" "NoNewPrivileges" "NoNewPrivileges" Kind::Bool;
    "Service" "IgnoreSIGPIPE" "IgnoreSIGPIPE" Kind::Bool;
    "Service" "LimitNOFILE" "LimitNOFILE" Kind::Limit;
    "Service" "LimitNPROC" "LimitNPROC" Kind::Limit;
    "Service" "LimitMEMLOCK" "LimitMEMLOCK" Kind::Limit;
    "Service" "MemoryMax" "MemoryMax" Kind::Memory;
    "Service" "MemoryHigh" "MemoryHigh" Kind::Memory;
    "Service" "MemoryLow" "MemoryLow" Kind::Memory;
    "Service" "CPUQuota" "CPUQuotaPerSecUSec" Kind::Quota;
    "Service" "CPUWeight" "CPUWeight" Kind::Number(1, 10_000);
    "Service" "IOWeight" "IOWeight" Kind::Number(1, 10_000);
    "Service" "KillMode" "KillMode" Kind::Choice(&["control-group", "process", "mixed", "none"]);
    "Service" "SendSIGKILL" "SendSIGKILL" Kind::Bool;
    "Slice" "MemoryMax" "MemoryMax" Kind::Memory;
    "Slice" "CPUQuota" "CPUQuotaPerSecUSec" Kind::Quota;
    "Slice" "CPUWeight" "CPUWeight" Kind::Number(1, 10_000);
    "Socket" "ListenStream" "Listen" Kind::Listen("Stream");
    "Socket" "ListenDatagram" "Listen" Kind::Listen("Datagram");
    "Socket" "ListenFIFO" "Listen" Kind::Listen("FIFO");
    "Socket" "Backlog" "Backlog" Kind::Number(0, u32::MAX as i64);
    "Socket" "SocketMode" "SocketMode" Kind::Mode;
    "Socket" "Accept" "Accept" Kind::Bool;
    "Socket" "MaxConnections" "MaxConnections" Kind::Number(0, u32::MAX as i64);
    "Socket" "ExecStartPre" "ExecStartPre" Kind::Commands;
    "Socket" "TimeoutSec" "TimeoutUSec" Kind::Timeout;
    "Timer" "OnBootSec" "TimersMonotonic" Kind::Monotonic("OnBootUSec");
    "Timer" "OnActiveSec" "TimersMonotonic" Kind::Monotonic("OnActiveUSec");
    "Timer" "OnUnitActiveSec" "TimersMonotonic" Kind::Monotonic("OnUnitActiveUSec");
    "Timer" "OnCalendar" "TimersCalendar" Kind::Calendar;
    "Timer" "AccuracySec" "AccuracyUSec" Kind::Span;
    "Timer" "RandomizedDelaySec" "RandomizedDelayUSec" Kind::Span;
    "Timer" "Persistent" "Persistent" Kind::Bool;
    "Path" "PathExists" "Paths" Kind::Watch("PathExists");
    "Path" "PathChanged" "Paths" Kind::Watch("PathChanged");
    "Path" "DirectoryNotEmpty" "Paths" Kind::Watch("DirectoryNotEmpty");
    "Path" "MakeDirectory" "MakeDirectory" Kind::Bool;
    "Path" "DirectoryMode" "DirectoryMode" Kind::Mode;
    "Mount" "What" "What" Kind::Text;
    "Mount" "Options" "Options" Kind::Text;
    "Mount" "Type" "Type" Kind::Text;
    "Mount" "LazyUnmount" "LazyUnmount" Kind::Bool;
    "Mount" "TimeoutSec" "TimeoutUSec" Kind::Timeout;
}

/// Returns the compared options of a unit type.
pub(crate) fn known(unit_type: UnitType) -> Vec<&'static ComparedOption> {
    let section = section(unit_type);
    ALL.iter().filter(|it| it.section == "Unit" || it.section == section).collect()
}

/// Returns the type-specific section, or one that all types have.
pub(crate) fn section(unit_type: UnitType) -> &'static str {
    match unit_type {
        UnitType::Service => "Service",
        UnitType::Socket => "Socket",
        UnitType::Timer => "Timer",
        UnitType::Path => "Path",
        UnitType::Mount => "Mount",
        UnitType::Slice => "Slice",
        _ => "Unit",
    }
}

/// Returns the options without which systemd refuses a unit of the type.
pub(crate) fn needed(unit_type: UnitType, name: &str) -> String {
    match unit_type {
        UnitType::Service => "[Service]\nExecStart=/bin/true\n".to_owned(),
        UnitType::Socket => "[Socket]\nListenStream=/run/x.sock\n".to_owned(),
        UnitType::Timer => "[Timer]\nOnBootSec=1h\n".to_owned(),
        UnitType::Path => "[Path]\nPathExists=/run/x\n".to_owned(),
        UnitType::Mount => {
            let stem = name.strip_suffix(".mount").unwrap_or(name);
            let place = fleet_unitfile::escape::unescape_path(stem).expect("made for a path");
            format!("[Mount]\nWhat=tmpfs\nWhere={place}\n")
        }
        UnitType::Slice => "[Slice]\n".to_owned(),
        // Otherwise it would be ordered after all units that it wants.
        _ => "[Unit]\nDefaultDependencies=no\n".to_owned(),
    }
}
