//! "Hard rules", one function each, which returns whether a machine refuses a unit.
//! Then custom rules and scores, applied to a state.

use std::collections::BTreeSet;

use fleet_core::{Machine, MachineId, Requirements, Resources, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::state::{PlacementState, lacks_a_peer, requirements};
use crate::policy::{Candidate, View, ViewSource};

/// A placement for a rule to check.
#[derive(Debug, Clone, Copy)]
pub struct RuleQuery<'a> {
    /// The cluster, for the requirements of other units.
    pub cluster: &'a Snapshot,
    /// The unit.
    pub unit: &'a Unit,
    /// The machine.
    pub machine: &'a Machine,
    /// The units on the machine.
    pub present: &'a BTreeSet<UnitName>,
    /// The units on the machine that leave if the unit comes. These are the units that it replaces,
    /// and their displaced groups (units that would then lack a peer).
    pub leaving: &'a BTreeSet<UnitName>,
}

/// A rule, which returns whether it refuses the placement.
pub type RuleFn = fn(RuleQuery<'_>) -> bool;

pub(super) fn cordon(q: RuleQuery<'_>) -> bool {
    q.machine.cordoned
}

pub(super) fn machine_id(q: RuleQuery<'_>) -> bool {
    q.unit.requirements.machine_id.as_ref().is_some_and(|id| *id != q.machine.id)
}

pub(super) fn machine_metadata(q: RuleQuery<'_>) -> bool {
    q.unit.requirements.metadata.iter().any(|(key, values)| {
        let found = q.machine.metadata.get(key);
        !found.is_some_and(|found| values.contains(found))
    })
}

pub(super) fn machine_metadata_expr(q: RuleQuery<'_>) -> bool {
    let expression = q.unit.requirements.metadata_expr.as_ref();
    expression.is_some_and(|expression| !expression.eval(&q.machine.metadata))
}

pub(super) fn machine_of(q: RuleQuery<'_>) -> bool {
    lacks_a_peer(q.cluster, &q.unit.name, q.present)
}

pub(super) fn conflicts(q: RuleQuery<'_>) -> bool {
    let keeps_away = |one: &UnitName, other: &UnitName| {
        requirements(q.cluster, one).conflicts.iter().any(|pattern| pattern.matches(other))
    };
    let name = &q.unit.name;
    q.present
        .iter()
        .any(|other| other != name && (keeps_away(name, other) || keeps_away(other, name)))
}

pub(super) fn max_per_machine(q: RuleQuery<'_>) -> bool {
    let Some(template) = q.unit.name.template() else { return false };
    let mut all: BTreeSet<&UnitName> = q.present.difference(q.leaving).collect();
    all.retain(|name| name.template() == Some(template.clone()));
    all.insert(&q.unit.name);
    let limits = all.iter().filter_map(|name| requirements(q.cluster, name).max_per_machine);
    limits.min().is_some_and(|limit| all.len() > limit as usize)
}

pub(super) fn reserve(q: RuleQuery<'_>) -> bool {
    let mut all: BTreeSet<&UnitName> = q.present.difference(q.leaving).collect();
    all.insert(&q.unit.name);
    let wants: Vec<&Requirements> = all.iter().map(|name| requirements(q.cluster, name)).collect();
    let exceeds = |part: fn(&Resources) -> u64| {
        let sum: u128 = wants.iter().map(|wants| u128::from(part(&wants.reserve))).sum();
        sum > u128::from(part(&q.machine.offers))
    };
    exceeds(|it| it.cpu) || exceeds(|it| it.memory) || exceeds(|it| it.disk)
}

/// Returns whether a unit on the machine replaces this one. This is the first half of the rule
/// `Replaces`. The second half, that replaced units can move away, is checked in
/// [`replace`](super::replace).
pub(super) fn is_replaced(q: RuleQuery<'_>) -> bool {
    q.present.iter().any(|other| replaces(q.cluster, other, &q.unit.name))
}

/// Returns whether one unit replaces another: its `Replaces=` names the other unit, and the reverse
/// does not hold.
pub(super) fn replaces(cluster: &Snapshot, one: &UnitName, other: &UnitName) -> bool {
    let names = |one: &UnitName, other: &UnitName| {
        requirements(cluster, one).replaces.iter().any(|pattern| pattern.matches(other))
    };
    one != other && names(one, other) && !names(other, one)
}

/// A state without some units that are about to leave.
#[derive(Debug)]
struct WithoutLeaving<'a> {
    state: &'a PlacementState<'a>,
    leaving: &'a BTreeSet<UnitName>,
}

impl ViewSource for WithoutLeaving<'_> {
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>> {
        let PlacementState { cluster, placements, .. } = self.state;
        let Some(machine) = cluster.machine(machine.as_str()) else { return Vec::new() };
        let present = self.state.units_on(machine);
        let global = |name: &&UnitName| present.contains(*name) && !placements.contains_key(*name);
        let mut all: BTreeSet<&UnitName> =
            cluster.units().map(|unit| &unit.name).filter(global).collect();
        all.extend(placements.keys().filter(|name| present.contains(*name)));
        all.retain(|name| !self.leaving.contains(*name));
        all.into_iter()
            .map(|name| Candidate { name, requirements: requirements(cluster, name) })
            .collect()
    }

    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_> {
        Box::new(self.state.cluster.machines().map(AsRef::as_ref))
    }

    fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        let stays = !self.leaving.contains(unit);
        self.state.machine(self.state.placements.get(unit).filter(|_| stays)?)
    }
}

/// Returns the index of the first custom rule by which a machine refuses a unit. The rules do not
/// see the units in `leaving`, which leave the machine when the unit comes.
pub(super) fn refusal(
    state: &PlacementState<'_>,
    unit: &Unit,
    machine: &Machine,
    leaving: &BTreeSet<UnitName>,
) -> Option<usize> {
    let source = WithoutLeaving { state, leaving };
    let (view, candidate) = (View::new(&source), candidate(unit));
    let mut rules = state.policy.rules.iter();
    rules.position(|rule| rule.refuse(&view, candidate, machine).is_some())
}

/// Returns the sum of the custom scores of a machine.
pub(super) fn score(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let source = WithoutLeaving { state, leaving: &BTreeSet::new() };
    let (view, candidate) = (View::new(&source), candidate(unit));
    state.policy.scores.iter().map(|score| score.score(&view, candidate, machine)).sum()
}

fn candidate(unit: &Unit) -> Candidate<'_> {
    Candidate { name: &unit.name, requirements: &unit.requirements }
}
