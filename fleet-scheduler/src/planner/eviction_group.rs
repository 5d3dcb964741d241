//! Eviction groups: units that can leave their machine only together, and the moves of these groups
//! to other machines for a drain or a rebalancing.
//!
//! The disruption budget limits how many running instances of a template may stop at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use fleet_unitfile::UnitName;

use super::keep::Departures;
use super::{keep, replace, search};
use crate::drain::HoldReason;
use crate::index::undo_log::{LeaveReason, LogPosition};
use crate::index::{Cluster, undo_log};
use crate::planner::decide;
use crate::rules::{Denial, machine_of, replaces};
use crate::state::{Lookup, MachineNo, PeerRef, State, UnitKind, UnitNo};

/// The purpose of a voluntary move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveReason {
    Drain,
    Rebalance,
}

impl MoveReason {
    fn leave_reason(self) -> LeaveReason {
        match self {
            Self::Drain => LeaveReason::Drained,
            Self::Rebalance => LeaveReason::Rebalanced,
        }
    }
}

/// Returns the single and unreadable units on a machine, sorted by name.
pub(super) fn units_by_name(state: &State, machine: MachineNo) -> Vec<UnitNo> {
    let mut units = state.machines[machine].occupancy.units.clone();
    state.units.sort(&mut units);
    units
}

/// Returns the eviction group of a unit: all units that must leave the machine together with this
/// unit.
///
/// If a member of the group names another unit there in `MachineOf=`, that unit is a member too. So
/// is each unit that would lack a peer if the group left. In the result, each unit follows the
/// units that it names; units are otherwise sorted by name.
pub(super) fn eviction_group(state: &State, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
    closure(state, vec![head], machine)
}

fn closure(state: &State, mut next: Vec<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
    if state.machines[machine].occupancy.tied == 0 {
        return in_group_order(state, next, machine);
    }
    let mut departures = Departures::new(state, machine);
    let mut all = Vec::new();
    while let Some(unit) = next.pop() {
        if departures.is_gone(unit) {
            continue;
        }
        all.push(unit);
        next.extend(departures.leave(unit));
        next.extend(named_on(state, unit, machine));
    }
    in_group_order(state, all, machine)
}

/// Returns the units on a machine that `MachineOf=` ties to a unit by name, directly or through
/// others there, and the unit itself. They are all in the eviction group of each of them.
pub(super) fn tied_by_name(state: &State, unit: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
    let mut all = vec![unit];
    let mut visited: Lookup<UnitNo, ()> = all.iter().map(|unit| (*unit, ())).collect();
    let mut next = 0;
    while let Some(at) = all.get(next).copied() {
        next += 1;
        let followers = state.units[at].followers().iter().copied();
        let there = followers.filter(|other| state.units[*other].machine == machine);
        for other in there.chain(named_on(state, at, machine)) {
            if visited.insert(other, ()) {
                all.push(other);
            }
        }
    }
    all
}

/// Returns the units on a machine that a unit names, without global units.
fn named_on(state: &State, unit: UnitNo, machine: MachineNo) -> impl Iterator<Item = UnitNo> {
    let peers = state.units[unit].peers().iter();
    peers.filter_map(move |peer| match peer {
        PeerRef::Named(other) if state.units[*other].machine == machine => Some(*other),
        _ => None,
    })
}

fn in_group_order(state: &State, mut all: Vec<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
    state.units.sort(&mut all);
    let place: Lookup<UnitNo, usize> = all.iter().copied().zip(0..).collect();
    let mut missing = vec![0; all.len()];
    let mut naming = vec![Vec::new(); all.len()];
    for (at, unit) in all.iter().enumerate() {
        for named in named_on(state, *unit, machine).filter_map(|named| place.get(&named)) {
            missing[at] += 1;
            naming[*named].push(at);
        }
    }
    // The first unit of the rest, which also begins a cycle.
    let mut first = 0;
    let mut is_ordered = vec![false; all.len()];
    let is_ready = |at: &usize| missing[*at] == 0;
    let mut ready: BinaryHeap<_> = (0..all.len()).filter(is_ready).map(Reverse).collect();
    let mut order = Vec::with_capacity(all.len());
    while order.len() < all.len() {
        while is_ordered[first] {
            first += 1;
        }
        let next = ready.pop().map_or(first, |Reverse(next)| next);
        is_ordered[next] = true;
        order.push(all[next]);
        for other in &naming[next] {
            missing[*other] -= 1;
            if missing[*other] == 0 && !is_ordered[*other] {
                ready.push(Reverse(*other));
            }
        }
    }
    order
}

/// Takes a group off its machine. Returns all units that left.
///
/// The departure may change which global units fit on the machine, so that further units there lack
/// a peer. These units join the group and leave as well.
pub(super) fn detach_group(
    cluster: &mut Cluster,
    mut group: Vec<UnitNo>,
    machine: MachineNo,
    reason: MoveReason,
) -> Vec<UnitNo> {
    loop {
        let savepoint = undo_log::savepoint(cluster);
        for unit in &group {
            undo_log::unassign(cluster, *unit, machine, reason.leave_reason());
        }
        keep::refit_globals(cluster, machine);
        let lacking = machine_of::left_behind(&cluster.state, machine);
        if lacking.is_empty() {
            return group;
        }
        undo_log::roll_back(cluster, &savepoint);
        let more = lacking.into_iter().map(|(unit, _)| unit);
        group = closure(&cluster.state, group.into_iter().chain(more).collect(), machine);
    }
}

/// Calls `takes` for one machine after the other until a call returns `true`. Returns whether one
/// did. The machines come in the order in which the group's first unit tries them. If the group
/// requires a certain machine, only that machine is tried. The machine `from`, which the group has
/// left, is never tried.
///
/// `takes` must assign the group to the machine and return whether that succeeded. Replaced units
/// search for machines during the attempt, so `may_replace` must be true if there may be any.
pub(super) fn find_machine_for(
    cluster: &mut Cluster,
    group: &[UnitNo],
    (from, may_replace): (MachineNo, bool),
    mut takes: impl FnMut(&mut Cluster, MachineNo) -> bool,
) -> bool {
    let Some(first) = group.first().copied() else { return false };
    let mut takes = |cluster: &mut Cluster, machine| machine != from && takes(cluster, machine);
    match decide::required_machine(&cluster.state, group) {
        Err(_) => false,
        Ok(Some(machine)) => {
            cluster.state.machines[machine].is_present() && takes(cluster, machine)
        }
        Ok(None) if may_replace || !cluster.state.policy.scores.is_empty() => {
            // Ranking all machines is slow, and the first one is usually sufficient.
            let top = search::top_machine(cluster, first);
            top.is_some_and(|machine| takes(cluster, machine)) || {
                let all = search::ranked_machines(cluster, first);
                all.into_iter().any(|machine| takes(cluster, machine))
            }
        }
        Ok(None) => search::search(cluster, first, takes).is_some(),
    }
}

/// Returns whether a unit of the group has a `Replaces=`.
pub(super) fn has_replacers(state: &State, group: &[UnitNo]) -> bool {
    group.iter().any(|unit| !state.class(*unit).replaces.is_empty())
}

/// Assigns the whole group to a machine, in any order in which the machine accepts its units. If
/// there is no such order, assigns none of the units and returns `false`.
pub(super) fn assign_group(cluster: &mut Cluster, group: &[UnitNo], machine: MachineNo) -> bool {
    // An accepted unit may have displaced one that was in the way of another.
    let replacing = has_replacers(&cluster.state, group);
    assign_in_any_order(cluster, group, |cluster, unit, arrived| {
        match replace::try_assign(cluster, unit, machine, arrived, &mut 0) {
            Ok(()) => Attempt::Assigned,
            Err(Denial::MachineOf(_) | Denial::Custom(_)) => Attempt::Later,
            Err(_) if replacing => Attempt::Later,
            Err(_) => Attempt::Never,
        }
    })
}

/// The result of an attempt to assign one unit of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Assigned,
    /// The unit may be accepted after others of the group.
    Later,
    Never,
}

/// Assigns the units of a group in any order that `attempt` allows, which gets the units assigned
/// before. If there is no such order, assigns none of the units and returns `false`.
pub(super) fn assign_in_any_order(
    cluster: &mut Cluster,
    group: &[UnitNo],
    mut attempt: impl FnMut(&mut Cluster, UnitNo, &[UnitNo]) -> Attempt,
) -> bool {
    let savepoint = undo_log::savepoint(cluster);
    let (mut arrived, mut left) = (Vec::with_capacity(group.len()), group.to_vec());
    while !left.is_empty() {
        let mut rest = Vec::new();
        for unit in &left {
            match attempt(cluster, *unit, &arrived) {
                Attempt::Assigned => arrived.push(*unit),
                Attempt::Later => rest.push(*unit),
                Attempt::Never => {
                    undo_log::roll_back(cluster, &savepoint);
                    return false;
                }
            }
        }
        if rest.len() == left.len() {
            undo_log::roll_back(cluster, &savepoint);
            return false;
        }
        left = rest;
    }
    true
}

/// Returns whether a unit of the group would replace a unit on the machine.
pub(super) fn would_replace(state: &State, group: &[UnitNo], machine: MachineNo) -> bool {
    group.iter().any(|unit| !replaces::replaced(state, *unit, machine).is_empty())
}

/// Number of running instances per template, counted on demand.
#[derive(Debug)]
pub(super) struct DisruptionBudget<'a> {
    min_available: u32,
    down: &'a BTreeSet<UnitName>,
    counted: BTreeMap<UnitName, u32>,
}

impl<'a> DisruptionBudget<'a> {
    pub(super) fn new(min_available: u32, down: &'a BTreeSet<UnitName>) -> Self {
        Self { min_available, down, counted: BTreeMap::new() }
    }

    /// Subtracts instances that have just been moved. They count as not running, because they have
    /// yet to start on their new machines.
    pub(super) fn spend(&mut self, lost: &BTreeMap<UnitName, u32>) {
        for (template, lost) in lost {
            if let Some(up) = self.counted.get_mut(template) {
                *up = up.saturating_sub(*lost);
            }
        }
    }
}

/// Counts, per template, the running instances among some units that are about to leave their
/// machines. The result is empty if the budget sets no minimum.
pub(super) fn disrupted(
    state: &State,
    budget: &DisruptionBudget<'_>,
    units: impl Iterator<Item = UnitNo>,
) -> BTreeMap<UnitName, u32> {
    let mut lost = BTreeMap::new();
    if budget.min_available > 0 {
        let names = units.map(|unit| state.units.name(unit));
        let up = names.filter(|name| !budget.down.contains(*name));
        for template in up.filter_map(UnitName::template) {
            *lost.entry(template).or_insert(0) += 1;
        }
    }
    lost
}

/// Returns the single units that have left the machine of their recorded placement since this log
/// position.
pub(super) fn moved_since(cluster: &Cluster, start: LogPosition) -> BTreeSet<UnitNo> {
    let entries = undo_log::since(cluster, start).iter().filter(|entry| entry.left.is_some());
    let from_home = entries.filter(|entry| cluster.state.units[entry.unit].placed == entry.machine);
    from_home.map(|entry| entry.unit).filter(|unit| cluster.state.is_single(*unit)).collect()
}

/// Returns a reason to hold units back if too few instances of a template would stay up. `lost`
/// counts, per template, the instances that have just left their machines.
pub(super) fn check_min_available(
    state: &State,
    budget: &mut DisruptionBudget<'_>,
    lost: &BTreeMap<UnitName, u32>,
) -> Option<HoldReason> {
    lost.iter().find_map(|(template, lost)| {
        let up = budget.counted.get(template).copied();
        let up = up.unwrap_or_else(|| count_up(state, budget, template).saturating_add(*lost));
        budget.counted.insert(template.clone(), up);
        let min_available = budget.min_available;
        let enough = up >= min_available.saturating_add(*lost);
        (!enough).then(|| HoldReason::MinAvailable {
            template: template.clone(),
            up,
            min_available,
        })
    })
}

/// Counts the running instances of a template that are still on the machine of their recorded
/// placement.
fn count_up(state: &State, budget: &DisruptionBudget<'_>, template: &UnitName) -> u32 {
    let prefix = format!("{}@", template.prefix());
    let alike = state.units.with_prefix(&prefix);
    let alike = alike.filter(|(name, _)| name.unit_type() == template.unit_type());
    let up = alike.filter(|(name, unit)| name.is_instance() && is_up(state, budget, *unit)).count();
    u32::try_from(up).unwrap_or(u32::MAX)
}

fn is_up(state: &State, budget: &DisruptionBudget<'_>, unit: UnitNo) -> bool {
    let slot = &state.units[unit];
    slot.kind == UnitKind::Single
        && slot.placed.some().is_some_and(|at| state.machines[at].is_present())
        && slot.machine == slot.placed
        && !budget.down.contains(slot.name())
}
