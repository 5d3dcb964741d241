//! A sorted list of unit names, for lookups and prefix searches.
//!
//! The names are stored in the slots of the units, so this list holds only unit numbers. They are
//! split into short runs. An insertion moves only the numbers of one run, and the sorted names of a
//! snapshot can be loaded without any comparison.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::ops::Bound::{Excluded, Included, Unbounded};

use fleet_unitfile::UnitName;

use super::slots::{Slots, UnitNo};
use super::units::UnitSlot;

/// Maximum length of a run. This limits the count of numbers that move when a name is inserted or
/// removed.
const MAX_RUN: usize = 128;

type UnitSlots = Slots<UnitNo, UnitSlot>;

/// The numbers of names, in the order of the names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The runs, none of them empty. The key of a run is greater than all names of the previous
    /// run, and not greater than the run's own first name.
    ///
    /// Runs are never merged, because a run with a single name costs no more than a map entry.
    runs: BTreeMap<UnitName, Vec<UnitNo>>,
}

impl Names {
    /// Creates the list of all slots, which must be sorted by name.
    pub(super) fn of(slots: &UnitSlots) -> Self {
        let all: Vec<UnitNo> = slots.numbers().collect();
        // Runs start half full, because the next name may belong anywhere.
        let runs = all.chunks(MAX_RUN / 2);
        let runs = runs.map(|run| (slots[run[0]].name().clone(), run.to_vec()));
        Self { runs: runs.collect() }
    }

    pub(super) fn find(&self, name: &str, slots: &UnitSlots) -> Option<UnitNo> {
        let (_, run) = self.runs.range::<str, _>((Unbounded, Included(name))).next_back()?;
        Some(run[place(run, name, slots).ok()?])
    }

    /// Inserts a name that is not in the list.
    pub(super) fn insert(&mut self, unit: UnitNo, slots: &UnitSlots) {
        let name = slots[unit].name();
        let before = (Unbounded, Included(name));
        if let Some((_, run)) = self.runs.range_mut::<UnitName, _>(before).next_back() {
            let at = place(run, name.as_str(), slots).unwrap_or_else(|at| at);
            run.insert(at, unit);
            if run.len() > MAX_RUN {
                let rest = run.split_off(MAX_RUN / 2);
                self.runs.insert(slots[rest[0]].name().clone(), rest);
            }
            return;
        }
        // The name precedes all others: the first run starts with it, if there is room.
        let first = self.runs.first_entry().filter(|run| run.get().len() < MAX_RUN);
        let mut run = first.map_or_else(Vec::new, OccupiedEntry::remove);
        run.insert(0, unit);
        self.runs.insert(name.clone(), run);
    }

    /// Removes a name that is still in its slot.
    pub(super) fn remove(&mut self, unit: UnitNo, slots: &UnitSlots) {
        let name = slots[unit].name();
        let before = (Unbounded, Included(name));
        let Some((key, run)) = self.runs.range_mut::<UnitName, _>(before).next_back() else {
            return;
        };
        if let Ok(at) = place(run, name.as_str(), slots) {
            run.remove(at);
        }
        if run.is_empty() {
            let key = key.clone();
            self.runs.remove(&key);
        }
    }

    /// Returns the numbers of the names from a text on, in order.
    pub(super) fn from(&self, text: &str, slots: &UnitSlots) -> impl Iterator<Item = UnitNo> {
        let first = self.runs.range::<str, _>((Unbounded, Included(text))).next_back();
        let first = first.map(|(_, run)| {
            let at = place(run, text, slots).unwrap_or_else(|at| at);
            &run[at..]
        });
        let others = self.runs.range::<str, _>((Excluded(text), Unbounded));
        first.into_iter().chain(others.map(|(_, run)| &run[..])).flatten().copied()
    }
}

/// Returns the position of a name in a run, or its insertion point.
fn place(run: &[UnitNo], name: &str, slots: &UnitSlots) -> Result<usize, usize> {
    run.binary_search_by(|unit| slots[*unit].name().as_str().cmp(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn name(number: u16) -> UnitName {
        format!("u{number:03}.service").parse().unwrap()
    }

    fn read(names: &Names, text: &str, slots: &UnitSlots) -> Vec<String> {
        names.from(text, slots).map(|unit| slots[unit].name().to_string()).collect()
    }

    proptest! {
        /// Names are found, inserted and removed as in an ordinary map.
        #[test]
        fn names_behave_like_an_ordinary_map(
            loaded in 0..300_u16,
            events in proptest::collection::vec((any::<bool>(), 0..600_u16), 0..600),
            text in 0..600_u16,
        ) {
            let mut slots = UnitSlots::default();
            let mut twin = BTreeMap::new();
            for number in 0..loaded {
                let unit = slots.insert(UnitSlot::new(name(number * 2)));
                twin.insert(name(number * 2), unit);
            }
            let mut names = Names::of(&slots);
            for (comes, number) in events {
                let name = name(number);
                let found = names.find(name.as_str(), &slots);
                prop_assert_eq!(found, twin.get(&name).copied());
                match found {
                    None if comes => {
                        let unit = slots.insert(UnitSlot::new(name.clone()));
                        names.insert(unit, &slots);
                        twin.insert(name, unit);
                    }
                    Some(unit) if !comes => {
                        names.remove(unit, &slots);
                        slots.remove(unit);
                        twin.remove(&name);
                    }
                    _ => {}
                }
            }
            let text = format!("u{text:03}");
            let expected = twin.range::<str, _>((Included(text.as_str()), Unbounded));
            let expected: Vec<String> = expected.map(|(name, _)| name.to_string()).collect();
            prop_assert_eq!(read(&names, &text, &slots), expected);
            prop_assert!(names.runs.values().all(|run| !run.is_empty() && run.len() <= MAX_RUN));
        }
    }
}
