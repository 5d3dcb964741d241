//! Section 6: rebalancing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::requirements::Reschedule;
use fleet_core::{Machine, MachineId, Snapshot};
use fleet_unitfile::UnitName;

use super::assign::{assign_all, instances, score};
use super::eviction_group::{EvictionGroup, in_order, tied_by_name, with_units, without};
use super::replace::replaced;
use super::state::{PlacementState, single};
use super::{RuleSet, out_of_reach, start};
use crate::Rebalance;
use crate::policy::{Policy, Ranking};

/// A clause that a group must pass to leave its machine.
pub type LeaveClause = fn(&EvictionGroup<'_, '_>) -> bool;

/// A clause that must hold for the target machine of a group. The last argument is the state after
/// the group has moved to that machine.
pub type TargetClause = fn(&EvictionGroup<'_, '_>, &Machine, &PlacementState<'_>) -> bool;

/// Returns the placements that [`Cluster::rebalance`](crate::Cluster::rebalance) must lead to.
#[must_use]
pub fn rebalance(
    cluster: &Snapshot,
    policy: &Policy,
    request: &Rebalance,
) -> BTreeMap<UnitName, MachineId> {
    rebalance_with(&RuleSet::default(), cluster, policy, request)
}

/// Returns the placements that a rebalancing must lead to if the clauses of `rule_set` replace
/// those of the specification.
#[must_use]
pub fn rebalance_with(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    request: &Rebalance,
) -> BTreeMap<UnitName, MachineId> {
    let state = assign_all(start(rule_set, cluster, policy));
    let mut work =
        RebalanceRun { state, request, moved: BTreeSet::new(), immovable: BTreeSet::new() };
    if policy.ranking != Ranking::BinPacking {
        work.even_out();
    }
    let mut placements = out_of_reach(rule_set, cluster);
    placements.extend(work.state.placements);
    placements
}

/// The state of a rebalancing in progress.
struct RebalanceRun<'a> {
    state: PlacementState<'a>,
    request: &'a Rebalance,
    moved: BTreeSet<UnitName>,
    immovable: BTreeSet<UnitName>,
}

impl RebalanceRun<'_> {
    /// Moves one group after the other, always from the fullest machine with a movable group.
    fn even_out(&mut self) {
        let mut left: Vec<Machine> =
            self.state.cluster.machines().map(|machine| Machine::clone(machine)).collect();
        while !left.is_empty() {
            left.sort_by_key(|it| (Reverse(self.state.units_on(it).len()), it.id.clone()));
            if !self.move_one_from(&left[0]) {
                left.remove(0);
            }
        }
    }

    /// Moves the first unit by name that can leave the machine, together with its eviction group.
    /// Returns whether there is such a unit.
    fn move_one_from(&mut self, machine: &Machine) -> bool {
        let units = self.state.placed_on(machine).into_iter();
        let units: Vec<UnitName> = units.collect();
        for unit in units {
            if self.immovable.contains(&unit) {
                continue;
            }
            if self.moves(&unit, machine) {
                return true;
            }
            self.immovable.extend(tied_by_name(&self.state, &unit, machine));
        }
        false
    }

    fn moves(&mut self, unit: &UnitName, machine: &Machine) -> bool {
        let state = &self.state;
        let units = (state.rule_set.eviction_group)(state, unit.clone(), machine);
        let (without, order) = (without(state, &units), in_order(state, &units));
        let Rebalance { min_available, gain, budget: max_moves, max_group_size, ref down } =
            *self.request;
        let (moved, moved_count) = (&self.moved, self.moved.len());
        let group = EvictionGroup {
            before: state,
            without: &without,
            units: &order,
            machine,
            min_available,
            down,
            moved,
            moved_count,
            max_moves,
            max_group_size: max_group_size.unwrap_or(u32::MAX),
            gain,
        };
        if !state.rule_set.leave_clauses.iter().all(|(_, clause)| clause(&group)) {
            return false;
        }
        let Some(after) = relocated(&group) else { return false };
        self.moved.extend(units);
        self.state = after;
        true
    }
}

/// Moves the group to the first other machine that accepts all of its units and passes every
/// [`TargetClause`]. Returns the new state, or `None` if there is no such machine.
fn relocated<'a>(group: &EvictionGroup<'_, 'a>) -> Option<PlacementState<'a>> {
    let state = group.without;
    let first = single(state.cluster, group.units.first()?)?;
    let machines = (state.rule_set.machine_order)(state, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != group.machine.id);
    others.find_map(|machine| {
        let after = with_units(state, group.units, machine)?;
        let mut clauses = state.rule_set.target_clauses.iter();
        clauses.all(|(_, clause)| clause(group, machine, &after)).then_some(after)
    })
}

/// Leave clause: no unit of the group is a job.
pub(super) fn no_job(group: &EvictionGroup<'_, '_>) -> bool {
    let cluster = group.before.cluster;
    group.units.iter().all(|name| single(cluster, name).is_none_or(|unit| !unit.is_job()))
}

/// Leave clause: every unit of the group is readable, does not have `Reschedule=never`, and has not
/// been moved by the plan already.
pub(super) fn movable(group: &EvictionGroup<'_, '_>) -> bool {
    let cluster = group.before.cluster;
    group.units.iter().all(|name| {
        let placement = cluster.placement(name.as_str());
        let at_home = placement.is_some_and(|it| it.machine == group.machine.id);
        let unit = single(cluster, name);
        let willing = unit.is_some_and(|it| it.requirements.reschedule != Reschedule::Never);
        at_home && willing && !group.moved.contains(name)
    })
}

/// Leave clause: the group fits into the remaining budget.
pub(super) fn budget(group: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(group.moved_count + group.units.len()).is_ok_and(|all| all <= group.max_moves)
}

/// Leave clause: the group does not exceed the maximum group size.
pub(super) fn max_group_size(group: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(group.units.len()).is_ok_and(|units| units <= group.max_group_size)
}

/// Leave clause: enough instances stay up.
pub(super) fn min_available(group: &EvictionGroup<'_, '_>) -> bool {
    group.hold_reason(&group.units.iter().cloned().collect()).is_none()
}

/// Leave clause: once the group has left, its machine has fewer units by the size of the group. The
/// clause fails if a global unit takes the free place.
pub(super) fn globals(group: &EvictionGroup<'_, '_>) -> bool {
    let (before, after) =
        (group.before.units_on(group.machine), group.without.units_on(group.machine));
    after.len() + group.units.len() == before.len()
}

/// Target clause: the group replaces no unit on the target.
pub(super) fn replaces_none(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    group.units.iter().all(|name| replaced(group.without, name, machine).is_empty())
}

/// Target clause: no unit of the group gets a lower score than on its old machine.
pub(super) fn scores(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = group.without;
    let units = group.units.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, group.machine].map(|at| score(state, unit, at)));
    units.all(|[present, here]| present >= here)
}

/// Target clause: with the ranking `Spread`, the target has no more instances of the group's
/// templates than the old machine.
pub(super) fn instance_counts(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = group.without;
    let units = group.units.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, group.machine].map(|at| instances(state, unit, at)));
    state.policy.ranking != Ranking::Spread || units.all(|[present, here]| present <= here)
}

/// Target clause: the move is worth it. The number of units on the source before the move, minus
/// the number on the target after the move, is at least `gain` + 1.
pub(super) fn is_worth_it(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    after: &PlacementState<'_>,
) -> bool {
    let gain = usize::try_from(group.gain).unwrap_or(usize::MAX);
    let (here, present) = (group.before.units_on(group.machine), after.units_on(machine));
    here.len() > present.len().saturating_add(gain)
}
