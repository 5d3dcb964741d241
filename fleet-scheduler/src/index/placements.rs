//! Observed placements and machines.

use std::sync::Arc;

use fleet_core::requirements::Reschedule;
use fleet_core::{Epoch, Machine, MachineId};

use super::{Cluster, retry_queue, undo_log};
use crate::state::{MachineNo, UnitKind, UnitNo, WaitState};

/// Records the placement of a unit.
pub(crate) fn record_placement(cluster: &mut Cluster, unit: UnitNo, id: &MachineId, epoch: Epoch) {
    let machine = intern_machine(cluster, id);
    let slot = &mut cluster.state.units[unit];
    let (same, current) = (slot.placed == machine, slot.machine);
    if same && slot.epoch == epoch {
        return;
    }
    cluster.touched = true;
    slot.epoch = epoch;
    if same {
        current.some().into_iter().for_each(|current| mark_dirty(cluster, current));
        return;
    }
    cluster.state.machines[machine].named += 1;
    retry_queue::requeue_tied(cluster, unit);
    withdraw(cluster, unit);
    retry_queue::forget_waiting(cluster, unit);
    forget_placement(cluster, unit);
    cluster.state.units[unit].placed = machine;
    apply_placement(cluster, unit);
    retry_queue::requeue_tied(cluster, unit);
}

/// Removes the placement of a unit.
pub(crate) fn erase_placement(cluster: &mut Cluster, unit: UnitNo) {
    if cluster.state.units[unit].placed == MachineNo::NONE {
        return;
    }
    cluster.touched = true;
    retry_queue::requeue_tied(cluster, unit);
    withdraw(cluster, unit);
    retry_queue::forget_waiting(cluster, unit);
    forget_placement(cluster, unit);
    apply_placement(cluster, unit);
    retry_queue::requeue_tied(cluster, unit);
    cluster.state.units.forget_if_idle(unit);
}

fn forget_placement(cluster: &mut Cluster, unit: UnitNo) {
    let machine = std::mem::take(&mut cluster.state.units[unit].placed);
    if let Some(machine) = machine.some() {
        cluster.state.machines[machine].named -= 1;
        cluster.state.machines.forget_if_idle(machine);
    }
}

/// Assigns a unit to the machine of its placement, or makes it wait.
pub(crate) fn apply_placement(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &cluster.state.units[unit];
    let machine = slot.placed.some();
    match (slot.kind, machine) {
        (UnitKind::Single | UnitKind::Unreadable, Some(machine)) => {
            if cluster.state.machines[machine].is_present() {
                undo_log::attach(cluster, unit, machine);
                mark_dirty(cluster, machine);
            } else {
                cluster.state.machines[machine].stranded.insert(unit);
                strand(cluster, unit);
            }
        }
        (UnitKind::Single, None) => retry_queue::enqueue(cluster, unit),
        (UnitKind::Unreadable, None) | (_, None) => {}
        (_, Some(_)) => {
            let name = cluster.state.units.name(unit).clone();
            cluster.unwanted.insert(name, unit);
        }
    }
}

/// Makes a unit without a present machine wait, unless it has `Reschedule=never`.
fn strand(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &mut cluster.state.units[unit];
    if slot.kind != UnitKind::Single {
        return;
    }
    let wants = slot.requirements.as_ref();
    let reschedule = wants.map_or(Reschedule::Always, |wants| wants.reschedule);
    if reschedule == Reschedule::Never {
        slot.wait = WaitState::Stranded;
        cluster.stranded.insert(unit);
        cluster.retry_queue.push(unit);
    } else {
        retry_queue::enqueue(cluster, unit);
    }
}

/// Undoes [`apply_placement`](apply_placement).
pub(crate) fn withdraw(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &cluster.state.units[unit];
    let (current, placed) = (slot.machine.some(), slot.placed.some());
    if let Some(current) = current {
        undo_log::detach(cluster, unit, current);
        mark_dirty(cluster, current);
    } else if let Some(placed) = placed {
        cluster.state.machines[placed].stranded.remove(&unit);
    }
    let name = cluster.state.units.name(unit);
    cluster.unwanted.remove(name);
}

/// Schedules a machine for a recheck in the next plan.
pub(crate) fn mark_dirty(cluster: &mut Cluster, machine: MachineNo) {
    cluster.touched = true;
    let slot = &mut cluster.state.machines[machine];
    if !slot.dirty {
        slot.dirty = true;
        cluster.dirty.push(machine);
    }
}

/// Returns the number of a machine ID.
pub(crate) fn intern_machine(cluster: &mut Cluster, id: &MachineId) -> MachineNo {
    let (machine, relabelled) = cluster.state.machines.intern(id);
    if relabelled {
        cluster.orders.ranks.discard_all();
        cluster.orders.loosened_machines.discard_all();
        cluster.refusal_cache.clear();
    }
    machine
}

/// Adds or replaces a machine.
pub(crate) fn update_machine(cluster: &mut Cluster, facts: Arc<Machine>) {
    let machine = intern_machine(cluster, &facts.id);
    // Custom rules and scores may look at every property of a machine.
    let is_custom = cluster.state.policy.is_custom();
    let same = |old: &Arc<Machine>| {
        old.metadata == facts.metadata
            && old.offers == facts.offers
            && old.cordoned == facts.cordoned
            && (!is_custom || **old == *facts)
    };
    let old = cluster.state.machines[machine].facts.as_ref();
    let is_same = old.is_some_and(same);
    if !is_same {
        let old = old.map(|old| &old.metadata);
        cluster.state.filters.change(machine, old, Some(&facts.metadata));
    }
    cluster.state.machines.set(machine, Some(facts));
    if is_same {
        return;
    }
    cluster.orders.facts_version += 1;
    undo_log::note_loosened(cluster, machine);
    mark_dirty(cluster, machine);
    for unit in std::mem::take(&mut cluster.state.machines[machine].stranded) {
        retry_queue::forget_waiting(cluster, unit);
        undo_log::attach(cluster, unit, machine);
        retry_queue::requeue_tied(cluster, unit);
    }
}

/// Removes a machine.
pub(crate) fn drop_machine(cluster: &mut Cluster, id: &str) {
    let Some(machine) = cluster.state.machines.find(id) else { return };
    if !cluster.state.machines[machine].is_present() {
        return;
    }
    cluster.touched = true;
    let occupancy = &cluster.state.machines[machine].occupancy;
    let (units, globals) = (occupancy.units.clone(), occupancy.globals.clone());
    for unit in globals {
        undo_log::detach(cluster, unit, machine);
    }
    for unit in &units {
        retry_queue::requeue_tied(cluster, *unit);
        undo_log::detach(cluster, *unit, machine);
        cluster.state.machines[machine].stranded.insert(*unit);
        strand(cluster, *unit);
    }
    let old = cluster.state.machines[machine].machine();
    cluster.state.filters.change(machine, Some(&old.metadata), None);
    cluster.state.machines.set(machine, None);
    cluster.orders.facts_version += 1;
    undo_log::note_loosened(cluster, machine);
    cluster.state.machines.forget_if_idle(machine);
}
