//! The same questions answered in the most obvious way: every unit looks at every other one, and
//! nothing is kept from one question to the next.

use std::collections::BTreeMap;

use fleet_core::{Machine, MachineId, Rule, Snapshot, Unit};
use fleet_unitfile::UnitName;

/// Where the units are that are placed on one machine each.
pub(crate) type Places = BTreeMap<UnitName, MachineId>;

/// The placements of a cluster of units that still count: wanted, or not readable.
pub(crate) fn places(cluster: &Snapshot) -> Places {
    let counts = |name: &UnitName| match cluster.unit(name.as_str()) {
        Some(unit) => unit.is_wanted() && !unit.is_global(),
        None => cluster.fault(name.as_str()).is_some(),
    };
    let placed = cluster.placements().filter(|(name, _)| counts(name));
    placed.map(|(name, placement)| (name.clone(), placement.machine.clone())).collect()
}

/// The units that want a machine.
pub(crate) fn singles(cluster: &Snapshot) -> impl Iterator<Item = &Unit> {
    let units = cluster.units().map(AsRef::as_ref);
    units.filter(|unit: &&Unit| unit.is_wanted() && !unit.is_global())
}

pub(crate) fn has_metadata(unit: &Unit, machine: &Machine) -> bool {
    for (key, values) in &unit.requirements.metadata {
        let Some(found) = machine.metadata.get(key) else {
            return false;
        };
        if !values.contains(found) {
            return false;
        }
    }
    true
}

/// Whether two units must not be side by side.
pub(crate) fn conflict(cluster: &Snapshot, one: &UnitName, other: &UnitName) -> bool {
    let keeps = |from: &UnitName, to: &UnitName| {
        let unit = cluster.unit(from.as_str());
        unit.is_some_and(|unit| unit.requirements.conflicts.iter().any(|p| p.matches(to)))
    };
    one != other && (keeps(one, other) || keeps(other, one))
}

/// Whether one unit has to make the other leave.
pub(crate) fn replaces(cluster: &Snapshot, one: &UnitName, other: &UnitName) -> bool {
    let names = |from: &UnitName, to: &UnitName| {
        let unit = cluster.unit(from.as_str());
        unit.is_some_and(|unit| unit.requirements.replaces.iter().any(|p| p.matches(to)))
    };
    one != other && names(one, other) && !names(other, one)
}

/// The placed units on a machine.
pub(crate) fn placed_on(places: &Places, machine: &Machine) -> Vec<UnitName> {
    let here = places.iter().filter(|(_, at)| **at == machine.id);
    here.map(|(name, _)| name.clone()).collect()
}

/// The global units on a machine, if the placed units are where `places` says.
pub(crate) fn globals_on(cluster: &Snapshot, places: &Places, machine: &Machine) -> Vec<UnitName> {
    let mut there = placed_on(places, machine);
    let mut taken = Vec::new();
    for unit in cluster.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
        let alone = there.iter().all(|other| !conflict(cluster, &unit.name, other));
        if has_metadata(unit, machine) && alone {
            there.push(unit.name.clone());
            taken.push(unit.name.clone());
        }
    }
    taken
}

/// The first rule by which a machine refuses a unit that would come to it, apart from `Replaces=`
/// of its own: for that, others would have to move.
pub(crate) fn refusing_rule(
    cluster: &Snapshot,
    places: &Places,
    unit: &Unit,
    machine: &Machine,
) -> Option<Rule> {
    let mut there = placed_on(places, machine);
    there.extend(globals_on(cluster, places, machine));
    rule(cluster, &there, unit, machine)
}

/// The first rule that a unit breaks on a machine where those are `there`.
pub(crate) fn rule(
    cluster: &Snapshot,
    there: &[UnitName],
    unit: &Unit,
    machine: &Machine,
) -> Option<Rule> {
    let wants = &unit.requirements;
    if wants.machine_id.as_ref().is_some_and(|id| *id != machine.id) {
        Some(Rule::MachineId)
    } else if !has_metadata(unit, machine) {
        Some(Rule::MachineMetadata)
    } else if !wants.machine_of.iter().all(|peer| there.iter().any(|it| peer.covers(it))) {
        Some(Rule::MachineOf)
    } else if there.iter().any(|other| conflict(cluster, &unit.name, other)) {
        Some(Rule::Conflicts)
    } else if there.iter().any(|other| replaces(cluster, other, &unit.name)) {
        Some(Rule::Replaces)
    } else {
        None
    }
}

/// A scheduler for clusters without `MachineOf=` and `Replaces=`: keeps who may stay, the earliest
/// placed first, then gives each unit by name the least loaded machine.
pub(crate) fn schedule(cluster: &Snapshot) -> Places {
    let mut kept = Places::new();
    let mut placed: Vec<_> = cluster.placements().collect();
    placed.sort_by_key(|(name, placement)| {
        (cluster.fault(name.as_str()).is_none(), placement.epoch, (*name).clone())
    });
    for (name, placement) in placed {
        let machine = cluster.machine(placement.machine.as_str());
        if cluster.fault(name.as_str()).is_some() {
            kept.insert(name.clone(), placement.machine.clone());
            continue;
        }
        let unit = singles(cluster).find(|unit| unit.name == *name);
        let (Some(unit), Some(machine)) = (unit, machine) else {
            continue;
        };
        if rule(cluster, &placed_on(&kept, machine), unit, machine).is_none() {
            kept.insert(name.clone(), machine.id.clone());
        }
    }
    for unit in singles(cluster) {
        if kept.contains_key(&unit.name) {
            continue;
        }
        let load = |machine: &Machine| {
            placed_on(&kept, machine).len() + globals_on(cluster, &kept, machine).len()
        };
        let fits = |machine: &&Machine| refusing_rule(cluster, &kept, unit, machine).is_none();
        let best = cluster
            .machines()
            .map(AsRef::as_ref)
            .filter(fits)
            .min_by_key(|machine: &&Machine| (load(machine), machine.id.clone()));
        if let Some(machine) = best {
            let id = machine.id.clone();
            kept.insert(unit.name.clone(), id);
        }
    }
    kept
}
