//! All directives of systemd, by section, with the kind of each value and the versions that know
//! it. Also the options of podman's Quadlet.

mod quadlet;
mod sections;
mod shared;

use std::fmt;
use std::str::FromStr;

use crate::check::finding::{FindingCode, ValueError};
use crate::check::kind::Kind;
use crate::check::{command, specifiers};
use crate::file::option::OptionView;
use crate::name::UnitType;
use crate::values::size::integer;

/// Names and value kinds, sorted by name.
pub(super) type Table = &'static [(&'static str, Kind)];

/// All sections that systemd reads, with the tables of their directives.
const SECTIONS: [(&str, &[Table]); 14] = [
    ("Automount", &[sections::AUTOMOUNT]),
    ("Device", &[]),
    ("Install", &[sections::INSTALL]),
    ("Mount", &[sections::MOUNT, shared::EXEC, shared::CGROUP, shared::KILL]),
    ("Path", &[sections::PATH]),
    ("Scope", &[sections::SCOPE, shared::CGROUP, shared::KILL]),
    ("Service", &[sections::SERVICE, shared::EXEC, shared::CGROUP, shared::KILL]),
    ("Slice", &[sections::SLICE, shared::CGROUP]),
    ("Socket", &[sections::SOCKET, shared::EXEC, shared::CGROUP, shared::KILL]),
    ("Swap", &[sections::SWAP, shared::EXEC, shared::CGROUP, shared::KILL]),
    ("Target", &[]),
    ("Timer", &[sections::TIMER]),
    ("Unit", &[sections::UNIT]),
    ("BusName", &[]),
];

/// Returns the type-specific section; `None` for snapshots, which have none.
pub(super) const fn own_section(unit_type: UnitType) -> Option<&'static str> {
    Some(match unit_type {
        UnitType::Automount => "Automount",
        UnitType::Busname => "BusName",
        UnitType::Container => "Container",
        UnitType::Device => "Device",
        UnitType::Mount => "Mount",
        UnitType::Path => "Path",
        UnitType::Scope => "Scope",
        UnitType::Service => "Service",
        UnitType::Slice => "Slice",
        UnitType::Snapshot => return None,
        UnitType::Socket => "Socket",
        UnitType::Swap => "Swap",
        UnitType::Target => "Target",
        UnitType::Timer => "Timer",
    })
}

/// Returns the sections that are read in a unit of a type, the type-specific one first.
pub(super) fn sections_of(unit_type: UnitType) -> impl Iterator<Item = &'static str> + Clone {
    let more: &[&str] = match unit_type {
        UnitType::Container => &["Service", "Quadlet", "Unit", "Install"],
        _ => &["Unit", "Install"],
    };
    own_section(unit_type).into_iter().chain(more.iter().copied())
}

/// Returns the names of all sections, those of systemd first.
pub(super) fn section_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().chain(&quadlet::SECTIONS).map(|(name, _)| *name)
}

/// Returns `true` for a section that podman reads instead of systemd.
pub(super) fn is_of_podman(section: &str) -> bool {
    quadlet::SECTIONS.iter().any(|(name, _)| *name == section)
}

/// Returns the kind of value that a directive takes, or `None` if the section has no directive with
/// that name.
pub(super) fn kind(section: &str, name: &str) -> Option<Kind> {
    tables(section).iter().find_map(|table| {
        let at = table.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(table[at].1)
    })
}

/// Returns `true` for the section `[BusName]`. It belongs to older systemd versions, so the tables
/// do not list its directives.
pub(super) fn has_unlisted_directives(section: &str) -> bool {
    section == "BusName"
}

/// Returns the names of all directives of a section, table by table.
pub(super) fn names(section: &str) -> impl Iterator<Item = &'static str> {
    tables(section).iter().flat_map(|table| table.iter().map(|(name, _)| *name))
}

fn tables(section: &str) -> &'static [Table] {
    let found = SECTIONS.iter().chain(&quadlet::SECTIONS).find(|(name, _)| *name == section);
    found.map_or(&[], |(_, tables)| tables)
}

/// Returns `true` if only systemd versions newer than the version of the tables know a directive.
pub(super) fn is_newer(name: &str) -> bool {
    since(name).is_some()
}

/// Returns the first version that knows a directive; `None` if that of the tables does.
pub(super) fn since(name: &str) -> Option<SystemdVersion> {
    find(sections::NEWER, name)
}

/// Returns the first version that does not know a directive any more.
pub(super) fn until(name: &str) -> Option<SystemdVersion> {
    find(sections::REMOVED, name)
}

fn find(versions: &[(&str, u16)], name: &str) -> Option<SystemdVersion> {
    let at = versions.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(SystemdVersion::new(versions[at].1))
}

/// A directive: an option that systemd knows in a section.
///
/// If several sections share an option, each of them has a directive of its own for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Directive {
    /// The section, such as `Service`.
    pub section: &'static str,
    /// The name, such as `ExecStart`.
    pub name: &'static str,
    /// Whether only a systemd version newer than [`directives_version`] knows it.
    pub is_newer: bool,
    /// The first version that knows it; `None` if [`directives_version`] does.
    pub since: Option<SystemdVersion>,
    /// The first version that does not know it any more.
    pub until: Option<SystemdVersion>,
}

/// Returns all directives of systemd that [`UnitFile::check`](crate::UnitFile::check) knows,
/// section by section.
///
/// ```
/// let names: Vec<_> = fleet_unitfile::check::directives()
///     .filter(|directive| directive.section == "Automount" && !directive.is_newer)
///     .map(|directive| directive.name)
///     .collect();
/// assert_eq!(names, ["DirectoryMode", "ExtraOptions", "TimeoutIdleSec", "Where"]);
/// ```
pub fn directives() -> impl Iterator<Item = Directive> {
    SECTIONS.iter().flat_map(|(section, _)| {
        names(section).map(move |name| {
            let (since, until) = (since(name), until(name));
            Directive { section, name, is_newer: since.is_some(), since, until }
        })
    })
}

/// Returns the systemd version of the built-in list of directives.
pub fn directives_version() -> &'static str {
    sections::VERSION
}

/// A major version of systemd, such as 252.
///
/// ```
/// use fleet_unitfile::check::SystemdVersion;
///
/// let version: SystemdVersion = "systemd 252 (252.38-1~deb12u1)".parse()?;
/// assert_eq!(version, SystemdVersion::new(252));
/// assert_eq!("v257.3".parse(), Ok(SystemdVersion::new(257)));
/// # Ok::<(), fleet_unitfile::check::SystemdVersionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemdVersion(u16);

impl SystemdVersion {
    /// Makes a version from its major number.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the major number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for SystemdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SystemdVersion {
    type Err = SystemdVersionError;

    /// Parses a major number, which may begin with `v` or `systemd `, and may have further parts
    /// after it. The first line that `systemctl --version` prints is such a text.
    fn from_str(text: &str) -> Result<Self, SystemdVersionError> {
        let bare = text.strip_prefix("systemd ").unwrap_or(text);
        let bare = bare.strip_prefix('v').unwrap_or(bare);
        let end = bare.find(|c: char| !c.is_ascii_digit()).unwrap_or(bare.len());
        let is_separated = !bare[end..].starts_with(|c: char| c.is_ascii_alphabetic());
        let number = bare[..end].parse().ok().filter(|_| is_separated);
        number.map(Self).ok_or_else(|| SystemdVersionError(text.chars().take(40).collect()))
    }
}

/// Error for a text that is not a version of systemd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of systemd: write a number such as 252")]
pub struct SystemdVersionError(String);

/// Words of values that versions after that of the tables added: options, words, first version. A
/// word that ends in a colon has text after it. If the first version is not certain, an earlier one
/// is given, so that no value is reported wrongly.
const VALUES: &[(&[&str], &[&str], u16)] = &[
    (&["Type"], &["notify-reload"], 253),
    (ACTIONS, &["kexec", "kexec-force", "halt", "halt-force", "halt-immediate"], 253),
    (ACTIONS, &["soft-reboot", "soft-reboot-force"], 254),
    (&["OnFailureJobMode", "OnSuccessJobMode"], &["restart-dependencies"], 253),
    (&["OnFailureJobMode", "OnSuccessJobMode"], &["lenient"], 258),
    (
        &["ListenStream", "ListenDatagram", "ListenSequentialPacket"],
        &["vsock-stream:", "vsock-dgram:", "vsock-seqpacket:"],
        254,
    ),
    (&["PrivateTmp"], &["connected", "disconnected"], 257),
    (&["PrivateUsers"], &["self", "identity", "full"], 257),
    (&["PrivateUsers"], &["managed"], 258),
    (&["ProtectControlGroups"], &["private", "strict"], 257),
    (&["ProtectHostname"], &["private"], 257),
    (&["ProtectHostname"], &["private:", "yes:"], 258),
    (&["RestartMode"], &["debug"], 257),
    (&["SocketProtocol"], &["mptcp"], 257),
    (&["CPUSchedulingPolicy"], &["ext"], 257),
    (&["NUMAPolicy"], &["preferred-many", "weighted-interleave"], 262),
];

const ACTIONS: &[&str] =
    &["FailureAction", "SuccessAction", "JobTimeoutAction", "StartLimitAction"];

/// The first version that expands `%D`.
const SHARED_DATA: SystemdVersion = SystemdVersion(256);

/// The first version that runs a command by a shell after the prefix `|`.
const SHELL_PREFIX: SystemdVersion = SystemdVersion(258);

/// The first version that reads a size with a unit in `MessageQueueMessageSize=`.
const QUEUE_SIZE: SystemdVersion = SystemdVersion(262);

/// Checks that a version of systemd knows an option.
pub(super) fn name_in_version(
    option: OptionView<'_>,
    version: SystemdVersion,
) -> Option<ValueError> {
    let name = option.name();
    if let Some(since) = since(name).filter(|since| version < *since) {
        let message = format!("systemd {version} has no option {name}, which is new in {since}");
        let help = format!("remove it, or run the unit with systemd {since} or later");
        return Some(ValueError::new(FindingCode::TooNew, message, help));
    }
    let until = until(name).filter(|until| version >= *until)?;
    let message = format!("systemd {version} has no option {name}, which {until} has removed");
    Some(ValueError::new(FindingCode::Removed, message, "remove it"))
}

/// Checks that a version of systemd knows a value of an option that it knows.
pub(super) fn value_in_version(
    kind: Kind,
    option: OptionView<'_>,
    version: SystemdVersion,
) -> Option<ValueError> {
    let (name, value) = (option.name(), option.value());
    let is_same = |word: &&&str| match word.strip_suffix(':') {
        Some(_) => value.starts_with(**word),
        None => value == **word,
    };
    let word = VALUES.iter().find_map(|(options, words, since)| {
        let word = words.iter().find(is_same).filter(|_| options.contains(&name))?;
        Some((*word, SystemdVersion(*since)))
    });
    if let Some((word, since)) = word.filter(|(_, since)| version < *since) {
        return Some(too_new(&format!("\"{word}\""), version, since));
    }
    if version < SHARED_DATA
        && let Some((code, at)) = specifiers::shared_data(kind, value)
    {
        return Some(ValueError { code, at, ..too_new("\"%D\"", version, SHARED_DATA) });
    }
    if version < SHELL_PREFIX
        && kind == Kind::Command
        && let Some(at) = command::shell_prefix(value)
    {
        let error = too_new("the prefix |", version, SHELL_PREFIX);
        // Older versions read the prefix as part of the path.
        let code = command::code_without_shell(value).unwrap_or(error.code);
        return Some(ValueError { code, at: at..at + 1, ..error });
    }
    let is_size = name == "MessageQueueMessageSize" && integer(value).is_none();
    (version < QUEUE_SIZE && is_size && !value.is_empty())
        .then(|| too_new("a size with a unit", version, QUEUE_SIZE))
}

fn too_new(what: &str, version: SystemdVersion, since: SystemdVersion) -> ValueError {
    let message = format!("systemd {version} does not know {what}, which is new in {since}");
    let help = format!("write another value, or run the unit with systemd {since} or later");
    ValueError::new(FindingCode::TooNew, message, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_without_duplicates() {
        for (section, tables) in SECTIONS.into_iter().chain(quadlet::SECTIONS) {
            for table in tables {
                assert!(table.is_sorted_by(|a, b| a.0 < b.0), "{section}");
            }
            let mut all: Vec<_> = names(section).collect();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            assert_eq!(all.len(), count, "{section}");
        }
    }

    #[test]
    fn shared_directives_are_in_their_sections_only() {
        assert_eq!(kind("Service", "Nice"), kind("Swap", "Nice"));
        assert_eq!(kind("Slice", "Nice"), None);
        assert!(kind("Slice", "MemoryMax").is_some());
        assert_eq!(kind("Service", "memorymax"), None);
        assert_eq!(kind("Nothing", "Nice"), None);
    }
}
