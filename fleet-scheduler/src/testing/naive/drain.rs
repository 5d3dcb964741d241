//! Section 5: drains.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::refusal::Rule;
use fleet_core::{Machine, MachineId, Snapshot};
use fleet_unitfile::UnitName;

use super::assign::{assign_all, with_group};
use super::eviction_group::{EvictionGroup, in_order, tied_by_name, with_units, without};
use super::state::{PlacementState, is_unreadable, single};
use super::{RuleSet, out_of_reach, start};
use crate::{Drain, HoldReason, Policy};

/// The required outcome of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOutcome {
    /// The machine of every placed unit after the drain.
    pub placements: BTreeMap<UnitName, MachineId>,
    /// The units that are still on the drained machines, with reasons.
    pub held: BTreeMap<UnitName, StayReason>,
}

/// Reason for which a unit stays on a drained machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StayReason {
    /// A limit of the drain holds the unit back.
    Blocked(HoldReason),
    /// No machine accepts the unit's eviction group. Counts the refusing machines by rule.
    Refused(BTreeMap<Rule, u32>),
}

/// A clause that may hold a group back.
pub type DrainClause = fn(&EvictionGroup<'_, '_>) -> Option<HoldReason>;

/// Returns the outcome that [`Cluster::drain`](crate::Cluster::drain) must have.
///
/// ```
/// use fleet_core::{Machine, Snapshot};
/// use fleet_scheduler::testing::naive;
/// use fleet_scheduler::{Drain, Policy};
///
/// let mut cluster = Snapshot::default();
/// cluster.put_machine(Machine::new("m1".parse()?));
/// let drain = Drain::new(["m1".parse()?]);
/// assert!(naive::drain(&cluster, &Policy::default(), &drain).held.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn drain(cluster: &Snapshot, policy: &Policy, request: &Drain) -> DrainOutcome {
    drain_with(&RuleSet::default(), cluster, policy, request)
}

/// Returns the outcome that a drain must have if the clauses of `rule_set` replace those of the
/// specification.
#[must_use]
pub fn drain_with(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    request: &Drain,
) -> DrainOutcome {
    let mut cordoned = cluster.clone();
    for machine in cluster.machines().filter(|machine| request.machines.contains(&machine.id)) {
        cordoned.put_machine(Machine { cordoned: true, ..Machine::clone(machine) });
    }
    let state = assign_all(start(rule_set, &cordoned, policy));
    let mut work = DrainRun { state, request, moved: BTreeSet::new(), count: 0 };
    let held = work.drain_machines();
    let mut placements = out_of_reach(rule_set, &cordoned);
    placements.extend(work.state.placements);
    DrainOutcome { placements, held }
}

/// The state of a drain in progress.
struct DrainRun<'a> {
    state: PlacementState<'a>,
    request: &'a Drain,
    moved: BTreeSet<UnitName>,
    count: usize,
}

impl DrainRun<'_> {
    /// Goes through the units on the machines repeatedly until none of them moves.
    fn drain_machines(&mut self) -> BTreeMap<UnitName, StayReason> {
        loop {
            let (before, mut held) = (self.count, BTreeMap::new());
            for (name, machine) in self.left() {
                if self.state.placements.get(&name) != Some(&machine.id) {
                    continue; // It moved with the group of an earlier unit.
                }
                if held.contains_key(&name) {
                    continue; // It was tried with a unit that is tied to it by name.
                }
                if let Err(reason) = self.evict(&name, &machine) {
                    let tied = tied_by_name(&self.state, &name, &machine).into_iter();
                    held.extend(tied.map(|name| (name, reason.clone())));
                }
            }
            if self.count == before {
                return held;
            }
        }
    }

    /// Returns the units on the machines, by machine ID, then by name.
    fn left(&self) -> Vec<(UnitName, Machine)> {
        let PlacementState { cluster, .. } = self.state;
        let ids = self.request.machines.iter();
        let present = ids.filter_map(|id| cluster.machine(id.as_str()).map(AsRef::as_ref));
        let units = present.flat_map(|machine: &Machine| {
            let present = self.state.placed_on(machine).into_iter();
            present.map(|name| (name, machine.clone()))
        });
        units.collect()
    }

    /// Moves the eviction group of a unit to another machine. If that is not possible, returns the
    /// reason to hold the unit back.
    fn evict(&mut self, unit: &UnitName, machine: &Machine) -> Result<(), StayReason> {
        let state = &self.state;
        let units = (state.rule_set.eviction_group)(state, unit.clone(), machine);
        let (without, order) = (without(state, &units), in_order(state, &units));
        let (min_available, max_moves) = (self.request.min_available, self.request.max_moves);
        let (down, moved, moved_count) = (&self.request.down, &self.moved, self.count);
        let group = EvictionGroup {
            max_group_size: u32::MAX,
            before: state,
            without: &without,
            units: &order,
            machine,
            min_available,
            down,
            moved,
            moved_count,
            max_moves,
            gain: 0,
        };
        let mut clauses = state.rule_set.drain_clauses.iter();
        if let Some(held) = clauses.find_map(|(_, clause)| clause(&group)) {
            return Err(StayReason::Blocked(held));
        }
        let Some(after) = relocated(&group) else {
            return Err(StayReason::Refused(refusals(&group)));
        };
        let gone =
            state.placements.iter().filter(|(name, at)| after.placements.get(*name) != Some(at));
        let gone: BTreeSet<UnitName> = gone.map(|(name, _)| name.clone()).collect();
        if let Some(held) = (state.rule_set.displacement_clause)(&group, &gone) {
            return Err(StayReason::Blocked(held));
        }
        self.count += units.len();
        self.moved.extend(gone);
        self.state = after;
        Ok(())
    }
}

/// Moves the group to the first other machine that accepts it. Returns the new state, or `None` if
/// there is no such machine.
fn relocated<'a>(group: &EvictionGroup<'_, 'a>) -> Option<PlacementState<'a>> {
    let state = group.without;
    let first = single(state.cluster, group.units.first()?)?;
    let machines = (state.rule_set.machine_order)(state, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != group.machine.id);
    others.find_map(|machine| with_units(state, group.units, machine))
}

/// Counts the machines that refuse a group, by rule.
fn refusals(group: &EvictionGroup<'_, '_>) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for machine in group.without.cluster.machines() {
        if let Err(refused) = with_group(group.without, group.units, machine) {
            *counts.entry(refused.rule.0).or_insert(0) += 1;
        }
    }
    counts
}

/// Clause 1: the record of a unit cannot be read.
pub(super) fn unreadable(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let mut units = group.units.iter();
    let unreadable = units.find(|name| is_unreadable(group.before.cluster, name));
    unreadable.cloned().map(HoldReason::Unreadable)
}

/// Clause 2: too few instances would be up.
pub(super) fn min_available(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    group.hold_reason(&group.units.iter().cloned().collect())
}

/// Clause 3: the plan would exceed its maximum number of moves.
pub(super) fn max_moves(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let (together, most) = (group.moved_count + group.units.len(), group.max_moves);
    let too_many = u32::try_from(together).map_or(true, |together| together > most);
    (too_many && (group.moved_count > 0 || most == 0))
        .then_some(HoldReason::MaxMoves { max_moves: most })
}

/// Clause 5: too few instances would be up, because further units have to make room for the group.
pub(super) fn displaced(
    group: &EvictionGroup<'_, '_>,
    gone: &BTreeSet<UnitName>,
) -> Option<HoldReason> {
    group.hold_reason(gone)
}
