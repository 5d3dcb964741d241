//! The decision: keeps the placements that may stay, places the other units, and explains the rest.
//! Also decides for changes that are not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Machine, Reason};
use fleet_unitfile::UnitName;

use super::queue::AttemptQueue;
use super::{assign, keep, reasons, steps};
use crate::demand::{Change, Demand};
use crate::index::undo_log::PendingPlan;
use crate::index::{Cluster, definitions, placements, undo_log};
use crate::plan::Plan;
use crate::state::{MachineNo, State, UnitKind, UnitNo};

/// The result of a decision, once every unit that fits has been placed.
#[derive(Debug, Default)]
struct Decision {
    /// The units that were tried and have no machine.
    tried: Vec<UnitNo>,
    /// The machines that the recheck changed.
    changed_machines: Vec<MachineNo>,
    /// The reasons of the units that were tried and have no machine.
    unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

/// Returns the plan with the reasons of all units without a machine.
pub(super) fn plan(cluster: &mut Cluster) -> Plan {
    let mut plan = plan_affected(cluster);
    explain_the_others(cluster, &mut plan.unplaced);
    plan
}

/// Returns the plan with the reasons of the units that were tried.
pub(super) fn plan_affected(cluster: &mut Cluster) -> Plan {
    undo_log::rewind(cluster);
    let based_on = cluster.revision();
    if !cluster.touched && cluster.unwanted.is_empty() {
        return Plan::new(based_on);
    }
    let Decision { tried, changed_machines, unplaced } = decide(cluster);
    let (units, steps) = steps::steps(cluster, &tried);
    keep_pending(cluster, PendingPlan { units, tried, changed_machines });
    Plan { based_on, steps, unplaced }
}

/// Plans the changes that are needed anyway, followed by the moves that `more` makes. Rolls all of
/// them back, and returns the plan together with the result of `more`.
pub(super) fn plan_then<T>(
    cluster: &mut Cluster,
    more: impl FnOnce(&mut Cluster) -> T,
) -> (Plan, T) {
    let quiet = !cluster.touched && cluster.unwanted.is_empty();
    let decided = if quiet { Decision::default() } else { decide(cluster) };
    let Decision { tried, changed_machines, mut unplaced } = decided;
    explain_the_others(cluster, &mut unplaced);
    let result = more(cluster);
    let (_, steps) = steps::steps(cluster, &tried);
    cluster.pending = Some(PendingPlan { tried, changed_machines, ..PendingPlan::default() });
    undo_log::rewind(cluster);
    (Plan { based_on: cluster.revision(), steps, unplaced }, result)
}

/// Rechecks all dirty machines and places every unit that fits.
fn decide(cluster: &mut Cluster) -> Decision {
    let mut queue = AttemptQueue::default();
    let changed_machines = keep::recheck_machines(cluster);
    assign::place_and_separate(cluster, &mut queue);
    let tried = still_waiting(cluster, queue.tried);
    let mut unplaced = reasons::reasons_of(cluster, &tried);
    explain_given_up(&cluster.state, &queue.given_up, &mut unplaced);
    Decision { tried, changed_machines, unplaced }
}

/// Stores a plan until it is applied or rolled back. A plan without steps or moves needs no
/// rollback, so it is not stored.
fn keep_pending(cluster: &mut Cluster, pending: PendingPlan) {
    let is_global = |unit: UnitNo| cluster.state.units[unit].kind == UnitKind::Global;
    if pending.units.is_empty() && cluster.log.iter().all(|entry| is_global(entry.unit)) {
        cluster.log.clear();
        cluster.touched = !cluster.retry_queue.is_empty();
    } else {
        cluster.pending = Some(pending);
    }
}

/// Returns the units that have no machine, without duplicates, sorted by name.
fn still_waiting(cluster: &Cluster, mut units: Vec<UnitNo>) -> Vec<UnitNo> {
    units.retain(|unit| {
        let slot = &cluster.state.units[*unit];
        slot.is_waiting() || cluster.stranded.contains(unit)
    });
    cluster.state.units.sort(&mut units);
    units.dedup();
    units
}

/// Sets the reason of the units that were parked without an attempt.
fn explain_given_up(
    state: &State,
    given_up: &[UnitNo],
    reasons: &mut BTreeMap<UnitName, Arc<Reason>>,
) {
    for unit in given_up {
        if let Some(reason) = reasons.get_mut(state.units.name(*unit)) {
            *reason = Arc::new(Reason::AttemptLimit);
        }
    }
}

/// Adds the reasons of the units that wait for a machine and have none yet.
fn explain_the_others(cluster: &mut Cluster, reasons: &mut BTreeMap<UnitName, Arc<Reason>>) {
    let mut all: Vec<UnitNo> =
        cluster.stranded.iter().chain(&cluster.unsatisfiable).copied().collect();
    for class in &cluster.state.classes.parked {
        all.extend(cluster.state.classes[*class].parked.values());
    }
    all.extend(cluster.groups.values().flat_map(|group| &group.members));
    all.retain(|unit| !reasons.contains_key(cluster.state.units.name(*unit)));
    let others = still_waiting(cluster, all);
    reasons.append(&mut reasons::reasons_of(cluster, &others));
    // An attempt on a machine may have queued units that its rollback does not take back.
    cluster.touched |= !cluster.retry_queue.is_empty();
}

/// Returns the plan that would follow some changes.
pub(super) fn plan_after(cluster: &mut Cluster, changes: &[Change]) -> Plan {
    undo_log::rewind(cluster);
    let mut inverses = Vec::with_capacity(changes.len());
    for change in changes {
        inverses.push(inverse(&cluster.state, change));
        cluster.change(change);
    }
    let plan = plan(cluster);
    for change in inverses.iter().rev() {
        cluster.change(change);
    }
    plan
}

/// Returns the change that undoes another one.
fn inverse(state: &State, change: &Change) -> Change {
    match change {
        Change::Add(Demand { name: unit, .. })
        | Change::Remove(unit)
        | Change::MarkUnreadable(unit) => current_unit(state, unit),
        Change::AddMachine(Machine { id, .. }) | Change::RemoveMachine(id) => {
            let slot = state.machines.find(id.as_str()).map(|m| &state.machines[m]);
            match slot.and_then(|slot| slot.facts.as_ref()) {
                Some(facts) => Change::AddMachine(Machine::clone(facts)),
                None => Change::RemoveMachine(id.clone()),
            }
        }
        Change::Place { unit, .. } | Change::Unplace(unit) => current_placement(state, unit),
    }
}

/// Makes an inactive unit wanted and unplaced. Returns the changes that undo it.
pub(super) fn assume_wanted(cluster: &mut Cluster, unit: UnitNo) -> [Change; 2] {
    let name = cluster.state.units.name(unit).clone();
    let back = [current_unit(&cluster.state, &name), current_placement(&cluster.state, &name)];
    placements::erase_placement(cluster, unit);
    let wants = cluster.state.units[unit].requirements.clone();
    let global = wants.as_ref().is_some_and(|wants| wants.global);
    let kind = if global { UnitKind::Global } else { UnitKind::Single };
    definitions::upsert(cluster, unit, kind, wants, true);
    back
}

fn current_unit(state: &State, unit: &UnitName) -> Change {
    let slot = state.units.find(unit.as_str()).map(|unit| &state.units[unit]);
    match slot.map(|slot| (slot.kind, slot.wanted, &slot.requirements)) {
        Some((UnitKind::Unreadable, ..)) => Change::MarkUnreadable(unit.clone()),
        Some((_, wanted, Some(requirements))) => {
            let (name, requirements) = (unit.clone(), requirements.clone());
            Change::Add(Demand { name, requirements, wanted })
        }
        _ => Change::Remove(unit.clone()),
    }
}

fn current_placement(state: &State, unit: &UnitName) -> Change {
    let slot = state.units.find(unit.as_str()).map(|unit| &state.units[unit]);
    match slot.and_then(|slot| Some((slot.placed.some()?, slot.epoch))) {
        Some((machine, epoch)) => {
            let machine = state.machines.id(machine).clone();
            Change::Place { unit: unit.clone(), machine, epoch }
        }
        None => Change::Unplace(unit.clone()),
    }
}
