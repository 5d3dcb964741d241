//! Pure: the requirements of units, read once and held once where they are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Fault, Requirements, Strictness};
use fleet_unitfile::{UnitFile, UnitName};

use super::view::fault;

/// Requirements that were read of late, by the text that they were read from. Most units of a
/// cluster ask for one of a few things.
#[derive(Debug, Clone, Default)]
pub(super) struct RequirementsCache {
    /// Those of some unit.
    known: BTreeMap<String, Arc<Requirements>>,
    /// Those that no unit's name has a part in; nothing where it has.
    shared: BTreeMap<String, Option<Arc<Requirements>>>,
}

/// How many are kept of each. Beyond that all are forgotten, and those that come again are held
/// once more.
const MAX_ENTRIES: usize = 1024;

/// The section that requirements are read from.
const SECTION: &str = "X-Fleet";

impl RequirementsCache {
    /// What a file cache of whichever unit has it; nothing if that follows from the name, too,
    /// or cannot be understood.
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

    /// Reads what the file of a unit cache. What was accepted once is read as leniently as can
    /// be: rules may have become stricter.
    pub(super) fn read(
        &mut self,
        name: &UnitName,
        file: &UnitFile,
    ) -> Result<Arc<Requirements>, Fault> {
        let parsed = Requirements::parse(name, file, Strictness::Warn)
            .map_err(|error| fault("the unit's requirements", &error))?;
        Ok(self.intern(text(file), parsed.requirements))
    }

    /// The text does not say everything: the same one may mean another thing in another unit.
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

/// A name gets into requirements by specifiers alone, and only `MachineOf=` is held against it.
fn parse_for_any_name(file: &UnitFile, text: &str) -> Option<Requirements> {
    let any_name = UnitName::parse("a.service").ok().filter(|_| !text.contains('%'))?;
    let parsed = Requirements::parse(&any_name, file, Strictness::Warn).ok()?;
    parsed.requirements.machine_of.is_empty().then_some(parsed.requirements)
}

/// What requirements follow from, but for the unit's name. No two lists of options have one text.
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
    fn only_what_is_the_same_is_shared() {
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

    /// What is taken to be the same for any unit is what each would read for itself.
    #[test]
    fn what_names_have_a_part_in_is_read_for_each() {
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
    fn not_all_is_kept_for_ever() {
        let cache = &mut RequirementsCache::default();
        for number in 0..3 * MAX_ENTRIES {
            let text = format!("[X-Fleet]\nMachineMetadata=rack={number}\n");
            read(cache, "a.service", &text);
            cache.read_shared(&UnitFile::parse(text).unwrap());
            assert!(cache.known.len() <= MAX_ENTRIES && cache.shared.len() <= MAX_ENTRIES);
        }
    }
}
