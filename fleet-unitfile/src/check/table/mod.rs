//! All directives of systemd, by section, with the kind of each value.

mod sections;
mod shared;

use super::kind::Kind;
use super::version::SystemdVersion;
use crate::unit_type::UnitType;

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

/// Returns the names of all sections.
pub(super) fn section_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|(name, _)| *name)
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
    let found = SECTIONS.iter().find(|(name, _)| *name == section);
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

/// Returns all directives that [`check`](super::check) knows, section by section.
///
/// ```
/// let names: Vec<_> = fleet_unitfile::directives()
///     .filter(|directive| directive.section == "Automount" && !directive.is_newer)
///     .map(|directive| directive.name)
///     .collect();
/// assert_eq!(names, ["DirectoryMode", "ExtraOptions", "TimeoutIdleSec", "Where"]);
/// ```
pub fn directives() -> impl Iterator<Item = Directive> {
    section_names().flat_map(|section| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_without_duplicates() {
        for (section, tables) in SECTIONS {
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
