//! Pure: a cache that parses equal requirements once and shares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Requirements, Strictness};
use fleet_unitfile::{UnitFile, UnitName};

use super::view::fault;

/// Recently parsed requirements, by their text. The cache saves time and memory, because most units
/// of a cluster share a few different requirements.
#[derive(Debug, Clone, Default)]
pub(super) struct RequirementsCache {
    /// Requirements of some unit with this text.
    known: BTreeMap<String, Arc<Requirements>>,
    /// Requirements that do not depend on the unit's name; `None` if they do.
    shared: BTreeMap<String, Option<Arc<Requirements>>>,
}

/// Maximum number of entries in each map. A map that exceeds it is cleared, and then fills up
/// again.
const MAX_ENTRIES: usize = 1024;

/// Section of the unit file with the requirements.
const SECTION: &str = "X-Fleet";

impl RequirementsCache {
    /// Parses the requirements of a file once for all units that use it. Returns `None` if the
    /// requirements depend on the unit's name or cannot be read.
    pub(super) fn read_shared(&mut self, file: &UnitFile) -> Option<Arc<Requirements>> {
        let text = text(file);
        if let Some(known) = self.shared.get(&text) {
            return known.clone();
        }
        let requirements =
            parse_for_any_name(file, &text).map(|read| self.intern(text.clone(), read));
        if self.shared.len() >= MAX_ENTRIES {
            self.shared.clear();
        }
        self.shared.insert(text, requirements.clone());
        requirements
    }

    /// Parses the requirements of a unit's file. Parsing is lenient, because the rules may have
    /// become stricter since the cluster accepted the file.
    pub(super) fn read(
        &mut self,
        name: &UnitName,
        file: &UnitFile,
    ) -> Result<Arc<Requirements>, Fault> {
        let parsed = Requirements::parse(name, file, Strictness::Warn)
            .map_err(|error| fault("the unit's requirements", &error))?;
        Ok(self.intern(text(file), parsed.requirements))
    }

    /// Returns the cached requirements of this text if they equal `requirements`. Otherwise caches
    /// `requirements` for this text, and returns them. The comparison is necessary, because the
    /// same text may have another meaning for another unit (`%p` inserts a part of the unit's
    /// name).
    fn intern(&mut self, text: String, requirements: Requirements) -> Arc<Requirements> {
        if let Some(known) = self.known.get(&text).filter(|known| ***known == requirements) {
            return known.clone();
        }
        if self.known.len() >= MAX_ENTRIES {
            self.known.clear();
        }
        let requirements = Arc::new(requirements);
        self.known.insert(text, requirements.clone());
        requirements
    }
}

/// Parses requirements that are the same for every unit name; returns `None` for all others. The
/// name matters in two cases only: a specifier such as `%p` inserts the name, and the values of
/// `MachineOf=` are checked against it.
fn parse_for_any_name(file: &UnitFile, text: &str) -> Option<Requirements> {
    let any_name = UnitName::parse("a.service").ok().filter(|_| !text.contains('%'))?;
    let parsed = Requirements::parse(&any_name, file, Strictness::Warn).ok()?;
    parsed.requirements.machine_of.is_empty().then_some(parsed.requirements)
}

/// Returns the options that requirements are parsed from, as one text. Different lists of options
/// give different texts, so the text can be a cache key.
fn text(file: &UnitFile) -> String {
    let mut text = String::new();
    for option in file.options().filter(|option| option.section() == SECTION) {
        text.extend([option.name(), "=", option.value(), "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cache: &mut RequirementsCache, name: &str, text: &str) -> Arc<Requirements> {
        let file = UnitFile::parse(text).unwrap();
        cache.read(&name.parse().unwrap(), &file).unwrap()
    }

    #[test]
    fn only_equal_requirements_are_shared() {
        let cache = &mut RequirementsCache::default();
        let (eu, own) = ("[X-Fleet]\nMachineMetadata=region=eu\n", "[X-Fleet]\nConflicts=%p@*\n");
        let one = read(cache, "a@1.service", eu);
        let other = read(cache, "b@1.service", &format!("[Unit]\nDescription=b\n{eu}"));
        assert!(Arc::ptr_eq(&one, &other));
        let one = read(cache, "a@1.service", own);
        assert!(Arc::ptr_eq(&one, &read(cache, "a@2.service", own)));
        let other = read(cache, "b@1.service", own);
        assert_eq!(one.conflicts[0].to_string(), "a@*");
        assert_eq!(other.conflicts[0].to_string(), "b@*");
        assert_eq!(*read(cache, "a.service", "[Unit]\n"), Requirements::default());
    }

    /// Shared requirements equal those that each unit would parse.
    #[test]
    fn name_dependent_requirements_are_not_shared() {
        let table = [
            ("", true),
            ("MachineMetadata=region=eu\nConflicts=a*\n", true),
            ("MaxPerMachine=2\nGlobal=false\n", true),
            ("Frobnicate=1\n", true),
            ("Conflicts=%p-*\n", false),
            ("MachineMetadata=rack=%i\n", false),
            ("MachineOf=a.service\n", false),
            ("MachineOf=b@1.service\n", false),
            ("MachineID=a\nMachineID=b\n", false),
        ];
        let cache = &mut RequirementsCache::default();
        for (text, shared_by_name) in table {
            let file = UnitFile::parse(format!("[X-Fleet]\n{text}")).unwrap();
            for _ in 0..2 {
                let found = cache.read_shared(&file);
                assert_eq!(found.is_some(), shared_by_name, "{text}");
                for name in ["a.service", "b@1.service", "b@.service"] {
                    let own = cache.read(&name.parse().unwrap(), &file);
                    assert!(found.iter().all(|found| own.as_ref() == Ok(found)), "{name}: {text}");
                }
            }
        }
    }

    #[test]
    fn requirements_cache_is_bounded() {
        let cache = &mut RequirementsCache::default();
        for number in 0..3 * MAX_ENTRIES {
            let text = format!("[X-Fleet]\nMachineMetadata=rack={number}\n");
            read(cache, "a.service", &text);
            cache.read_shared(&UnitFile::parse(text).unwrap());
            assert!(cache.known.len() <= MAX_ENTRIES && cache.shared.len() <= MAX_ENTRIES);
        }
    }
}
