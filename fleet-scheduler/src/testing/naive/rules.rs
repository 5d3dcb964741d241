//! "Hard rules", one function each, which returns whether a machine refuses a unit.
//! Then custom rules and scores, applied to a state.
//! The clauses of the specification are data, so that tests can exchange them.

use std::collections::BTreeSet;

use fleet_core::refusal::Rule;
use fleet_core::requirements::Reschedule;
use fleet_core::{Epoch, Machine, MachineId, Requirements, Resources, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::state::{PlacementState, is_unreadable, lacks_a_peer, requirements};
use super::{
    DrainClause, EvictionGroup, LeaveClause, TargetClause, drain, eviction_group, rebalance,
    replace,
};
use crate::HoldReason;
use crate::policy::{Candidate, View, ViewSource};
use crate::testing::naive::assign;

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

/// The clauses of `docs/explain/placement.md` that the naive planner follows.
///
/// [`RuleSet::default`] is the specification as written. A test can replace one clause, which gives
/// the naive planner a known defect. Tests that compare plans are strong enough only if they find
/// this defect.
///
/// ```
/// use fleet_core::{Machine, Snapshot};
/// use fleet_core::refusal::Rule;
/// use fleet_scheduler::testing::naive;
/// use fleet_scheduler::Policy;
///
/// let mut rule_set = naive::RuleSet::default();
/// rule_set.rules.retain(|(rule, _)| *rule != Rule::Cordon);
/// let cluster = Snapshot::default();
/// assert!(naive::plan_with(&rule_set, &cluster, &Policy::default()).is_empty());
/// # let _ = Machine::new("m1".parse().unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct RuleSet {
    /// The hard rules, in the order in which they are checked for a unit that comes to a machine.
    pub rules: Vec<(Rule, RuleFn)>,
    /// The rules that a placed unit must pass independently of other units.
    pub lasting_rules: Vec<Rule>,
    /// The rules that a placed unit must pass together with the units that were kept before it.
    pub retention_rules: Vec<Rule>,
    /// The rules that apply to global units.
    pub global_rules: Vec<Rule>,
    /// The order in which placed units are considered, lower first.
    pub seniority: fn(&Snapshot, &UnitName) -> (bool, Epoch, UnitName),
    /// Returns whether a unit keeps its placement on a machine that is not present.
    pub keeps_lost_placement: fn(&Unit) -> bool,
    /// Returns the units that a waiting unit names, out of the given set of waiting units.
    pub waiting_peers:
        fn(&PlacementState<'_>, &UnitName, &BTreeSet<UnitName>) -> BTreeSet<UnitName>,
    /// Returns all machines in the order in which a unit tries them.
    pub machine_order: for<'a> fn(&PlacementState<'a>, &Unit) -> Vec<&'a Machine>,
    /// Returns the displaced group of a unit on a machine: the unit, and the units that have to
    /// move with it.
    pub displaced_group: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// Returns whether a unit must stay on its machine. The last argument lists the units that have
    /// just come there.
    pub is_immovable: fn(&PlacementState<'_>, &UnitName, &[UnitName]) -> bool,
    /// Returns the eviction group of a unit on a machine: the unit, and the units that must leave
    /// with it.
    pub eviction_group: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// The clauses that may hold a group back from a drain. They are checked in this order, before
    /// the search for another machine.
    pub drain_clauses: Vec<(&'static str, DrainClause)>,
    /// The clause that may hold a group back after another machine was found. Its last argument
    /// lists all units that would leave their machines, including those that make room for the
    /// group.
    pub displacement_clause: fn(&EvictionGroup<'_, '_>, &BTreeSet<UnitName>) -> Option<HoldReason>,
    /// The clauses that a group must pass to leave its machine for balance.
    pub leave_clauses: Vec<(&'static str, LeaveClause)>,
    /// The clauses that the target machine must pass.
    pub target_clauses: Vec<(&'static str, TargetClause)>,
}

impl RuleSet {
    /// Returns the first rule that refuses.
    pub(super) fn refusal(&self, query: RuleQuery<'_>) -> Option<Rule> {
        let refused = self.rules.iter().find(|(_, refuses)| refuses(query));
        refused.map(|(rule, _)| *rule)
    }

    /// Returns the first of these rules that refuses.
    pub(super) fn refusal_by(&self, subset: &[Rule], query: RuleQuery<'_>) -> Option<Rule> {
        let mut rules = self.rules.iter().filter(|(rule, _)| subset.contains(rule));
        rules.find(|(_, refuses)| refuses(query)).map(|(rule, _)| *rule)
    }
}

/// Returns the specification as written.
impl Default for RuleSet {
    fn default() -> Self {
        let lasting = vec![Rule::MachineId, Rule::MachineMetadata, Rule::MachineMetadataExpr];
        Self {
            rules: vec![
                (Rule::Cordon, cordon),
                (Rule::MachineId, machine_id),
                (Rule::MachineMetadata, machine_metadata),
                (Rule::MachineMetadataExpr, machine_metadata_expr),
                (Rule::MachineOf, machine_of),
                (Rule::Conflicts, conflicts),
                (Rule::MaxPerMachine, max_per_machine),
                (Rule::Reserve, reserve),
                (Rule::Replaces, is_replaced),
            ],
            lasting_rules: lasting,
            retention_rules: vec![Rule::Conflicts, Rule::MaxPerMachine, Rule::Reserve],
            global_rules: vec![Rule::MachineMetadata, Rule::MachineMetadataExpr, Rule::Conflicts],
            seniority,
            keeps_lost_placement: |unit| unit.requirements.reschedule == Reschedule::Never,
            waiting_peers: assign::named,
            machine_order: assign::order,
            displaced_group: replace::displaced_group,
            is_immovable: replace::is_immovable,
            eviction_group: eviction_group::eviction_group,
            drain_clauses: vec![
                ("unreadable", drain::unreadable),
                ("min_available", drain::min_available),
                ("max_moves", drain::max_moves),
            ],
            displacement_clause: drain::displaced,
            leave_clauses: vec![
                ("movable", rebalance::movable),
                ("no_job", rebalance::no_job),
                ("budget", rebalance::budget),
                ("max_group_size", rebalance::max_group_size),
                ("globals", rebalance::globals),
                ("min_available", rebalance::min_available),
            ],
            target_clauses: vec![
                ("replaces_none", rebalance::replaces_none),
                ("scores", rebalance::scores),
                ("instances", rebalance::instance_counts),
                ("is_worth_it", rebalance::is_worth_it),
            ],
        }
    }
}

/// Orders unreadable units first, then by epoch of the placement, then by name.
fn seniority(cluster: &Snapshot, name: &UnitName) -> (bool, Epoch, UnitName) {
    let placement = cluster.placement(name.as_str());
    let epoch = placement.map_or(Epoch::ZERO, |placement| placement.epoch);
    (!is_unreadable(cluster, name), epoch, name.clone())
}
