//! What systemd takes, and asks to write in another way, or what is better written so.

use super::code::FindingCode;
use super::flaw::{Flaw, listed, quoted};
use super::kind::Kind;
use crate::option::OptionView;

/// Options of an older systemd that this one warns of, and what to write in their place.
const OUTDATED: [(&str, &[&str]); 10] = [
    ("BlockIODeviceWeight", &["IODeviceWeight"]),
    ("BlockIOReadBandwidth", &["IOReadBandwidthMax"]),
    ("BlockIOWriteBandwidth", &["IOWriteBandwidthMax"]),
    ("CPUShares", &["CPUWeight"]),
    ("MemoryLimit", &["MemoryMax"]),
    ("OnFailureIsolate", &["OnFailureJobMode"]),
    ("RequiresOverridable", &["Requires"]),
    ("RequisiteOverridable", &["Requisite"]),
    ("StartupBlockIOWeight", &["StartupIOWeight"]),
    ("StartupCPUShares", &["StartupCPUWeight"]),
];

/// Options of an older systemd that this one takes without a word, and newer ones may not.
const OLD: [(&str, &[&str]); 10] = [
    ("BindTo", &["BindsTo"]),
    ("BlockIOAccounting", &["IOAccounting"]),
    ("BlockIOWeight", &["IOWeight"]),
    ("InaccessibleDirectories", &["InaccessiblePaths"]),
    ("PermissionsStartOnly", &["+ or ! before the programs that need all rights"]),
    ("PropagateReloadFrom", &["ReloadPropagatedFrom"]),
    ("PropagateReloadTo", &["PropagatesReloadTo"]),
    ("ReadOnlyDirectories", &["ReadOnlyPaths"]),
    ("ReadWriteDirectories", &["ReadWritePaths"]),
    ("StartLimitInterval", &["StartLimitIntervalSec in [Unit]"]),
];

/// What to say of an option, or a value of it, that is from an older systemd.
pub(super) fn outdated(option: OptionView<'_>) -> Option<Flaw> {
    let (name, value) = (option.name(), option.value());
    if let Some(flaw) = outdated_value(name, value) {
        return Some(flaw);
    }
    let find = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(old, _)| *old == name).map(|(_, others)| *others)
    };
    let (code, says, others) = match (find(&OUTDATED), find(&OLD)) {
        (Some(others), _) => (FindingCode::OutdatedKey, "a newer one ignores it", others),
        (None, others) => (FindingCode::OldKey, "there is another way by now", others?),
    };
    let message = format!("{name} is from an older systemd, and {says}");
    Some(Flaw::whole(code, message, format!("write {}", listed(others))))
}

fn outdated_value(name: &str, value: &str) -> Option<Flaw> {
    let (message, help) = match (name, value) {
        ("KillMode", "none") => (
            "KillMode=none leaves processes behind, and is to go from systemd".to_owned(),
            "write mixed or process",
        ),
        ("StandardOutput" | "StandardError", "syslog") => {
            (format!("{name}={value} is taken for journal"), "write journal, or leave it out")
        }
        ("StandardOutput" | "StandardError", "syslog+console") => {
            (format!("{name}={value} is taken for journal+console"), "write journal+console")
        }
        ("User" | "SocketUser", "nobody") => (
            "the user nobody is shared with others, who can reach what it runs".to_owned(),
            "name a user of its own, or write DynamicUser=yes",
        ),
        _ => return None,
    };
    Some(Flaw::whole(FindingCode::OutdatedKey, message, help))
}

/// What to say of a path that systemd has moved.
pub(super) fn legacy_path(kind: Kind, option: OptionView<'_>) -> Option<Flaw> {
    use Kind::{EnvironmentFile, Listen, ListenLocal, Path, PathEach, PathTest, WorkingDirectory};
    let of_path =
        [Path, PathEach, PathTest, Listen, ListenLocal, EnvironmentFile, WorkingDirectory];
    let value = option.value();
    let path = value.trim_start_matches(['-', '|', '!', ' ']);
    let is_path = of_path.contains(&kind) || option.name() == "PIDFile";
    if !is_path || !path.starts_with("/var/run/") {
        return None;
    }
    let message = format!("{} lies below an old place for /run", quoted(path));
    let flaw = Flaw::whole(FindingCode::OldPath, message, format!("write {}", &path[4..]));
    Some(flaw.of_word((value.len() - path.len(), path)))
}
