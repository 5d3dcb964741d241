//! Lists of options: which names fill the same one, and what an empty value takes back.

/// Older names of lists, each with the name that the list has by now.
const OLD: [(&str, &str); 6] = [
    ("BindTo", "BindsTo"),
    ("InaccessibleDirectories", "InaccessiblePaths"),
    ("PropagateReloadFrom", "ReloadPropagatedFrom"),
    ("PropagateReloadTo", "PropagatesReloadTo"),
    ("ReadOnlyDirectories", "ReadOnlyPaths"),
    ("ReadWriteDirectories", "ReadWritePaths"),
];

/// Options that fill one list, so that an empty value of any takes back the values of all.
const SHARED: [&[&str]; 9] = [
    &["BindPaths", "BindReadOnlyPaths"],
    &["InaccessibleDirectories", "InaccessiblePaths"],
    &["LoadCredential", "LoadCredentialEncrypted"],
    &["ReadOnlyDirectories", "ReadOnlyPaths"],
    &["ReadWriteDirectories", "ReadWritePaths"],
    &["SetCredential", "SetCredentialEncrypted"],
    &TIMERS,
    &PATHS,
    &SOCKETS,
];

/// What a timer counts from, or when it elapses.
pub(crate) const TIMERS: [&str; 6] = [
    "OnCalendar",
    "OnActiveSec",
    "OnBootSec",
    "OnStartupSec",
    "OnUnitActiveSec",
    "OnUnitInactiveSec",
];

/// What a path unit watches.
pub(crate) const PATHS: [&str; 5] =
    ["PathExists", "PathExistsGlob", "PathChanged", "PathModified", "DirectoryNotEmpty"];

/// What a socket listens on; connections can be accepted from the first two.
pub(crate) const SOCKETS: [&str; 8] = [
    "ListenStream",
    "ListenSequentialPacket",
    "ListenDatagram",
    "ListenFIFO",
    "ListenSpecial",
    "ListenNetlink",
    "ListenMessageQueue",
    "ListenUSBFunction",
];

/// Options of `[Unit]` that only ever add to what the unit has to do with.
const KEPT: [&str; 23] = [
    "After",
    "Before",
    "BindTo",
    "BindsTo",
    "Conflicts",
    "JoinsNamespaceOf",
    "OnFailure",
    "OnSuccess",
    "PartOf",
    "PropagateReloadFrom",
    "PropagateReloadTo",
    "PropagatesReloadTo",
    "PropagatesStopTo",
    "ReloadPropagatedFrom",
    "Requires",
    "RequiresMountsFor",
    "RequiresOverridable",
    "Requisite",
    "RequisiteOverridable",
    "StopPropagatedFrom",
    "Upholds",
    "Wants",
    "WantsMountsFor",
];

/// Both names of a list that has an older one, or the same name twice.
pub(crate) fn names_of_list<'a>(section: &str, name: &'a str) -> [&'a str; 2] {
    if !matches!(section, "Mount" | "Service" | "Socket" | "Swap" | "Unit") {
        return [name; 2];
    }
    let other = OLD.iter().find_map(|(old, new)| match name {
        _ if name == *old => Some(*new),
        _ if name == *new => Some(*old),
        _ => None,
    });
    [name, other.unwrap_or(name)]
}

/// Whether an empty value of one option takes back the values of another of its section.
pub(crate) fn takes_back(section: &str, empty: &str, other: &str) -> bool {
    match section {
        "Unit" if KEPT.contains(&other) => false,
        "Service" if other == "Sockets" => false,
        "Install" if other == "Also" => false,
        _ if empty == other => true,
        "Unit" => ["Condition", "Assert"]
            .iter()
            .any(|start| empty.starts_with(start) && other.starts_with(start)),
        "Mount" | "Path" | "Service" | "Socket" | "Swap" | "Timer" => {
            SHARED.iter().any(|names| names.contains(&empty) && names.contains(&other))
        }
        _ => false,
    }
}
