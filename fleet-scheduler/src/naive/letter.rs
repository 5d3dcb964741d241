//! The clauses of the letter that can be exchanged, to see whether a test would notice.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Machine, Reschedule, Rule, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::rules::{self, RuleFn, RuleQuery};
use super::state::{PlacementState, is_unreadable};
use super::{DrainClause, EvictionGroup, LeaveClause, TargetClause};
use super::{choose, company, drain, groups, rebalance, replacing};
use crate::HoldReason;

/// What the naive planner follows: the clauses of `docs/placement.md`, as data.
///
/// [`RuleSet::default`] is the letter as it is written. Exchange one clause, and you have a planner
/// with a known mistake; a test that compares plans should find it.
///
/// ```
/// use fleet_core::{Machine, Rule, Snapshot};
/// use fleet_scheduler::{Policy, naive};
///
/// let mut letter = naive::RuleSet::default();
/// letter.rules.retain(|(rule, _)| *rule != Rule::Cordon);
/// let cluster = Snapshot::default();
/// assert!(naive::plan_with(&letter, &cluster, &Policy::default()).is_empty());
/// # let _ = Machine::new("m1".parse().unwrap());
/// ```
#[derive(Debug, Clone)]
pub struct RuleSet {
    /// The hard rules, in the order in which they are asked of a unit that comes.
    pub rules: Vec<(Rule, RuleFn)>,
    /// The rules that a placed unit must pass to stay, whoever else is there.
    pub of_the_placed: Vec<Rule>,
    /// The rules that a placed unit must pass among those kept before it.
    pub of_the_kept: Vec<Rule>,
    /// The rules that a global unit obeys.
    pub of_globals: Vec<Rule>,
    /// Who is kept before whom: lower ones first.
    pub seniority: fn(&Snapshot, &UnitName) -> (bool, Epoch, UnitName),
    /// Whether a unit keeps its placement on a machine that is not present.
    pub outlives_its_machine: fn(&Unit) -> bool,
    /// Which of the waiting units, given last, a waiting unit names.
    pub names: fn(&PlacementState<'_>, &UnitName, &BTreeSet<UnitName>) -> BTreeSet<UnitName>,
    /// All machines, in the order in which they are tried for a unit.
    pub order: for<'a> fn(&PlacementState<'a>, &Unit) -> Vec<&'a Machine>,
    /// A unit on a machine, with those there that go where it goes.
    pub train: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// Whether a unit may not move away; those that have just come are given.
    pub is_held: fn(&PlacementState<'_>, &UnitName, &[UnitName]) -> bool,
    /// A unit on a machine, with those there that leave it together for a drain or for balance.
    pub company: fn(&PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName>,
    /// What holds a company back from a drain before a machine is looked for, in this order.
    pub drain: Vec<(&'static str, DrainClause)>,
    /// What holds it back for the sake of all who would leave, those given who make room too.
    pub room: fn(&EvictionGroup<'_, '_>, &BTreeSet<UnitName>) -> Option<HoldReason>,
    /// What a company must pass to leave its machine for balance.
    pub leaves_for_balance: Vec<(&'static str, LeaveClause)>,
    /// What the other machine must pass.
    pub suits_for_balance: Vec<(&'static str, TargetClause)>,
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

/// The letter as it is written.
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
            of_the_placed: lasting,
            of_the_kept: vec![Rule::Conflicts, Rule::MaxPerMachine, Rule::Reserve],
            of_globals: vec![Rule::MachineMetadata, Rule::MachineMetadataExpr, Rule::Conflicts],
            seniority,
            outlives_its_machine: |unit| unit.requirements.reschedule == Reschedule::Never,
            names: groups::named,
            order: choose::order,
            train: replacing::train,
            is_held: replacing::is_held,
            company: company::company,
            drain: vec![
                ("unreadable", drain::unreadable),
                ("min_available", drain::min_available),
                ("max_moves", drain::max_moves),
            ],
            room: drain::room,
            leaves_for_balance: vec![
                ("movable", rebalance::movable),
                ("budget", rebalance::budget),
                ("together", rebalance::together),
                ("globals", rebalance::globals),
                ("min_available", rebalance::min_available),
            ],
            suits_for_balance: vec![
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
