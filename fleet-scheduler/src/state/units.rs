//! The units: every known name, with a sorted list for lookups and prefix searches.
//!
//! The names are stored in the slots of the units, so the sorted list holds only unit numbers. They
//! are split into short runs. An insertion moves only the numbers of one run, and the sorted names
//! of a snapshot can be loaded without any comparison.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use fleet_core::{Epoch, Requirements};
use fleet_unitfile::UnitName;

use super::slots::{ClassNo, MachineNo, PatternNo, Slots, UnitNo, index_slots};

/// The kind of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum UnitKind {
    /// Unknown; it is placed, or other units name it.
    #[default]
    Unknown,
    /// A unit that is not wanted, or a template.
    Inactive,
    /// A wanted unit that runs on one machine, chosen by the plan.
    Single,
    /// A wanted unit that runs on every machine where it fits. It never has a placement.
    Global,
    /// A unit with an unreadable record. It has no requirements. If it is placed, it stays on its
    /// machine.
    Unreadable,
}

/// The waiting state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WaitState {
    /// It does not wait.
    #[default]
    No,
    /// It was not tried since its last relevant change.
    Untried,
    /// It is to be tried in the current plan.
    Queued,
    /// Every machine refuses its class.
    Parked,
    /// Every machine refuses its group.
    Tied,
    /// Its `MachineOf=` cannot be satisfied.
    Unsatisfiable,
    /// The machine of its placement is not present, and the unit has `Reschedule=never`. It does
    /// not wait for another machine.
    Stranded,
}

/// A peer named in `MachineOf=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerRef {
    /// The unit of that name.
    Named(UnitNo),
    /// Any other unit that the pattern matches.
    Matching(PatternNo),
}

/// The ties of a unit to others.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    /// The peers of the unit's `MachineOf=`, in the order written. Only a single unit has peers.
    pub(crate) peers: Vec<PeerRef>,
    /// The units that name it in `MachineOf=`, once per mention.
    pub(crate) followers: Vec<UnitNo>,
    /// The group with which it was last parked or queued.
    pub(crate) group: UnitNo,
}

/// The entry of one name.
#[derive(Debug, Default)]
pub(crate) struct UnitSlot {
    name: Option<UnitName>,
    /// Its requirements, if they are known.
    pub(crate) requirements: Option<Arc<Requirements>>,
    pub(crate) affinity: Option<Box<Affinity>>,
    /// The epoch of its placement, if it has one.
    pub(crate) epoch: Epoch,
    /// The machine of its recorded placement, valid or not.
    pub(crate) placed: MachineNo,
    /// The machine that it is on now, for single and unreadable units.
    pub(crate) machine: MachineNo,
    /// Its position in the unit list of that machine.
    pub(crate) at: u32,
    /// Its class, if it takes part or could.
    pub(crate) class: ClassNo,
    pub(crate) kind: UnitKind,
    pub(crate) wait: WaitState,
    /// Whether the unit's desired state is loaded or launched, as far as known.
    pub(crate) wanted: bool,
}

/// All names.
#[derive(Debug, Default)]
pub(crate) struct Units {
    slots: Slots<UnitNo, UnitSlot>,
    names: Names,
    /// Whether lower numbers have earlier names, as after a load.
    in_order: bool,
}

impl UnitSlot {
    /// Creates the entry of an otherwise unknown name.
    pub(crate) fn new(name: UnitName) -> Self {
        Self { name: Some(name), ..Self::default() }
    }

    pub(crate) fn name(&self) -> &UnitName {
        self.name.as_ref().expect("a slot in use has a name")
    }

    pub(crate) fn peers(&self) -> &[PeerRef] {
        self.affinity.as_ref().map_or(&[], |affinity| &affinity.peers)
    }

    pub(crate) fn followers(&self) -> &[UnitNo] {
        self.affinity.as_ref().map_or(&[], |affinity| &affinity.followers)
    }

    /// Returns whether it needs a machine and has none.
    pub(crate) fn is_waiting(&self) -> bool {
        self.kind == UnitKind::Single
            && self.machine == MachineNo::NONE
            && self.wait != WaitState::Stranded
    }
}

index_slots!(Units, UnitNo, UnitSlot);

impl Units {
    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<UnitNo> {
        self.names.find(name, &self.slots)
    }

    /// Returns the number of a name, assigning one if needed.
    pub(crate) fn intern(&mut self, name: &UnitName) -> UnitNo {
        if let Some(unit) = self.find(name.as_str()) {
            return unit;
        }
        self.in_order = false;
        let unit = self.slots.insert(UnitSlot::new(name.clone()));
        self.names.insert(unit, &self.slots);
        unit
    }

    /// Adds many names at once, which must be sorted and new.
    pub(crate) fn fill(&mut self, names: impl ExactSizeIterator<Item = UnitName>) {
        let slots = &mut self.slots;
        slots.reserve(names.len());
        for name in names {
            slots.insert(UnitSlot::new(name));
        }
        self.names = Names::of(slots);
        self.in_order = true;
    }

    /// Sorts units by their names.
    pub(crate) fn sort(&self, units: &mut [UnitNo]) {
        if self.in_order {
            units.sort_unstable();
        } else {
            units.sort_by(|a, b| self.name(*a).cmp(self.name(*b)));
        }
    }

    /// Removes a name that is unknown and that nothing refers to.
    pub(crate) fn forget_if_idle(&mut self, unit: UnitNo) {
        let slot = &self.slots[unit];
        let named = slot.affinity.as_ref().is_some_and(|affinity| !affinity.followers.is_empty());
        if slot.kind == UnitKind::Unknown && slot.placed == MachineNo::NONE && !named {
            self.names.remove(unit, &self.slots);
            self.slots.remove(unit);
        }
    }

    /// Returns the names with this prefix, in order.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&UnitName, UnitNo)> {
        let names = self.names.from(prefix, &self.slots).map(|unit| (self.name(unit), unit));
        names.take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    pub(crate) fn name(&self, unit: UnitNo) -> &UnitName {
        self.slots[unit].name()
    }

    /// Returns the ties of a unit, creating them if needed.
    pub(crate) fn affinity_mut(&mut self, unit: UnitNo) -> &mut Affinity {
        self.slots[unit].affinity.get_or_insert_default()
    }
}

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
