//! Deprecated options, values and paths, and their replacements.

use super::code::FindingCode;
use super::kind::Kind;
use super::value_error::{ValueError, listed, quoted};
use crate::option::OptionView;

/// Options of older systemd versions that this version warns about, with their replacements.
const OUTDATED: [(&str, &[&str]); 9] = [
    ("BlockIODeviceWeight", &["IODeviceWeight"]),
    ("BlockIOReadBandwidth", &["IOReadBandwidthMax"]),
    ("BlockIOWriteBandwidth", &["IOWriteBandwidthMax"]),
    ("CPUShares", &["CPUWeight"]),
    ("MemoryLimit", &["MemoryMax"]),
    ("RequiresOverridable", &["Requires"]),
    ("RequisiteOverridable", &["Requisite"]),
    ("StartupBlockIOWeight", &["StartupIOWeight"]),
    ("StartupCPUShares", &["StartupCPUWeight"]),
];

/// Options of older systemd versions, each with its replacements. systemd 252 still accepts these
/// options without a warning, but newer versions may refuse them.
const OLD: [(&str, &[&str]); 11] = [
    ("BindTo", &["BindsTo"]),
    ("BlockIOAccounting", &["IOAccounting"]),
    ("BlockIOWeight", &["IOWeight"]),
    ("InaccessibleDirectories", &["InaccessiblePaths"]),
    ("OnFailureIsolate", &["OnFailureJobMode"]),
    ("PermissionsStartOnly", &["+ or ! before the programs that need all rights"]),
    ("PropagateReloadFrom", &["ReloadPropagatedFrom"]),
    ("PropagateReloadTo", &["PropagatesReloadTo"]),
    ("ReadOnlyDirectories", &["ReadOnlyPaths"]),
    ("ReadWriteDirectories", &["ReadWritePaths"]),
    ("StartLimitInterval", &["StartLimitIntervalSec in [Unit]"]),
];

/// Options that systemd accepts and silently ignores, with their sections.
const WITHOUT_EFFECT: [(&str, &[&str]); 5] = [
    ("BusPolicy", &["Service"]),
    ("Capabilities", &["Service", "Socket", "Mount", "Swap"]),
    ("IgnoreOnSnapshot", &["Unit"]),
    ("NetClass", &["Service", "Socket", "Mount", "Swap", "Slice", "Scope"]),
    ("SysVStartPriority", &["Service"]),
];

/// Checks for an option that has no effect any more. The tables do not contain these.
pub(super) fn without_effect(option: OptionView<'_>) -> Option<ValueError> {
    let is_same = |(name, sections): &&(&str, &[&str])| {
        *name == option.name() && sections.contains(&option.section())
    };
    let (name, _) = WITHOUT_EFFECT.iter().find(is_same)?;
    let message = format!("{name} is an option of older versions of systemd: it has no effect");
    Some(ValueError::new(FindingCode::OldKey, message, "remove it"))
}

/// Checks for an option, or a value, of an older systemd version.
pub(super) fn outdated(option: OptionView<'_>) -> Option<ValueError> {
    let (name, value) = (option.name(), option.value());
    if let Some(error) = outdated_value(name, value) {
        return Some(error);
    }
    let find = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(old, _)| *old == name).map(|(_, others)| *others)
    };
    let (code, says, others) = match (find(&OUTDATED), find(&OLD)) {
        (Some(others), _) => (FindingCode::OutdatedKey, "newer versions ignore it", others),
        (None, others) => (FindingCode::OldKey, "newer versions have a replacement", others?),
    };
    let message = format!("{name} is an option of older versions of systemd: {says}");
    Some(ValueError::new(code, message, format!("write {}", listed(others))))
}

fn outdated_value(name: &str, value: &str) -> Option<ValueError> {
    let (message, help) = match (name, value) {
        ("KillMode", "none") => (
            "KillMode=none leaves processes behind, and systemd will remove this value".to_owned(),
            "write mixed or process",
        ),
        ("StandardOutput" | "StandardError", "syslog") => {
            let message = format!("systemd reads {name}={value} as journal");
            (message, "write journal, or remove the option")
        }
        ("StandardOutput" | "StandardError", "syslog+console") => {
            (format!("systemd reads {name}={value} as journal+console"), "write journal+console")
        }
        ("User" | "SocketUser", "nobody") => (
            "the user nobody is shared with other programs, which can access its processes"
                .to_owned(),
            "give the unit a user of its own, or write DynamicUser=yes",
        ),
        _ => return None,
    };
    Some(ValueError::new(FindingCode::OutdatedKey, message, help))
}

/// Checks for a path that systemd has moved.
pub(super) fn legacy_path(kind: Kind, option: OptionView<'_>) -> Option<ValueError> {
    use Kind::{EnvironmentFile, Listen, ListenLocal, Path, PathEach, PathTest, WorkingDirectory};
    let of_path =
        [Path, PathEach, PathTest, Listen, ListenLocal, EnvironmentFile, WorkingDirectory];
    let value = option.value();
    let path = value.trim_start_matches(['-', '|', '!', ' ']);
    let is_path = of_path.contains(&kind) || option.name() == "PIDFile";
    if !is_path || !path.starts_with("/var/run/") {
        return None;
    }
    let message = format!("{} is below /var/run, the old name of /run", quoted(path));
    let error = ValueError::new(FindingCode::OldPath, message, format!("write {}", &path[4..]));
    Some(error.at_word((value.len() - path.len(), path)))
}
