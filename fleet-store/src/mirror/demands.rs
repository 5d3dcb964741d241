//! Pure: the requirements of units, read once and held once where they are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Fault, Requirements, Strictness};
use fleet_unitfile::{UnitFile, UnitName};

use super::view::fault;

/// Requirements that were read of late, by the text that they were read from. Most units of a
/// cluster ask for one of a few things.
#[derive(Debug, Clone, Default)]
pub(super) struct Demands {
    known: BTreeMap<String, Arc<Requirements>>,
}

/// How many are kept. Beyond that all are forgotten, and those that come again are held once more.
const MOST: usize = 1024;

/// The section that requirements are read from.
const SECTION: &str = "X-Fleet";

impl Demands {
    /// Reads what the file of a unit demands. What was accepted once is read as leniently as can
    /// be: rules may have become stricter.
    pub(super) fn read(
        &mut self,
        name: &UnitName,
        file: &UnitFile,
    ) -> Result<Arc<Requirements>, Fault> {
        let parsed = Requirements::parse(name, file, Strictness::Warn)
            .map_err(|error| fault("the unit's requirements", &error))?;
        Ok(self.shared(text(file), parsed.requirements))
    }

    /// The text does not say everything: the same one may mean another thing in another unit.
    fn shared(&mut self, text: String, requirements: Requirements) -> Arc<Requirements> {
        if let Some(known) = self.known.get(&text).filter(|known| ***known == requirements) {
            return known.clone();
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let requirements = Arc::new(requirements);
        self.known.insert(text, requirements.clone());
        requirements
    }
}

/// What requirements follow from, but for the unit's name.
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

    fn read(demands: &mut Demands, name: &str, text: &str) -> Arc<Requirements> {
        let file = UnitFile::parse(text).unwrap();
        demands.read(&name.parse().unwrap(), &file).unwrap()
    }

    #[test]
    fn only_what_is_the_same_is_shared() {
        let demands = &mut Demands::default();
        let (eu, own) = ("[X-Fleet]\nMachineMetadata=region=eu\n", "[X-Fleet]\nConflicts=%p@*\n");
        let one = read(demands, "a@1.service", eu);
        let other = read(demands, "b@1.service", &format!("[Unit]\nDescription=b\n{eu}"));
        assert!(Arc::ptr_eq(&one, &other));
        let one = read(demands, "a@1.service", own);
        assert!(Arc::ptr_eq(&one, &read(demands, "a@2.service", own)));
        let other = read(demands, "b@1.service", own);
        assert_eq!(one.conflicts[0].to_string(), "a@*");
        assert_eq!(other.conflicts[0].to_string(), "b@*");
        assert_eq!(*read(demands, "a.service", "[Unit]\n"), Requirements::default());
    }

    #[test]
    fn not_all_is_kept_for_ever() {
        let demands = &mut Demands::default();
        for number in 0..3 * MOST {
            let text = format!("[X-Fleet]\nMachineMetadata=rack={number}\n");
            read(demands, "a.service", &text);
            assert!(demands.known.len() <= MOST);
        }
    }
}
