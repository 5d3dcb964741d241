//! The undo log: assigns units to machines, removes them from machines, and records each change so
//! that it can be rolled back.

use std::sync::Arc;

use fleet_core::Refusal;

use super::Cluster;
use crate::policy::Ranking;
use crate::state::{MachineNo, UnitKind, UnitNo};

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
