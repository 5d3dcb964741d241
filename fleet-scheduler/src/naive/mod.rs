//! The rule_set of placement once more, as slow and as obvious as can be.
//!
//! Each file is a section of `docs/placement.md` in the same order of thoughts: loops over all
//! units and machines, nothing kept from one question to the next, and no code shared with the
//! planner except the nouns of fleet-core. It is made for small clusters: to hold the planner to
//! it, and to be read beside the rule_set when the two disagree.

mod affinity;
mod assign;
mod custom;
mod drain;
mod eviction_group;
mod globals;
mod keep;
mod order;
mod reasons;
mod rebalance;
mod replace;
mod rule_set;
mod rules;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Snapshot};
use fleet_unitfile::UnitName;

use crate::Policy;

pub use drain::{DrainClause, DrainOutcome, StayReason, drain, drain_with};
pub use eviction_group::EvictionGroup;
pub use reasons::{WrongReason, check_reason, first_refusal};
pub use rebalance::{LeaveClause, TargetClause, rebalance, rebalance_with};
pub use rule_set::RuleSet;
pub use rules::{RuleFn, RuleQuery};
pub use state::PlacementState;

/// Where every placed unit is when all is done: what [`plan`](crate::plan()) must arrived to as well.
///
/// Your own rules and scores are asked as the planner asks them: after all others, and of units
/// that arrived. To test a rule itself, say it once more as a clause of a [`RuleSet`], for [`plan_with`],
/// and leave it out of the policy.
///
/// ```
/// use fleet_core::{Machine, Requirements, Snapshot, TargetState, Unit};
/// use fleet_scheduler::{Policy, naive};
/// use fleet_unitfile::UnitFile;
///
/// let mut cluster = Snapshot::default();
/// cluster.put_machine(Machine::new("m1".parse()?));
/// let (name, file) = ("web.service".parse()?, UnitFile::parse("")?);
/// cluster.put_unit(Unit::new(name, file, Requirements::default(), TargetState::Launched));
///
/// let placements = naive::plan(&cluster, &Policy::default());
/// assert_eq!(placements["web.service"].as_str(), "m1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn plan(cluster: &Snapshot, policy: &Policy) -> BTreeMap<UnitName, MachineId> {
    plan_with(&RuleSet::default(), cluster, policy)
}

/// The same, following other clauses.
#[must_use]
pub fn plan_with(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    policy: &Policy,
) -> BTreeMap<UnitName, MachineId> {
    let mut placements = out_of_reach(rule_set, cluster);
    placements.extend(assign::assign_all(start(rule_set, cluster, policy)).placements);
    placements
}

/// Where those are that stay, before anybody comes or moves for another's sake: section 2 of the
/// rule_set.
#[must_use]
pub fn kept_placements(cluster: &Snapshot) -> BTreeMap<UnitName, MachineId> {
    keep::keep(&RuleSet::default(), cluster)
}

/// The global units that fit on a machine beside the units that are placed there, without asking
/// whether these may stay.
#[must_use]
pub fn globals_on(cluster: &Snapshot, machine: &Machine) -> BTreeSet<UnitName> {
    let here = cluster.placements().filter(|(_, placement)| placement.machine == machine.id);
    let names = here.map(|(name, _)| name.clone());
    let counts = |name: &UnitName| {
        state::single(cluster, name).is_some() || state::is_unreadable(cluster, name)
    };
    globals::fit_in(&RuleSet::default(), cluster, machine, &names.filter(counts).collect())
}

/// Who stays, before anybody comes.
fn start<'a>(
    rule_set: &'a RuleSet,
    cluster: &'a Snapshot,
    policy: &'a Policy,
) -> PlacementState<'a> {
    PlacementState { rule_set, cluster, policy, placements: keep::keep(rule_set, cluster) }
}

/// The placements on machines that are not present and that nobody takes away: of units that
/// cannot be read, and of those that are not to be rescheduled.
fn out_of_reach(rule_set: &RuleSet, cluster: &Snapshot) -> BTreeMap<UnitName, MachineId> {
    let gone = cluster.placements().filter(|(_, placement)| {
        let machine = placement.machine.as_str();
        cluster.machine(machine).is_none()
    });
    let kept = gone.filter(|(name, _)| {
        let unit = state::single(cluster, name);
        state::is_unreadable(cluster, name)
            || unit.is_some_and(|unit| state::is_stranded(rule_set, cluster, unit))
    });
    kept.map(|(name, placement)| (name.clone(), placement.machine.clone())).collect()
}
