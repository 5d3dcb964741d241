//! The clauses of the rule_set that can be exchanged, to see whether a test would notice.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Machine, Reschedule, Rule, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::rules::{self, RuleFn, RuleQuery};
use super::state::{PlacementState, is_unreadable};
use super::{DrainClause, EvictionGroup, LeaveClause, TargetClause};
use super::{affinity, drain, eviction_group, order, rebalance, replace};
use crate::HoldReason;

/// What the naive planner follows: the clauses of `docs/placement.md`, as data.
///
/// [`RuleSet::default`] is the rule_set as it is written. Exchange one clause, and you have a planner
/// with a known mistake; a test that compares plans should find it.
///
/// ```
/// use fleet_core::{Machine, Rule, Snapshot};
/// use fleet_scheduler::{Policy, naive};
///
/// let mut rule_set = naive::RuleSet::default();
/// rule_set.rules.retain(|(rule, _)| *rule != Rule::Cordon);
/// let cluster = Snapshot::default();
/// assert!(naive::plan_with(&rule_set, &cluster, &Policy::default()).is_empty());
/// # let _ = Machine::new("m1".parse().unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct RuleSet {
    /// The hard rules, in the order in which they are asked of a unit that comes.
    pub rules: Vec<(Rule, RuleFn)>,
    /// The rules that a placed unit must pass to stay, whoever else is there.
    pub lasting_rules: Vec<Rule>,
    /// The rules that a placed unit must pass among those kept before it.
    pub retention_rules: Vec<Rule>,
    /// The rules that a global unit obeys.
    pub global_rules: Vec<Rule>,
    /// Who is kept before whom: lower ones first.
    pub seniority: fn(&Snapshot, &UnitName) -> (bool, Epoch, UnitName),
    /// Whether a unit keeps its placement on a machine that is not present.
    pub keeps_lost_placement: fn(&Unit) -> bool,
    /// Which of the waiting units, given last, a waiting unit names.
    pub waiting_peers:
        fn(&PlacementState<'_>, &UnitName, &BTreeSet<UnitName>) -> BTreeSet<UnitName>,
    /// All machines, in the order in which they are tried for a unit.
    pub machine_order: for<'a> fn(&PlacementState<'a>, &Unit) -> Vec<&'a Machine>,
    /// A unit on a machine, with those there that go where it goes.
    pub displaced_group: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// Whether a unit may not move away; those that have just arrived are given.
    pub is_immovable: fn(&PlacementState<'_>, &UnitName, &[UnitName]) -> bool,
    /// A unit on a machine, with those there that leave it together for a drain or for balance.
    pub eviction_group: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// What holds a units back from a drain before a machine is looked for, in this order.
    pub drain_clauses: Vec<(&'static str, DrainClause)>,
    /// What holds it back for the sake of all who would leave, those given who make room too.
    pub displacement_clause: fn(&EvictionGroup<'_, '_>, &BTreeSet<UnitName>) -> Option<HoldReason>,
    /// What a units must pass to leave its machine for balance.
    pub leave_clauses: Vec<(&'static str, LeaveClause)>,
    /// What the other machine must pass.
    pub target_clauses: Vec<(&'static str, TargetClause)>,
}

impl RuleSet {
    /// The first rule that refuses.
    pub(super) fn refusal(&self, question: RuleQuery<'_>) -> Option<Rule> {
        let refused = self.rules.iter().find(|(_, refuses)| refuses(question));
        refused.map(|(rule, _)| *rule)
    }

    /// The first of some rules that refuses.
    pub(super) fn refusal_by(&self, asked: &[Rule], question: RuleQuery<'_>) -> Option<Rule> {
        let mut rules = self.rules.iter().filter(|(rule, _)| asked.contains(rule));
        rules.find(|(_, refuses)| refuses(question)).map(|(rule, _)| *rule)
    }
}

/// The rule_set as it is written.
impl Default for RuleSet {
    fn default() -> Self {
        let lasting = vec![Rule::MachineId, Rule::MachineMetadata, Rule::MachineMetadataExpr];
        Self {
            rules: vec![
                (Rule::Cordon, rules::cordon),
                (Rule::MachineId, rules::machine_id),
                (Rule::MachineMetadata, rules::machine_metadata),
                (Rule::MachineMetadataExpr, rules::machine_metadata_expr),
                (Rule::MachineOf, rules::machine_of),
                (Rule::Conflicts, rules::conflicts),
                (Rule::MaxPerMachine, rules::max_per_machine),
                (Rule::Reserve, rules::reserve),
                (Rule::Replaces, rules::is_replaced),
            ],
            lasting_rules: lasting,
            retention_rules: vec![Rule::Conflicts, Rule::MaxPerMachine, Rule::Reserve],
            global_rules: vec![Rule::MachineMetadata, Rule::MachineMetadataExpr, Rule::Conflicts],
            seniority,
            keeps_lost_placement: |unit| unit.requirements.reschedule == Reschedule::Never,
            waiting_peers: affinity::named,
            machine_order: order::order,
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
                ("budget", rebalance::budget),
                ("together", rebalance::together),
                ("globals", rebalance::globals),
                ("min_available", rebalance::min_available),
            ],
            target_clauses: vec![
                ("replaces_nobody", rebalance::replaces_nobody),
                ("scores", rebalance::scores),
                ("instances", rebalance::instance_counts),
                ("is_worth_it", rebalance::is_worth_it),
            ],
        }
    }
}

/// Unreadable units first, then by epoch of the placement, then by name.
fn seniority(cluster: &Snapshot, name: &UnitName) -> (bool, Epoch, UnitName) {
    let placement = cluster.placement(name.as_str());
    let epoch = placement.map_or(Epoch::ZERO, |placement| placement.epoch);
    (!is_unreadable(cluster, name), epoch, name.clone())
}
