//! Loading: reads a snapshot into an empty cluster. Machines and units are added in sorted order,
//! so each name gets the next number without a lookup.

use std::sync::Arc;

use fleet_core::Snapshot;
use fleet_core::pattern::Peer;
use fleet_unitfile::UnitName;

use super::{Cluster, definitions, placements};
use crate::state::{PatternNo, UnitKind, UnitNo};

/// Reads a snapshot. The cluster must be empty.
pub(crate) fn fill(cluster: &mut Cluster, snapshot: &Snapshot) {
    cluster.touched = true;
    cluster.state.machines.fill(snapshot.machines().map(|machine| &machine.id));
    let machines: Vec<_> = cluster.state.machines.in_order().collect();
    for (number, machine) in machines.into_iter().zip(snapshot.machines()) {
        cluster.state.machines.set(number, Some(Arc::clone(machine)));
        placements::mark_dirty(cluster, number);
    }
    let names = names(snapshot);
    cluster.state.units.fill(names.iter().map(|name| (*name).clone()));
    cluster.retry_queue.reserve(names.len());
    read_placements(cluster, snapshot, &names);
    let patterns = read_patterns(cluster, snapshot);
    read_units(cluster, snapshot, &names);
    patterns.into_iter().for_each(|pattern| cluster.state.patterns.release(pattern));
}

/// Adds all patterns before any unit has a class, because a pattern added later would have to be
/// compared with all names. Returns the patterns, which the caller must release once the units use
/// them.
fn read_patterns(cluster: &mut Cluster, snapshot: &Snapshot) -> Vec<PatternNo> {
    let mut held = Vec::new();
    for unit in snapshot.units().filter(|unit| unit.is_wanted()) {
        let wants = &unit.requirements;
        for pattern in wants.conflicts.iter().chain(&wants.replaces) {
            held.push(cluster.state.patterns.acquire(pattern).0);
        }
        for peer in &wants.machine_of {
            let Peer::Matching(pattern) = peer else { continue };
            let number = cluster.state.patterns.acquire(pattern).0;
            cluster.state.patterns[number].members.get_or_insert_default();
            held.push(number);
        }
    }
    held
}

fn read_placements(cluster: &mut Cluster, snapshot: &Snapshot, names: &[&UnitName]) {
    let mut at = 0;
    for (name, placement) in snapshot.placements() {
        advance(names, &mut at, name);
        let machine = placements::intern_machine(cluster, &placement.machine);
        cluster.state.machines[machine].named += 1;
        let slot = &mut cluster.state.units[UnitNo::from(at)];
        slot.placed = machine;
        slot.epoch = placement.epoch;
    }
}

fn read_units(cluster: &mut Cluster, snapshot: &Snapshot, names: &[&UnitName]) {
    let mut faults = snapshot.faults().map(|(name, _)| name).peekable();
    let mut units = snapshot.units().peekable();
    for (at, name) in names.iter().enumerate() {
        let number = UnitNo::from(at);
        if let Some(unit) = units.next_if(|unit| is_same(name, &unit.name)) {
            let slot = &mut cluster.state.units[number];
            slot.wanted = unit.is_wanted();
            slot.kind = match (slot.wanted, unit.is_global()) {
                (false, _) => UnitKind::Inactive,
                (true, false) => UnitKind::Single,
                (true, true) => UnitKind::Global,
            };
            slot.requirements = Some(Arc::clone(&unit.requirements));
        } else if faults.next_if(|fault| is_same(name, fault)).is_some() {
            cluster.state.units[number].kind = UnitKind::Unreadable;
        }
        definitions::insert_definition(cluster, number);
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
