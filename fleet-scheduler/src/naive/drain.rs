//! Section 5 of the rule_set: drains.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Rule, Snapshot};
use fleet_unitfile::UnitName;

use super::assign::{assign_all, with_group};
use super::eviction_group::{EvictionGroup, in_order, with_units, without};
use super::state::{PlacementState, is_unreadable, single};
use super::{RuleSet, out_of_reach, start};
use crate::{Drain, HoldReason, Policy};

/// What a drain must arrived to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Where every placed unit is afterwards.
    pub placements: BTreeMap<UnitName, MachineId>,
    /// Why the units that are still on the machines are held back.
    pub held: BTreeMap<UnitName, StayReason>,
}

/// Why a unit stays on a machine that is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StayReason {
    /// Not for want of a machine.
    Blocked(HoldReason),
    /// No machine takes its units; so many refuse it by each rule.
    Refused(BTreeMap<Rule, u32>),
}

/// A clause by which a units is held back.
pub type DrainClause = fn(&EvictionGroup<'_, '_>) -> Option<HoldReason>;

/// What [`Index::drain`](crate::Index::drain) must arrived to as well.
///
/// ```
/// use fleet_core::{Machine, Snapshot};
/// use fleet_scheduler::{Drain, Policy, naive};
///
/// let mut cluster = Snapshot::default();
/// cluster.put_machine(Machine::new("m1".parse()?));
/// let drain = Drain::new(["m1".parse()?]);
/// assert!(naive::drain(&cluster, &Policy::default(), &drain).held.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn drain(cluster: &Snapshot, policy: &Policy, asked: &Drain) -> DrainOutcome {
    drain_with(&RuleSet::default(), cluster, policy, asked)
}

/// The same, following other clauses.
#[must_use]
pub fn drain_with(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    asked: &Drain,
) -> DrainOutcome {
    let mut cordoned = cluster.clone();
    for machine in cluster.machines().filter(|machine| asked.machines.contains(&machine.id)) {
        cordoned.put_machine(Machine { cordoned: true, ..Machine::clone(machine) });
    }
    let state = assign_all(start(rule_set, &cordoned, policy));
    let mut work = DrainRun { state, asked, moved: BTreeSet::new(), count: 0 };
    let held = work.empty();
    let mut placements = out_of_reach(rule_set, &cordoned);
    placements.extend(work.state.placements);
    DrainOutcome { placements, held }
}

/// A drain on its way.
struct DrainRun<'a> {
    state: PlacementState<'a>,
    asked: &'a Drain,
    moved: BTreeSet<UnitName>,
    count: usize,
}

impl DrainRun<'_> {
    /// Goes through the units on the machines again and again until nobody else moves.
    fn empty(&mut self) -> BTreeMap<UnitName, StayReason> {
        loop {
            let (before, mut held) = (self.count, BTreeMap::new());
            for (name, machine) in self.left() {
                if self.state.placements.get(&name) != Some(&machine.id) {
                    continue; // It went along with one before it.
                }
                if let Err(reason) = self.send_away(&name, &machine) {
                    held.insert(name, reason);
                }
            }
            if self.count == before {
                return held;
            }
        }
    }

    /// The units that are on the machines, by machine ID, then by name.
    fn left(&self) -> Vec<(UnitName, Machine)> {
        let PlacementState { cluster, .. } = self.state;
        let ids = self.asked.machines.iter();
        let present = ids.filter_map(|id| cluster.machine(id.as_str()).map(AsRef::as_ref));
        let units = present.flat_map(|machine: &Machine| {
            let there = self.state.placed_on(machine).into_iter();
            there.map(|name| (name, machine.clone()))
        });
        units.collect()
    }

    /// Moves the units of a unit to another machine, or says why it is held back.
    fn send_away(&mut self, unit: &UnitName, machine: &Machine) -> Result<(), StayReason> {
        let state = &self.state;
        let units = (state.rule_set.eviction_group)(state, unit.clone(), machine);
        let (without, order) = (without(state, &units), in_order(state, &units));
        let (min_available, most) = (self.asked.min_available, self.asked.max_moves);
        let (down, moved, count) = (&self.asked.down, &self.moved, self.count);
        let rest = EvictionGroup {
            max_group_size: u32::MAX,
            before: state,
            without: &without,
            units: &order,
            machine,
            min_available,
            down,
            moved,
            count,
            most,
            gain: 0,
        };
        let mut clauses = state.rule_set.drain_clauses.iter();
        if let Some(held) = clauses.find_map(|(_, clause)| clause(&rest)) {
            return Err(StayReason::Blocked(held));
        }
        let Some(after) = relocated(&rest) else {
            return Err(StayReason::Refused(refusals(&rest)));
        };
        let gone =
            state.placements.iter().filter(|(name, at)| after.placements.get(*name) != Some(at));
        let gone: BTreeSet<UnitName> = gone.map(|(name, _)| name.clone()).collect();
        if let Some(held) = (state.rule_set.displacement_clause)(&rest, &gone) {
            return Err(StayReason::Blocked(held));
        }
        self.count += units.len();
        self.moved.extend(gone);
        self.state = after;
        Ok(())
    }
}

/// The state with the units on the first machine that takes it.
fn relocated<'a>(group: &EvictionGroup<'_, 'a>) -> Option<PlacementState<'a>> {
    let state = group.without;
    let first = single(state.cluster, group.units.first()?)?;
    let machines = (state.rule_set.machine_order)(state, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != group.machine.id);
    others.find_map(|machine| with_units(state, group.units, machine))
}

/// How many machines refuse a units by each rule.
fn refusals(group: &EvictionGroup<'_, '_>) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for machine in group.without.cluster.machines() {
        if let Err(refused) = with_group(group.without, group.units, machine) {
            *counts.entry(refused.rule.0).or_insert(0) += 1;
        }
    }
    counts
}

/// Clause 1: the record of one of it cannot be read.
pub(super) fn unreadable(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let mut units = group.units.iter();
    let unreadable = units.find(|name| is_unreadable(group.before.cluster, name));
    unreadable.cloned().map(HoldReason::Unreadable)
}

/// Clause 2: too few would be up.
pub(super) fn min_available(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    group.hold_reason(&group.units.iter().cloned().collect())
}

/// Clause 3: more would be moved than at once.
pub(super) fn max_moves(group: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let (together, most) = (group.count + group.units.len(), group.most);
    let too_many = u32::try_from(together).map_or(true, |together| together > most);
    (too_many && (group.count > 0 || most == 0)).then_some(HoldReason::MaxMoves { max_moves: most })
}

/// Clause 5: too few would be up of those who make room.
pub(super) fn displaced(
    group: &EvictionGroup<'_, '_>,
    gone: &BTreeSet<UnitName>,
) -> Option<HoldReason> {
    group.hold_reason(gone)
}
