//! The undo log: assigns units to machines, removes them from machines, and records each change so
//! that it can be rolled back. The entries since the last plan are the pending plan, which is
//! either applied or rolled back.

use std::sync::Arc;

use fleet_core::{Epoch, Refusal};

use super::{Cluster, placements, retry_queue};
use crate::plan::{Plan, Step, StepAction};
use crate::policy::Ranking;
use crate::state::{MachineNo, State, UnitKind, UnitNo, WaitState};

/// An assignment or its opposite during planning.
#[derive(Debug)]
pub(crate) struct UndoEntry {
    pub(crate) unit: UnitNo,
    pub(crate) machine: MachineNo,
    /// The reason for which the unit left the machine; `None` if it came.
    pub(crate) left: Option<LeaveReason>,
}

/// Reason for which a unit left a machine.
#[derive(Debug)]
pub(crate) enum LeaveReason {
    /// A rule refuses it there.
    Refused(Arc<Refusal>),
    /// Another unit replaces it.
    ReplacedBy(UnitNo),
    /// A unit that its `MachineOf=` requires leaves.
    Follows(UnitNo),
    /// It is global, and the global units were recomputed.
    Refitted,
    /// The machine is drained.
    Drained,
    /// It is moved for balance.
    Rebalanced,
}

/// A position in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPosition(usize);

impl LogPosition {
    /// The start of the plan.
    pub(crate) const START: Self = Self(0);
}

/// A state to which planning can return.
#[derive(Debug)]
pub(crate) struct Savepoint {
    log_position: LogPosition,
    /// Position in the log of the same name of the machine orders, like `ranks`.
    loosened_machines: u64,
    ranks: u64,
    /// Position in the change log of the refusal cache.
    refusals: u64,
    refreshes: u64,
}

/// Assigns a unit to a machine.
pub(crate) fn assign(cluster: &mut Cluster, unit: UnitNo, machine: MachineNo) {
    attach(cluster, unit, machine);
    cluster.log.push(UndoEntry { unit, machine, left: None });
}

/// Takes a unit off a machine.
pub(crate) fn unassign(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
    reason: LeaveReason,
) {
    detach(cluster, unit, machine);
    cluster.log.push(UndoEntry { unit, machine, left: Some(reason) });
}

/// Returns the current position in the log.
pub(crate) fn log_position(cluster: &Cluster) -> LogPosition {
    LogPosition(cluster.log.len())
}

/// Undoes everything after a position.
pub(crate) fn undo_to(cluster: &mut Cluster, start: LogPosition) {
    while cluster.log.len() > start.0 {
        let Some(UndoEntry { unit, machine, left }) = cluster.log.pop() else { return };
        match left {
            None => detach(cluster, unit, machine),
            Some(_) => attach(cluster, unit, machine),
        }
    }
}

/// Returns the entries after a position.
pub(crate) fn since(cluster: &Cluster, start: LogPosition) -> &[UndoEntry] {
    &cluster.log[start.0..]
}

/// Adds a unit to an occupancy without logging it.
pub(crate) fn attach(cluster: &mut Cluster, unit: UnitNo, machine: MachineNo) {
    let slot = &mut cluster.state.units[unit];
    let tied = !slot.peers().is_empty();
    let occupancy = &mut cluster.state.machines[machine].occupancy;
    if slot.kind == UnitKind::Global {
        occupancy.globals.push(unit);
    } else {
        cluster.state.patterns.set_follower_placed(unit, slot.peers(), true);
        slot.machine = machine;
        slot.at = u32::try_from(occupancy.units.len()).unwrap_or(u32::MAX);
        occupancy.units.push(unit);
    }
    let class = &cluster.state.classes[slot.class];
    let could_replace = occupancy.may_replace();
    occupancy.add(class, tied);
    if occupancy.may_replace() && !could_replace {
        cluster.replacement_machines.insert(machine);
    }
    for pattern in &class.matched {
        cluster.state.patterns[*pattern].assigned += 1;
    }
    update_instance_counts(cluster, unit, machine, 1);
    note_change(cluster, machine);
    if cluster.state.policy.ranking == Ranking::BinPacking {
        note_better_rank(cluster, machine);
    }
}

/// Removes a unit from an occupancy without logging it.
pub(crate) fn detach(cluster: &mut Cluster, unit: UnitNo, machine: MachineNo) {
    let slot = &mut cluster.state.units[unit];
    let (at, class) = (slot.at as usize, slot.class);
    let tied = !slot.peers().is_empty();
    let occupancy = &mut cluster.state.machines[machine].occupancy;
    if slot.kind == UnitKind::Global {
        occupancy.globals.retain(|other| *other != unit);
    } else {
        cluster.state.patterns.set_follower_placed(unit, slot.peers(), false);
        slot.machine = MachineNo::NONE;
        occupancy.units.swap_remove(at);
        if let Some(moved) = occupancy.units.get(at) {
            cluster.state.units[*moved].at = u32::try_from(at).unwrap_or(u32::MAX);
        }
    }
    let class = &cluster.state.classes[class];
    let mut occupancy = std::mem::take(&mut cluster.state.machines[machine].occupancy);
    let there = std::mem::take(&mut occupancy.units);
    let could_replace = occupancy.may_replace();
    occupancy.remove(class, tied, || cluster.state.smallest_limit(&there, class.template));
    occupancy.units = there;
    if could_replace && !occupancy.may_replace() {
        cluster.replacement_machines.remove(&machine);
    }
    cluster.immovable.remove(&unit);
    cluster.state.machines[machine].occupancy = occupancy;
    for pattern in &class.matched {
        cluster.state.patterns[*pattern].assigned -= 1;
    }
    update_instance_counts(cluster, unit, machine, -1);
    note_loosened(cluster, machine);
}

/// Updates the machine orders that count a template's instances.
fn update_instance_counts(cluster: &mut Cluster, unit: UnitNo, machine: MachineNo, change: i64) {
    let class = &cluster.state.classes[cluster.state.units[unit].class];
    let Some(template) = class.template.some() else { return };
    for order in &cluster.state.patterns[template].orders {
        cluster.orders[*order].count(template, machine, change);
    }
}

/// Records that a machine may now accept units that it refused before, and may rank better.
pub(crate) fn note_loosened(cluster: &mut Cluster, machine: MachineNo) {
    cluster.orders.loosened_machines.push(machine, cluster.state.machines.len());
    note_better_rank(cluster, machine);
    note_change(cluster, machine);
}

/// Records that a machine may give another verdict.
fn note_change(cluster: &mut Cluster, machine: MachineNo) {
    cluster.refusal_cache.note_change(machine, cluster.state.machines.len());
}

fn note_better_rank(cluster: &mut Cluster, machine: MachineNo) {
    cluster.orders.ranks.push(machine, cluster.state.machines.len());
}

/// Returns a savepoint of the current state.
pub(crate) fn savepoint(cluster: &Cluster) -> Savepoint {
    let orders = &cluster.orders;
    let (loosened_machines, ranks, refreshes) =
        (orders.loosened_machines.end(), orders.ranks.end(), orders.refreshes);
    Savepoint {
        log_position: log_position(cluster),
        loosened_machines,
        ranks,
        refusals: cluster.refusal_cache.end(),
        refreshes,
    }
}

/// Undoes everything since a savepoint.
pub(crate) fn roll_back(cluster: &mut Cluster, savepoint: &Savepoint) {
    undo_to(cluster, savepoint.log_position);
    cluster.orders.loosened_machines.truncate_to(savepoint.loosened_machines);
    cluster.refusal_cache.truncate_to(savepoint.refusals);
    if cluster.orders.refreshes == savepoint.refreshes {
        cluster.orders.ranks.truncate_to(savepoint.ranks);
    }
}

/// A plan that has not been applied.
#[derive(Debug, Default)]
pub(crate) struct PendingPlan {
    /// The units of its steps, in the same order.
    pub(crate) units: Vec<UnitNo>,
    /// The units that were tried and have no machine.
    pub(crate) tried: Vec<UnitNo>,
    /// The machines that the recheck changed.
    pub(crate) changed_machines: Vec<MachineNo>,
}

/// Applies a plan: records its steps as if each of them had been observed.
pub(crate) fn apply(cluster: &mut Cluster, plan: &Plan) {
    let epoch = Epoch(plan.based_on.0);
    cluster.revision = plan.based_on.next();
    let pending = cluster.pending.take();
    if let Some(pending) = pending {
        if matches_steps(&cluster.state, &pending.units, &plan.steps) {
            return commit(cluster, &pending.units, plan, epoch);
        }
        cluster.pending = Some(pending);
    }
    rewind(cluster);
    for step in &plan.steps {
        match step.to() {
            Some(machine) => cluster.place(step.unit.clone(), machine.clone(), epoch),
            None => cluster.unplace(step.unit.as_str()),
        }
    }
}

/// Returns whether the steps are those that were planned last.
fn matches_steps(state: &State, units: &[UnitNo], steps: &[Step]) -> bool {
    let is_taken = |(unit, step): (&UnitNo, &Step)| {
        let slot = &state.units[*unit];
        let now = slot.machine.some().map(|machine| state.machines.id(machine));
        *slot.name() == step.unit && now == step.to()
    };
    units.len() == steps.len() && units.iter().zip(steps).all(is_taken)
}

fn commit(cluster: &mut Cluster, units: &[UnitNo], plan: &Plan, epoch: Epoch) {
    for (unit, step) in units.iter().zip(&plan.steps) {
        let slot = &mut cluster.state.units[*unit];
        let (old, new) = (slot.placed, slot.machine);
        slot.placed = new;
        slot.epoch = epoch;
        if let Some(new) = new.some() {
            cluster.state.machines[new].named += 1;
        }
        if let Some(old) = old.some() {
            let machine = &mut cluster.state.machines[old];
            machine.named -= 1;
            if !machine.is_present() {
                machine.stranded.remove(unit);
                cluster.state.machines.forget_if_idle(old);
            }
        }
        if matches!(step.action, StepAction::Remove { .. }) {
            cluster.unwanted.remove(&step.unit);
            cluster.state.units.forget_if_idle(*unit);
        }
    }
    cluster.log.clear();
    cluster.touched = false;
}

/// Rolls back the last plan, if it was not applied.
pub(crate) fn rewind(cluster: &mut Cluster) {
    let Some(pending) = cluster.pending.take() else { return };
    cluster.touched = true;
    let mut moved: Vec<UnitNo> =
        since(cluster, LogPosition::START).iter().map(|e| e.unit).collect();
    moved.dedup();
    undo_to(cluster, LogPosition::START);
    for unit in moved {
        let slot = &cluster.state.units[unit];
        if slot.machine != MachineNo::NONE {
            retry_queue::forget_waiting(cluster, unit);
        } else if slot.kind == UnitKind::Single && slot.wait == WaitState::No {
            retry_queue::enqueue(cluster, unit);
        }
    }
    for unit in pending.tried {
        retry_queue::requeue(cluster, unit);
        if cluster.state.units[unit].wait == WaitState::Stranded {
            cluster.retry_queue.push(unit); // Its reason is due again.
        }
    }
    for machine in pending.changed_machines {
        placements::mark_dirty(cluster, machine);
    }
}
