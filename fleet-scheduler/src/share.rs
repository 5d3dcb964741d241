//! The share of one machine: what its agent must have, and what it is left out of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Refusal, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::rules::{NOTHING, RuleSubject, conflicts, metadata, metadata_expr};

/// What the agent of one machine must have.
#[derive(Debug, Clone, Default)]
pub struct Share {
    /// The units that belong on the machine: the wanted units that are placed there, with the epoch
    /// of their placements, and the wanted global units that it takes, with epoch zero.
    pub units: BTreeMap<UnitName, (Arc<Unit>, Epoch)>,
    /// The wanted global units that the machine does not take, and why.
    pub refused: BTreeMap<UnitName, Refusal>,
    /// The units of which the snapshot does not say whether they belong on the machine. What of
    /// these is there already is to be left as it is.
    ///
    /// They are the units whose record cannot be read and that are placed there or nowhere, and all
    /// wanted global units if the machine is not present: its metadata is then not known.
    pub undecided: BTreeSet<UnitName>,
}

/// Decides what the agent of a machine must have.
///
/// Placed units are not questioned: the engine answers for them. Global units are taken one after
/// the other by name, as far as the machine has the metadata and no unit that is there already, by
/// placement or by having been taken before, conflicts. A global unit has no other requirements.
///
/// It costs what is on the machine, what is global, and what cannot be read, however large the
/// cluster is.
#[must_use]
pub fn share(snapshot: &Snapshot, machine: &MachineId) -> Share {
    let mut share = Share { undecided: unreadable(snapshot, machine), ..Share::default() };
    for (name, epoch) in snapshot.placements_on(machine) {
        let unit = snapshot.unit(name.as_str());
        if let Some(unit) = unit.filter(|unit| unit.is_wanted() && !unit.is_global()) {
            share.units.insert(name.clone(), (unit.clone(), epoch));
        }
    }
    let globals = snapshot.global_units().filter(|unit| unit.is_wanted());
    match snapshot.machine(machine.as_str()) {
        Some(present) => fit_in(&mut share, snapshot, present, globals),
        None => share.undecided.extend(globals.map(|unit| unit.name.clone())),
    }
    share
}

/// The units that cannot be read and that may belong on the machine.
fn unreadable(snapshot: &Snapshot, machine: &MachineId) -> BTreeSet<UnitName> {
    let is_elsewhere = |unit: &UnitName| {
        snapshot.placement(unit.as_str()).is_some_and(|placement| placement.machine != *machine)
    };
    let names = snapshot.faults().map(|(unit, _)| unit).filter(|unit| !is_elsewhere(unit));
    names.cloned().collect()
}

/// Adds the global units that the machine takes, and says why of the others.
fn fit_in<'a>(
    share: &mut Share,
    snapshot: &'a Snapshot,
    machine: &Machine,
    globals: impl Iterator<Item = &'a Arc<Unit>>,
) {
    let placed_here = |unit: &&UnitName| snapshot.placement(unit.as_str()).is_some();
    let unreadable = snapshot.faults().map(|(unit, _)| unit).filter(placed_here);
    let unreadable = unreadable.filter(|unit| share.undecided.contains(*unit));
    let mut there: Vec<RuleSubject<'_>> =
        unreadable.map(|name| RuleSubject { name, requirements: &NOTHING }).collect();
    let placed = share.units.keys().filter_map(|name| snapshot.unit(name.as_str()));
    there.extend(placed.map(|unit| subject(unit)));
    there.sort_by_key(|subject| subject.name);
    for unit in globals {
        let refusal = metadata::refusal(&unit.requirements, machine)
            .or_else(|| metadata_expr::refusal(&unit.requirements, machine))
            .or_else(|| conflicts::refusal(subject(unit), &there));
        if let Some(refusal) = refusal {
            share.refused.insert(unit.name.clone(), refusal);
            continue;
        }
        let at = there.partition_point(|other| other.name < &unit.name);
        there.insert(at, subject(unit));
        share.units.insert(unit.name.clone(), (unit.clone(), Epoch::ZERO));
    }
}

fn subject(unit: &Unit) -> RuleSubject<'_> {
    RuleSubject { name: &unit.name, requirements: &unit.requirements }
}
