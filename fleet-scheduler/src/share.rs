//! The share of one machine: the units that its agent must run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Refusal, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::policy::Candidate;
use crate::rules::{conflicts, machine as machine_rules};
use crate::state::NOTHING;

/// The units that the agent of one machine must run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Share {
    /// The wanted units that belong on the machine, each with its epoch. A unit placed there has
    /// the epoch of its placement. A global unit that fits has epoch zero.
    pub units: BTreeMap<UnitName, (Arc<Unit>, Epoch)>,
    /// The wanted global units that the machine refuses, each with the refusal.
    pub refused: BTreeMap<UnitName, Refusal>,
    /// The units for which the snapshot does not show whether they belong on the machine. The agent
    /// must neither start nor stop these units.
    ///
    /// An unreadable unit is listed if it is placed on this machine or has no placement. If the
    /// machine is not present, all wanted global units are listed as well, because the machine's
    /// metadata is unknown.
    pub undecided: BTreeSet<UnitName>,
}

/// Returns the units that the agent of a machine must run.
///
/// Placed units are accepted without a check, because the engine is responsible for them. Global
/// units are then added in the order of their names. Each needs matching metadata and must not
/// conflict with a unit that is already part of the share. No other rules apply to global units.
///
/// The cost depends on the number of global units, of unreadable units, and of units placed on this
/// machine. It does not depend on the size of the cluster.
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

/// Returns the unreadable units that may belong on the machine.
fn unreadable(snapshot: &Snapshot, machine: &MachineId) -> BTreeSet<UnitName> {
    let is_elsewhere = |unit: &UnitName| {
        snapshot.placement(unit.as_str()).is_some_and(|placement| placement.machine != *machine)
    };
    let names = snapshot.faults().map(|(unit, _)| unit).filter(|unit| !is_elsewhere(unit));
    names.cloned().collect()
}

/// Adds the global units that fit, and records the refusals of the others.
fn fit_in<'a>(
    share: &mut Share,
    snapshot: &'a Snapshot,
    machine: &Machine,
    globals: impl Iterator<Item = &'a Arc<Unit>>,
) {
    let placed_here = |unit: &&UnitName| snapshot.placement(unit.as_str()).is_some();
    let unreadable = snapshot.faults().map(|(unit, _)| unit).filter(placed_here);
    let unreadable = unreadable.filter(|unit| share.undecided.contains(*unit));
    let mut there: Vec<Candidate<'_>> =
        unreadable.map(|name| Candidate { name, requirements: &NOTHING }).collect();
    let placed = share.units.keys().filter_map(|name| snapshot.unit(name.as_str()));
    there.extend(placed.map(|unit| candidate(unit)));
    there.sort_by_key(|unit| unit.name);
    for unit in globals {
        let refusal = machine_rules::metadata_refusal(&unit.requirements, machine)
            .or_else(|| machine_rules::expression_refusal(&unit.requirements, machine))
            .or_else(|| conflicts::refusal(candidate(unit), &there));
        if let Some(refusal) = refusal {
            share.refused.insert(unit.name.clone(), refusal);
            continue;
        }
        let at = there.partition_point(|other| other.name < &unit.name);
        there.insert(at, candidate(unit));
        share.units.insert(unit.name.clone(), (unit.clone(), Epoch::ZERO));
    }
}

fn candidate(unit: &Unit) -> Candidate<'_> {
    Candidate { name: &unit.name, requirements: &unit.requirements }
}
