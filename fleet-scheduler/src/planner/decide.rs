//! The decision: keeps the placements that may stay, finds a machine for every other unit that fits
//! somewhere, and explains the rest. Also decides for changes that are not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Machine, Reason};
use fleet_unitfile::UnitName;

use super::queue::{AttemptQueue, PlanSize};
use super::{eviction_group, keep, queue, reasons, replace, search, steps};
use crate::demand::{Change, Demand};
use crate::index::undo_log::{LogPosition, PendingPlan};
use crate::index::{Cluster, definitions, placements, retry_queue, undo_log};
use crate::plan::Plan;
use crate::rules::{Denial, machine_of};
use crate::state::{MachineNo, State, UnitKind, UnitNo, WaitState};

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
    place_and_separate(cluster, &mut queue);
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

/// Number of machines that are tried one by one before all machines are ranked at once.
pub(super) const MAX_PROBES: usize = 32;

/// Places every unit that fits, then separates replaced units from their replacers. Repeats both
/// until nothing changes.
pub(super) fn place_and_separate(cluster: &mut Cluster, queue: &mut AttemptQueue) {
    cluster.state.classes.round += 1; // No class has been requeued in this round.
    queue::requeue_sensitive_groups(cluster);
    loop {
        while let Some(unit) = queue::next_attempt(cluster, queue) {
            match queue.counter.count(plan_size(cluster)) {
                true => attempt(cluster, unit, queue),
                false => give_up(cluster, unit, queue),
            }
        }
        // Last, because an assignment above may have moved one of the two units already.
        let start = undo_log::log_position(cluster);
        if queue.counter.is_exhausted() || !replace::separate_replaced(cluster) {
            cluster.ties_changed = false; // All units that it may help have been tried.
            return;
        }
        queue::requeue_sensitive_groups(cluster);
        requeue_after(cluster, start);
    }
}

/// Queues again the units that may find a machine because of the arrivals since this log position.
fn requeue_after(cluster: &mut Cluster, start: LogPosition) {
    let came = undo_log::since(cluster, start).iter().filter(|entry| entry.left.is_none());
    let mut came: Vec<UnitNo> = came.map(|entry| entry.unit).collect();
    came.sort_unstable();
    came.dedup();
    came.into_iter().for_each(|unit| queue::requeue_after_arrival(cluster, unit));
}

fn plan_size(cluster: &Cluster) -> PlanSize {
    let globals = cluster.globals.len().saturating_mul(cluster.state.machines.len());
    let assignments = cluster.state.units.len().saturating_add(globals);
    PlanSize { assignments, log_length: cluster.log.len() }
}

/// Parks a unit, or the whole group that the unit represents, without an attempt.
fn give_up(cluster: &mut Cluster, unit: UnitNo, queue: &mut AttemptQueue) {
    let group = reasons::group_of(&cluster.state, unit);
    for member in &group {
        retry_queue::forget_waiting(cluster, *member);
    }
    queue.tried.extend(&group);
    queue.given_up.extend(&group);
    retry_queue::park_group(cluster, group, true, true);
}

/// Tries to find a machine for a unit, or for the whole group that the unit represents.
fn attempt(cluster: &mut Cluster, unit: UnitNo, queue: &mut AttemptQueue) {
    if cluster.state.is_tied(unit) {
        let component = cluster.state.component(unit);
        match component.groups.into_iter().find(|group| group.contains(&unit)) {
            Some(group) => attempt_group(cluster, group, queue),
            None => {
                retry_queue::forget_waiting(cluster, unit);
                retry_queue::park_unsatisfiable(cluster, unit);
                queue.tried.push(unit);
            }
        }
    } else if cluster.state.class(unit).replaces.is_empty()
        && !cluster.state.policy.retries_on_any_change()
    {
        attempt_one(cluster, unit, queue);
    } else {
        attempt_group(cluster, vec![unit], queue);
    }
}

fn attempt_one(cluster: &mut Cluster, unit: UnitNo, queue: &mut AttemptQueue) {
    let class = cluster.state.units[unit].class;
    let Some(machine) = search::find_machine(cluster, unit) else {
        cluster.state.classes[class].requeued_in = 0;
        retry_queue::park(cluster, unit);
        queue.tried.push(unit);
        return;
    };
    cluster.state.units[unit].wait = WaitState::No;
    undo_log::assign(cluster, unit, machine);
    queue::requeue_after_arrival(cluster, unit);
    let round = cluster.state.classes.round;
    let class = &mut cluster.state.classes[class];
    if class.requeued_in == round {
        match class.parked.values().next().copied() {
            Some(next) => retry_queue::requeue(cluster, next),
            None => class.requeued_in = 0,
        }
    }
}

fn attempt_group(cluster: &mut Cluster, group: Vec<UnitNo>, queue: &mut AttemptQueue) {
    let (mut displaced, start) = (0, undo_log::log_position(cluster));
    if place_group(cluster, &group, &mut displaced) {
        group.into_iter().for_each(|unit| retry_queue::forget_waiting(cluster, unit));
        requeue_after(cluster, start);
        return;
    }
    for member in &group {
        retry_queue::forget_waiting(cluster, *member);
    }
    queue.tried.extend(&group);
    let any_change = cluster.state.policy.retries_on_any_change();
    let sensitive = any_change || eviction_group::has_replacers(&cluster.state, &group);
    retry_queue::park_group(
        cluster,
        group,
        sensitive,
        any_change || displaced > 1 || !cluster.globals.is_empty(),
    );
}

/// Places a group on the first machine that accepts it. Returns whether there is such a machine.
///
/// If the group contains replacers, the attempt on a machine first moves displaced groups away from
/// it. `displaced` is raised to the highest number of displaced groups that the attempt on one
/// machine had to move.
fn place_group(cluster: &mut Cluster, group: &[UnitNo], displaced: &mut usize) -> bool {
    let anywhere = (MachineNo::NONE, eviction_group::has_replacers(&cluster.state, group));
    eviction_group::find_machine_for(cluster, group, anywhere, |cluster, machine| {
        try_assign_all(cluster, group, machine, displaced).is_ok()
    })
}

/// Returns the machine that the units of a group require by `MachineID=` or by a `MachineOf=` peer
/// that has a machine. Returns `Ok(None)` if they require none, and an error if they require
/// different machines.
pub(super) fn required_machine(
    state: &State,
    group: &[UnitNo],
) -> Result<Option<MachineNo>, NoCommonMachine> {
    let mut found = None;
    for unit in group {
        let pin = state.class(*unit).pin.some();
        for machine in pin.into_iter().chain(machine_of::machine_of_peer(state, *unit)) {
            if found.is_some_and(|other| other != machine) {
                return Err(NoCommonMachine);
            }
            found = Some(machine);
        }
    }
    Ok(found)
}

/// Assigns a group to a machine. If the machine refuses one of the units, the function changes
/// nothing and returns that unit and the denial.
pub(crate) fn try_assign_all(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
    displaced: &mut usize,
) -> Result<(), (UnitNo, Denial)> {
    let savepoint = undo_log::savepoint(cluster);
    let mut moved = 0;
    let mut result = Ok(());
    for (at, unit) in group.iter().enumerate() {
        if let Err(denial) = replace::try_assign(cluster, *unit, machine, &group[..at], &mut moved)
        {
            undo_log::roll_back(cluster, &savepoint);
            result = Err((*unit, denial));
            break;
        }
    }
    *displaced = moved.max(*displaced);
    result
}

/// No machine can accept a group, because its units require different machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoCommonMachine;
