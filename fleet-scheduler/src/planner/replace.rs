//! Replacement: a unit that comes to a machine displaces the units that it replaces there, if other
//! machines accept these units.

use super::eviction_group::{Attempt, assign_in_any_order, find_machine_for};
use super::keep;
use super::keep::Departures;
use crate::index::undo_log::LeaveReason;
use crate::index::{Cluster, undo_log};
use crate::rules::{Denial, PlacementQuery, denial, machine_of, replaces};
use crate::state::{MachineNo, State, UnitNo};

/// Assigns a unit to a machine, after moving the units that it replaces there to other machines. On
/// error, assigns and moves no unit.
///
/// `arrived` lists units that have just been assigned to the machine and must not move again.
/// `displaced` is increased by the number of displaced groups that the function tried to move.
pub(super) fn try_assign(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
    arrived: &[UnitNo],
    displaced: &mut usize,
) -> Result<(), Denial> {
    let replaced = replaces::replaced(&cluster.state, unit, machine);
    let leaving = leaving(&cluster.state, &replaced, machine);
    let query =
        PlacementQuery { leaving: &leaving, ..PlacementQuery::new(&cluster.state, unit, machine) };
    if let Some(denial) = query.denial() {
        return Err(denial);
    }
    let Some(first) = replaced.first().copied() else {
        undo_log::assign(cluster, unit, machine);
        return Ok(());
    };
    let savepoint = undo_log::savepoint(cluster);
    let result = make_room(cluster, unit, machine, &replaced, arrived, displaced).and_then(|()| {
        undo_log::assign(cluster, unit, machine);
        keep::refit_globals(cluster, machine);
        let well = machine_of::left_behind(&cluster.state, machine).is_empty();
        if well { Ok(()) } else { Err(Denial::CannotMove(first)) }
    });
    if result.is_err() {
        undo_log::roll_back(cluster, &savepoint);
    }
    result
}

/// Returns the units that must leave a machine, without duplicates: the replaced units, and all
/// units that have to move with them.
pub(super) fn leaving(state: &State, replaced: &[UnitNo], machine: MachineNo) -> Vec<UnitNo> {
    let displaced = replaced.iter().flat_map(|head| displaced_group(state, *head, machine));
    let mut leaving: Vec<UnitNo> = displaced.collect();
    leaving.sort_unstable();
    leaving.dedup();
    leaving
}

fn make_room(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
    replaced: &[UnitNo],
    arrived: &[UnitNo],
    displaced: &mut usize,
) -> Result<(), Denial> {
    for other in replaced {
        if cluster.state.units[*other].machine != machine {
            continue; // It moved with the group of an earlier unit.
        }
        *displaced += 1;
        if !move_away(cluster, *other, machine, unit, arrived) {
            return Err(Denial::CannotMove(*other));
        }
    }
    Ok(())
}

/// Moves a unit with its displaced group to another machine because the unit `by` replaces it.
/// Returns whether some machine accepts the whole group; if none does, changes nothing.
///
/// All units of the group must pass every rule on the new machine, and must not replace another
/// unit there. Units in `arrived` cannot move.
fn move_away(
    cluster: &mut Cluster,
    head: UnitNo,
    from: MachineNo,
    by: UnitNo,
    arrived: &[UnitNo],
) -> bool {
    let group = displaced_group(&cluster.state, head, from);
    if group.iter().any(|unit| !cluster.state.is_single(*unit) || arrived.contains(unit)) {
        return false;
    }
    let savepoint = undo_log::savepoint(cluster);
    for member in &group {
        let reason =
            if *member == head { LeaveReason::ReplacedBy(by) } else { LeaveReason::Follows(head) };
        undo_log::unassign(cluster, *member, from, reason);
    }
    let found = find_machine_for(cluster, &group, (from, false), |cluster, to| {
        assign_displaced(cluster, &group, to)
    });
    if !found {
        undo_log::roll_back(cluster, &savepoint);
    }
    found
}

/// Assigns a whole displaced group to a machine, in any order in which the machine accepts its
/// units. Assigns none of them and returns `false` if there is no such order, or if one of them
/// would replace a unit there.
fn assign_displaced(cluster: &mut Cluster, group: &[UnitNo], machine: MachineNo) -> bool {
    assign_in_any_order(cluster, group, |cluster, unit, _| {
        let replaces = !replaces::replaced(&cluster.state, unit, machine).is_empty();
        match denial(&cluster.state, unit, machine) {
            _ if replaces => Attempt::Never,
            None => {
                undo_log::assign(cluster, unit, machine);
                Attempt::Assigned
            }
            Some(Denial::MachineOf(_) | Denial::Custom(_)) => Attempt::Later,
            Some(_) => Attempt::Never,
        }
    })
}

/// Returns the displaced group of a unit: the unit itself, and all units on its machine that would
/// lack a peer if the group left.
///
/// The unit comes first. It is followed by the units that lack it, sorted by name, then by the
/// units that lack one of these, and so on.
fn displaced_group(state: &State, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
    let mut group = vec![head];
    if state.machines[machine].occupancy.tied == 0 {
        return group;
    }
    let mut departures = Departures::new(state, machine);
    let mut more = departures.leave_all(&group);
    while !more.is_empty() {
        group.extend(&more);
        more = departures.leave_all(&more);
    }
    group
}

/// Separates units that share a machine with a unit that replaces them: moves the replaced unit
/// away, if another machine accepts it. Returns whether any unit moved.
///
/// A replacer may itself share the machine with a unit that replaces it. Such a replacer is handled
/// last, because it may have moved away by then. No unit is moved to a machine with a unit that
/// replaces it or that it replaces. So a move never makes a separation on another machine
/// necessary.
pub(super) fn separate_replaced(cluster: &mut Cluster) -> bool {
    let replacers = side_by_side_replacers(cluster);
    let mut moved = false;
    for only_staying in [true, false] {
        for unit in &replacers {
            let Some(machine) = cluster.state.units[*unit].machine.some() else { continue };
            let replaced = replaces::replaced(&cluster.state, *unit, machine);
            if replaced.is_empty()
                || only_staying && replaces::is_to_leave(&cluster.state, *unit, machine)
            {
                continue;
            }
            for other in replaced {
                moved |= separate(cluster, other, machine, *unit);
            }
        }
    }
    moved
}

/// Returns the units that may replace another unit on their own machine, sorted by name.
fn side_by_side_replacers(cluster: &Cluster) -> Vec<UnitNo> {
    let there = |machine: &MachineNo| &cluster.state.machines[*machine].occupancy.units;
    let replaces = |unit: &&UnitNo| !cluster.state.class(**unit).replaces.is_empty();
    let replacers = cluster.replacement_machines.iter().flat_map(there).filter(replaces);
    let mut replacers: Vec<UnitNo> = replacers.copied().collect();
    cluster.state.units.sort(&mut replacers);
    replacers
}

/// Moves a unit away from its replacer `by`, if another machine accepts the unit and no other unit
/// then lacks a peer. Returns whether the unit moved.
fn separate(cluster: &mut Cluster, other: UnitNo, machine: MachineNo, by: UnitNo) -> bool {
    if cluster.state.units[other].machine != machine || is_still_immovable(cluster, other, machine)
    {
        return false;
    }
    let savepoint = undo_log::savepoint(cluster);
    if !move_away(cluster, other, machine, by, &[]) {
        if !cluster.state.is_tied(other) && !cluster.state.policy.retries_on_any_change() {
            cluster.immovable.insert(other, cluster.orders.loosened_machines.end());
        }
        return false;
    }
    keep::refit_globals(cluster, machine);
    if machine_of::left_behind(&cluster.state, machine).is_empty() {
        return true;
    }
    undo_log::roll_back(cluster, &savepoint);
    false
}

/// Returns whether an earlier attempt to move a unit away from its replacer failed, and a new
/// attempt would fail too.
///
/// The function checks only the machines that may accept more units than at the earlier attempt,
/// because all others would refuse the unit again. The result is always `false` for a unit that is
/// tied to others, because the attempt then also depends on these.
fn is_still_immovable(cluster: &mut Cluster, unit: UnitNo, from: MachineNo) -> bool {
    let Some(position) = cluster.immovable.get(&unit).filter(|_| !cluster.state.is_tied(unit))
    else {
        return false;
    };
    let Some(loosened) = cluster.orders.loosened_machines.since(*position) else { return false };
    let takes = |machine: &MachineNo| {
        *machine != from
            && cluster.state.machines[*machine].is_present()
            && denial(&cluster.state, unit, *machine).is_none()
    };
    if loosened.iter().any(takes) {
        return false;
    }
    cluster.immovable.insert(unit, cluster.orders.loosened_machines.end());
    true
}
