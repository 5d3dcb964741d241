//! Semantics of list options: which of them share a list, and which lists an empty value resets.

/// Older names of lists, each with its current name.
const OLD_NAMES: [(&str, &str); 6] = [
    ("BindTo", "BindsTo"),
    ("InaccessibleDirectories", "InaccessiblePaths"),
    ("PropagateReloadFrom", "ReloadPropagatedFrom"),
    ("PropagateReloadTo", "PropagatesReloadTo"),
    ("ReadOnlyDirectories", "ReadOnlyPaths"),
    ("ReadWriteDirectories", "ReadWritePaths"),
];

/// Groups of options that fill the same list. An empty value of one of them resets the whole list.
const SHARED_LISTS: [&[&str]; 9] = [
    &["BindPaths", "BindReadOnlyPaths"],
    &["InaccessibleDirectories", "InaccessiblePaths"],
    &["LoadCredential", "LoadCredentialEncrypted"],
    &["ReadOnlyDirectories", "ReadOnlyPaths"],
    &["ReadWriteDirectories", "ReadWritePaths"],
    &["SetCredential", "SetCredentialEncrypted"],
    &TIMER_TRIGGERS,
    &PATH_TRIGGERS,
    &SOCKET_LISTENERS,
];

/// The options of a timer that set its triggers.
pub(crate) const TIMER_TRIGGERS: [&str; 6] = [
    "OnCalendar",
    "OnActiveSec",
    "OnBootSec",
    "OnStartupSec",
    "OnUnitActiveSec",
    "OnUnitInactiveSec",
];

/// The conditions that a path unit watches.
pub(crate) const PATH_TRIGGERS: [&str; 5] =
    ["PathExists", "PathExistsGlob", "PathChanged", "PathModified", "DirectoryNotEmpty"];

/// The options of a socket that set its addresses. `Accept=yes` is possible only for the first two,
/// because they use connections.
pub(crate) const SOCKET_LISTENERS: [&str; 8] = [
    "ListenStream",
    "ListenSequentialPacket",
    "ListenDatagram",
    "ListenFIFO",
    "ListenSpecial",
    "ListenNetlink",
    "ListenMessageQueue",
    "ListenUSBFunction",
];

/// Dependency options of `[Unit]`, which an empty value never resets.
const NEVER_RESET: [&str; 23] = [
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

/// Returns `name` and the other name, older or newer, of the same list. Returns `name` twice if the
/// list has only this name.
pub(crate) fn names_of_list<'a>(section: &str, name: &'a str) -> [&'a str; 2] {
    if !matches!(section, "Mount" | "Service" | "Socket" | "Swap" | "Unit") {
        return [name; 2];
    }
    let other = OLD_NAMES.iter().find_map(|(old, new)| match name {
        _ if name == *old => Some(*new),
        _ if name == *new => Some(*old),
        _ => None,
    });
    [name, other.unwrap_or(name)]
}

/// Returns `true` if an empty value of the option `empty` resets the values of the option `other`
/// in the same section.
pub(crate) fn resets(section: &str, empty: &str, other: &str) -> bool {
    match section {
        "Unit" if NEVER_RESET.contains(&other) => false,
        "Service" if other == "Sockets" => false,
        "Install" if other == "Also" => false,
        _ if empty == other => true,
        "Unit" => ["Condition", "Assert"]
            .iter()
            .any(|start| empty.starts_with(start) && other.starts_with(start)),
        "Mount" | "Path" | "Service" | "Socket" | "Swap" | "Timer" => {
            SHARED_LISTS.iter().any(|names| names.contains(&empty) && names.contains(&other))
        }
        _ => false,
    }
}
