//! Loading: reads a snapshot into an empty index. Machines and units are added in sorted order, so
//! each name gets the next number without a lookup.

use std::sync::Arc;

use fleet_core::{Peer, Snapshot};
use fleet_unitfile::UnitName;

use super::units::UnitKind;
use super::{Cluster, PatternNo, UnitNo};

impl Cluster {
    /// Reads a snapshot. The index must be empty.
    pub(super) fn fill(&mut self, snapshot: &Snapshot) {
        self.touched = true;
        self.machines.fill(snapshot.machines().map(|machine| &machine.id));
        let machines: Vec<_> = self.machines.in_order().collect();
        for (number, machine) in machines.into_iter().zip(snapshot.machines()) {
            self.machines.set(number, Some(Arc::clone(machine)));
            self.mark_dirty(number);
        }
        let names = names(snapshot);
        self.units.fill(names.iter().map(|name| (*name).clone()));
        self.retry_queue.reserve(names.len());
        self.read_placements(snapshot, &names);
        let patterns = self.read_patterns(snapshot);
        self.read_units(snapshot, &names);
        patterns.into_iter().for_each(|pattern| self.patterns.release(pattern));
    }

    /// Adds all patterns before any unit has a class, because a pattern added later would have to
    /// be compared with all names. Returns the patterns, which the caller must release once the
    /// units use them.
    fn read_patterns(&mut self, snapshot: &Snapshot) -> Vec<PatternNo> {
        let mut held = Vec::new();
        for unit in snapshot.units().filter(|unit| unit.is_wanted()) {
            let wants = &unit.requirements;
            for pattern in wants.conflicts.iter().chain(&wants.replaces) {
                held.push(self.patterns.acquire(pattern).0);
            }
            for peer in &wants.machine_of {
                let Peer::Matching(pattern) = peer else { continue };
                let number = self.patterns.acquire(pattern).0;
                self.patterns.slots[number].members.get_or_insert_default();
                held.push(number);
            }
        }
        held
    }

    fn read_placements(&mut self, snapshot: &Snapshot, names: &[&UnitName]) {
        let mut at = 0;
        for (name, placement) in snapshot.placements() {
            advance(names, &mut at, name);
            let machine = self.intern_machine(&placement.machine);
            self.machines.slots[machine].named += 1;
            let slot = &mut self.units.slots[UnitNo::from(at)];
            slot.placed = machine;
            slot.epoch = placement.epoch;
        }
    }

    fn read_units(&mut self, snapshot: &Snapshot, names: &[&UnitName]) {
        let mut faults = snapshot.faults().map(|(name, _)| name).peekable();
        let mut units = snapshot.units().peekable();
        for (at, name) in names.iter().enumerate() {
            let number = UnitNo::from(at);
            if let Some(unit) = units.next_if(|unit| is_same(name, &unit.name)) {
                let slot = &mut self.units.slots[number];
                slot.wanted = unit.is_wanted();
                slot.kind = match (slot.wanted, unit.is_global()) {
                    (false, _) => UnitKind::Inactive,
                    (true, false) => UnitKind::Single,
                    (true, true) => UnitKind::Global,
                };
                slot.requirements = Some(Arc::clone(&unit.requirements));
            } else if faults.next_if(|fault| is_same(name, fault)).is_some() {
                self.units.slots[number].kind = UnitKind::Unreadable;
            }
            self.insert_definition(number);
        }
    }
}

/// Returns all names of a snapshot that are known or placed, in order.
fn names(snapshot: &Snapshot) -> Vec<&UnitName> {
    let mut names: Vec<&UnitName> = snapshot.units().map(|unit| &unit.name).collect();
    let units = names.len();
    names.extend(snapshot.faults().map(|(name, _)| name));
    names.extend(snapshot.placements().map(|(name, _)| name));
    if names.len() > units {
        // The names form three sorted runs, which the sort merges.
        names.sort();
        names.dedup();
    }
    names
}

/// Advances to the position of the name.
fn advance(names: &[&UnitName], at: &mut usize, name: &UnitName) {
    while !is_same(names[*at], name) {
        *at += 1;
    }
}

fn is_same(one: &UnitName, other: &UnitName) -> bool {
    std::ptr::eq(one.as_str(), other.as_str()) || one == other
}
