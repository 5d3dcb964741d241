//! Assignment: finds a machine for every unit that fits somewhere.

use super::queue::{AttemptQueue, PlanSize};
use super::{eviction_group, queue, reasons, replace, search};
use crate::index::undo_log::LogPosition;
use crate::index::{Cluster, retry_queue, undo_log};
use crate::rules::{Denial, machine_of};
use crate::state::{MachineNo, State, UnitNo, WaitState};

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
