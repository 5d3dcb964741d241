//! Section 5 of the letter: drains.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Rule, Snapshot};
use fleet_unitfile::UnitName;

use super::come::{come, with_group};
use super::company::{EvictionGroup, in_order, with_company, without};
use super::state::{PlacementState, is_unreadable, single};
use super::{RuleSet, out_of_reach, start};
use crate::{Drain, HoldReason, Policy};

/// What a drain must come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Where every placed unit is afterwards.
    pub places: BTreeMap<UnitName, MachineId>,
    /// Why the units that are still on the machines are held back.
    pub held: BTreeMap<UnitName, StayReason>,
}

/// Why a unit stays on a machine that is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StayReason {
    /// Not for want of a machine.
    Blocked(HoldReason),
    /// No machine takes its company; so many refuse it by each rule.
    Refused(BTreeMap<Rule, u32>),
}

/// A clause by which a company is held back.
pub type DrainClause = fn(&EvictionGroup<'_, '_>) -> Option<HoldReason>;

/// What [`Index::drain`](crate::Index::drain) must come to as well.
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
    letter: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
    asked: &Drain,
) -> DrainOutcome {
    let mut cordoned = cluster.clone();
    for machine in cluster.machines().filter(|machine| asked.machines.contains(&machine.id)) {
        cordoned.put_machine(Machine { cordoned: true, ..Machine::clone(machine) });
    }
    let state = come(start(letter, &cordoned, policy));
    let mut work = Work { state, asked, moved: BTreeSet::new(), count: 0 };
    let held = work.empty();
    let mut places = out_of_reach(letter, &cordoned);
    places.extend(work.state.places);
    DrainOutcome { places, held }
}

/// A drain on its way.
struct Work<'a> {
    state: PlacementState<'a>,
    asked: &'a Drain,
    moved: BTreeSet<UnitName>,
    count: usize,
}

impl Work<'_> {
    /// Goes through the units on the machines again and again until nobody else moves.
    fn empty(&mut self) -> BTreeMap<UnitName, StayReason> {
        loop {
            let (before, mut held) = (self.count, BTreeMap::new());
            for (name, machine) in self.left() {
                if self.state.places.get(&name) != Some(&machine.id) {
                    continue; // It went along with one before it.
                }
                if let Err(why) = self.send_away(&name, &machine) {
                    held.insert(name, why);
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

    /// Moves the company of a unit to another machine, or says why it is held back.
    fn send_away(&mut self, unit: &UnitName, machine: &Machine) -> Result<(), StayReason> {
        let state = &self.state;
        let company = (state.letter.company)(state, unit.clone(), machine);
        let (without, order) = (without(state, &company), in_order(state, &company));
        let (min_available, most) = (self.asked.min_available, self.asked.max_moves);
        let (down, moved, count) = (&self.asked.down, &self.moved, self.count);
        let rest = EvictionGroup {
            max_group_size: u32::MAX,
            before: state,
            without: &without,
            company: &order,
            machine,
            min_available,
            down,
            moved,
            count,
            most,
            gain: 0,
        };
        let mut clauses = state.letter.drain.iter();
        if let Some(held) = clauses.find_map(|(_, clause)| clause(&rest)) {
            return Err(StayReason::Blocked(held));
        }
        let Some(after) = lodged(&rest) else {
            return Err(StayReason::Refused(refusals(&rest)));
        };
        let gone = state.places.iter().filter(|(name, at)| after.places.get(*name) != Some(at));
        let gone: BTreeSet<UnitName> = gone.map(|(name, _)| name.clone()).collect();
        if let Some(held) = (state.letter.room)(&rest, &gone) {
            return Err(StayReason::Blocked(held));
        }
        self.count += company.len();
        self.moved.extend(gone);
        self.state = after;
        Ok(())
    }
}

/// The state with the company on the first machine that takes it.
fn lodged<'a>(going: &EvictionGroup<'_, 'a>) -> Option<PlacementState<'a>> {
    let state = going.without;
    let first = single(state.cluster, going.company.first()?)?;
    let machines = (state.letter.order)(state, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != going.machine.id);
    others.find_map(|machine| with_company(state, going.company, machine))
}

/// How many machines refuse a company by each rule.
fn refusals(going: &EvictionGroup<'_, '_>) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for machine in going.without.cluster.machines() {
        if let Err(refused) = with_group(going.without, going.company, machine) {
            *counts.entry(refused.rule.0).or_insert(0) += 1;
        }
    }
    counts
}

/// Clause 1: the record of one of it cannot be read.
pub(super) fn unreadable(going: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let mut company = going.company.iter();
    let unreadable = company.find(|name| is_unreadable(going.before.cluster, name));
    unreadable.cloned().map(HoldReason::Unreadable)
}

/// Clause 2: too few would be up.
pub(super) fn min_available(going: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    going.held_up(&going.company.iter().cloned().collect())
}

/// Clause 3: more would be moved than at once.
pub(super) fn max_moves(going: &EvictionGroup<'_, '_>) -> Option<HoldReason> {
    let (together, most) = (going.count + going.company.len(), going.most);
    let too_many = u32::try_from(together).map_or(true, |together| together > most);
    (too_many && (going.count > 0 || most == 0)).then_some(HoldReason::MaxMoves { max_moves: most })
}

/// Clause 5: too few would be up of those who make room.
pub(super) fn room(going: &EvictionGroup<'_, '_>, gone: &BTreeSet<UnitName>) -> Option<HoldReason> {
    going.held_up(gone)
}
