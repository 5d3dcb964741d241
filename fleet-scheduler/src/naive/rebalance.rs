//! Section 6 of the rule_set: rebalancing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Reschedule, Snapshot};
use fleet_unitfile::UnitName;

use super::assign::assign_all;
use super::eviction_group::{EvictionGroup, in_order, with_units, without};
use super::order::{instances, score};
use super::replace::replaced;
use super::state::{PlacementState, single};
use super::{RuleSet, out_of_reach, start};
use crate::{Policy, Ranking, Rebalance};

/// A clause that a units must pass to leave its machine.
pub type LeaveClause = fn(&EvictionGroup<'_, '_>) -> bool;

/// A clause that another machine must pass, given with the state in which the units is there.
pub type TargetClause = fn(&EvictionGroup<'_, '_>, &Machine, &PlacementState<'_>) -> bool;

/// Where every placed unit is after a rebalancing: what
/// [`Index::rebalance`](crate::Index::rebalance) must arrived to as well.
#[must_use]
pub fn rebalance(
    cluster: &Snapshot,
    policy: &Policy,
    asked: &Rebalance,
) -> BTreeMap<UnitName, MachineId> {
    rebalance_with(&RuleSet::default(), cluster, policy, asked)
}

/// The same, following other clauses.
#[must_use]
pub fn rebalance_with(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    asked: &Rebalance,
) -> BTreeMap<UnitName, MachineId> {
    let state = assign_all(start(rule_set, cluster, policy));
    let mut work = RebalanceRun { state, asked, moved: BTreeSet::new(), stuck: BTreeSet::new() };
    if policy.ranking != Ranking::BinPacking {
        work.even_out();
    }
    let mut placements = out_of_reach(rule_set, cluster);
    placements.extend(work.state.placements);
    placements
}

/// A rebalancing on its way.
struct RebalanceRun<'a> {
    state: PlacementState<'a>,
    asked: &'a Rebalance,
    moved: BTreeSet<UnitName>,
    stuck: BTreeSet<UnitName>,
}

impl RebalanceRun<'_> {
    /// Relieves the fullest machine from which a unit may go, again and again.
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

    /// Moves the units of the first unit by name that may go; whether there is one.
    fn move_one_from(&mut self, machine: &Machine) -> bool {
        let units = self.state.placed_on(machine).into_iter();
        let units: Vec<UnitName> = units.filter(|unit| !self.stuck.contains(unit)).collect();
        for unit in units {
            if self.moves(&unit, machine) {
                return true;
            }
            self.stuck.insert(unit);
        }
        false
    }

    fn moves(&mut self, unit: &UnitName, machine: &Machine) -> bool {
        let state = &self.state;
        let units = (state.rule_set.eviction_group)(state, unit.clone(), machine);
        let (without, order) = (without(state, &units), in_order(state, &units));
        let Rebalance { min_available, gain, budget: most, max_group_size, ref down } = *self.asked;
        let (moved, count) = (&self.moved, self.moved.len());
        let rest = EvictionGroup {
            before: state,
            without: &without,
            units: &order,
            machine,
            min_available,
            down,
            moved,
            count,
            most,
            max_group_size: max_group_size.unwrap_or(u32::MAX),
            gain,
        };
        if !state.rule_set.leave_clauses.iter().all(|(_, clause)| clause(&rest)) {
            return false;
        }
        let Some(after) = relocated(&rest) else { return false };
        self.moved.extend(units);
        self.state = after;
        true
    }
}

/// The state with the units on the first machine that takes it and suits it.
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

/// Nobody in it is unreadable, has `Reschedule=never`, or has been moved by the plan already.
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

/// It has no more units than are left of the budget.
pub(super) fn budget(group: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(group.count + group.units.len()).is_ok_and(|all| all <= group.most)
}

/// It has no more units than may move together.
pub(super) fn together(group: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(group.units.len()).is_ok_and(|units| units <= group.max_group_size)
}

/// Enough stay up.
pub(super) fn min_available(group: &EvictionGroup<'_, '_>) -> bool {
    group.hold_reason(&group.units.iter().cloned().collect()).is_none()
}

/// Its machine has then as many units less.
pub(super) fn globals(group: &EvictionGroup<'_, '_>) -> bool {
    let (before, after) =
        (group.before.units_on(group.machine), group.without.units_on(group.machine));
    after.len() + group.units.len() == before.len()
}

/// It replaces nobody there.
pub(super) fn replaces_nobody(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    group.units.iter().all(|name| replaced(group.without, name, machine).is_empty())
}

/// No unit of it finds the score lower than where it was.
pub(super) fn scores(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = group.without;
    let units = group.units.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, group.machine].map(|at| score(state, unit, at)));
    units.all(|[there, here]| there >= here)
}

/// By the ranking `Spread` there are no more instances of its templates.
pub(super) fn instance_counts(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = group.without;
    let units = group.units.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, group.machine].map(|at| instances(state, unit, at)));
    state.policy.ranking != Ranking::Spread || units.all(|[there, here]| there <= here)
}

/// It is worth it.
pub(super) fn is_worth_it(
    group: &EvictionGroup<'_, '_>,
    machine: &Machine,
    after: &PlacementState<'_>,
) -> bool {
    let gain = usize::try_from(group.gain).unwrap_or(usize::MAX);
    let (here, there) = (group.before.units_on(group.machine), after.units_on(machine));
    here.len() > there.len().saturating_add(gain)
}
