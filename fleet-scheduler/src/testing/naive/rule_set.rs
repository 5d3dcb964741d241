//! The clauses of the specification as data, so that tests can exchange them.

use std::collections::BTreeSet;

use fleet_core::refusal::Rule;
use fleet_core::requirements::Reschedule;
use fleet_core::{Epoch, Machine, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::rules::{RuleFn, RuleQuery};
use super::state::{PlacementState, is_unreadable};
use super::{
    DrainClause, EvictionGroup, LeaveClause, TargetClause, drain, eviction_group, rebalance,
    replace, rules,
};
use crate::HoldReason;
use crate::testing::naive::assign;

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
