//! Section 6 of the letter: rebalancing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Reschedule, Snapshot};
use fleet_unitfile::UnitName;

use super::choose::{instances, score};
use super::come::come;
use super::company::{EvictionGroup, in_order, with_company, without};
use super::replacing::replaced;
use super::state::{PlacementState, single};
use super::{RuleSet, out_of_reach, start};
use crate::{Policy, Ranking, Rebalance};

/// A clause that a company must pass to leave its machine.
pub type LeaveClause = fn(&EvictionGroup<'_, '_>) -> bool;

/// A clause that another machine must pass, given with the state in which the company is there.
pub type TargetClause = fn(&EvictionGroup<'_, '_>, &Machine, &PlacementState<'_>) -> bool;

/// Where every placed unit is after a rebalancing: what
/// [`Index::rebalance`](crate::Index::rebalance) must come to as well.
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
    letter: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    asked: &Rebalance,
) -> BTreeMap<UnitName, MachineId> {
    let state = come(start(letter, cluster, policy));
    let mut work = Work { state, asked, moved: BTreeSet::new(), stuck: BTreeSet::new() };
    if policy.ranking != Ranking::BinPacking {
        work.even_out();
    }
    let mut places = out_of_reach(letter, cluster);
    places.extend(work.state.places);
    places
}

/// A rebalancing on its way.
struct Work<'a> {
    state: PlacementState<'a>,
    asked: &'a Rebalance,
    moved: BTreeSet<UnitName>,
    stuck: BTreeSet<UnitName>,
}

impl Work<'_> {
    /// Relieves the fullest machine from which a unit may go, again and again.
    fn even_out(&mut self) {
        let mut left: Vec<Machine> =
            self.state.cluster.machines().map(|machine| Machine::clone(machine)).collect();
        while !left.is_empty() {
            left.sort_by_key(|it| (Reverse(self.state.on(it).len()), it.id.clone()));
            if !self.relieve(&left[0]) {
                left.remove(0);
            }
        }
    }

    /// Moves the company of the first unit by name that may go; whether there is one.
    fn relieve(&mut self, machine: &Machine) -> bool {
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
        let company = (state.letter.company)(state, unit.clone(), machine);
        let (without, order) = (without(state, &company), in_order(state, &company));
        let Rebalance { min_available, gain, budget: most, max_group_size, ref down } = *self.asked;
        let (moved, count) = (&self.moved, self.moved.len());
        let rest = EvictionGroup {
            before: state,
            without: &without,
            company: &order,
            machine,
            min_available,
            down,
            moved,
            count,
            most,
            max_group_size: max_group_size.unwrap_or(u32::MAX),
            gain,
        };
        if !state.letter.leaves_for_balance.iter().all(|(_, clause)| clause(&rest)) {
            return false;
        }
        let Some(after) = lodged(&rest) else { return false };
        self.moved.extend(company);
        self.state = after;
        true
    }
}

/// The state with the company on the first machine that takes it and suits it.
fn lodged<'a>(going: &EvictionGroup<'_, 'a>) -> Option<PlacementState<'a>> {
    let state = going.without;
    let first = single(state.cluster, going.company.first()?)?;
    let machines = (state.letter.order)(state, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != going.machine.id);
    others.find_map(|machine| {
        let after = with_company(state, going.company, machine)?;
        let mut clauses = state.letter.suits_for_balance.iter();
        clauses.all(|(_, clause)| clause(going, machine, &after)).then_some(after)
    })
}

/// Nobody in it is unreadable, has `Reschedule=never`, or has been moved by the plan already.
pub(super) fn movable(going: &EvictionGroup<'_, '_>) -> bool {
    let cluster = going.before.cluster;
    going.company.iter().all(|name| {
        let placement = cluster.placement(name.as_str());
        let at_home = placement.is_some_and(|it| it.machine == going.machine.id);
        let unit = single(cluster, name);
        let willing = unit.is_some_and(|it| it.requirements.reschedule != Reschedule::Never);
        at_home && willing && !going.moved.contains(name)
    })
}

/// It has no more units than are left of the budget.
pub(super) fn budget(going: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(going.count + going.company.len()).is_ok_and(|all| all <= going.most)
}

/// It has no more units than may move together.
pub(super) fn together(going: &EvictionGroup<'_, '_>) -> bool {
    u32::try_from(going.company.len()).is_ok_and(|units| units <= going.max_group_size)
}

/// Enough stay up.
pub(super) fn min_available(going: &EvictionGroup<'_, '_>) -> bool {
    going.held_up(&going.company.iter().cloned().collect()).is_none()
}

/// Its machine has then as many units less.
pub(super) fn globals(going: &EvictionGroup<'_, '_>) -> bool {
    let (before, after) = (going.before.on(going.machine), going.without.on(going.machine));
    after.len() + going.company.len() == before.len()
}

/// It replaces nobody there.
pub(super) fn replaces_nobody(
    going: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    going.company.iter().all(|name| replaced(going.without, name, machine).is_empty())
}

/// No unit of it finds the score lower than where it was.
pub(super) fn scores(
    going: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = going.without;
    let units = going.company.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, going.machine].map(|at| score(state, unit, at)));
    units.all(|[there, here]| there >= here)
}

/// By the ranking `Spread` there are no more instances of its templates.
pub(super) fn instance_counts(
    going: &EvictionGroup<'_, '_>,
    machine: &Machine,
    _: &PlacementState<'_>,
) -> bool {
    let state = going.without;
    let units = going.company.iter().filter_map(|name| single(state.cluster, name));
    let mut units = units.map(|unit| [machine, going.machine].map(|at| instances(state, unit, at)));
    state.policy.ranking != Ranking::Spread || units.all(|[there, here]| there <= here)
}

/// It is worth it.
pub(super) fn is_worth_it(
    going: &EvictionGroup<'_, '_>,
    machine: &Machine,
    after: &PlacementState<'_>,
) -> bool {
    let gain = usize::try_from(going.gain).unwrap_or(usize::MAX);
    let (here, there) = (going.before.on(going.machine), after.on(machine));
    here.len() > there.len().saturating_add(gain)
}
