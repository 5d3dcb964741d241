//! A naive planner that follows the placement specification as plainly as possible.
//!
//! Each file implements a section of `docs/explain/placement.md` step by step. The naive planner
//! loops over all units and machines, caches nothing, and shares only the types of fleet-core with
//! the real planner. It is meant for small clusters: to verify the real planner, and to be read
//! beside the specification.

mod assign;
mod drain;
mod eviction_group;
mod keep;
mod reasons;
mod rebalance;
mod replace;
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
pub use rules::{RuleFn, RuleQuery, RuleSet};
pub use state::PlacementState;

/// Returns the placements that [`plan`](crate::plan()) must lead to.
///
/// Custom rules and scores apply as in the real planner. Custom rules are checked after all
/// built-in rules, and only for units that come to a machine.
///
/// A custom rule can itself be tested. Write it a second time as a clause of a [`RuleSet`], leave
/// the rule out of the policy, and use [`plan_with`].
///
/// ```
/// use fleet_core::{Machine, Requirements, Snapshot, TargetState, Unit};
/// use fleet_scheduler::testing::naive;
/// use fleet_scheduler::Policy;
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

/// Returns the placements that a plan must lead to if the clauses of `rule_set` replace those of
/// the specification.
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

/// Returns the kept placements of section 2, before any unit comes or moves.
#[must_use]
pub fn kept_placements(cluster: &Snapshot) -> BTreeMap<UnitName, MachineId> {
    keep::keep(&RuleSet::default(), cluster)
}

/// Returns the global units that fit on a machine beside the units placed there. The function does
/// not check that the placed units may stay.
#[must_use]
pub fn globals_on(cluster: &Snapshot, machine: &Machine) -> BTreeSet<UnitName> {
    let here = cluster.placements().filter(|(_, placement)| placement.machine == machine.id);
    let names = here.map(|(name, _)| name.clone());
    let counts = |name: &UnitName| {
        state::single(cluster, name).is_some() || state::is_unreadable(cluster, name)
    };
    state::fit_in(&RuleSet::default(), cluster, machine, &names.filter(counts).collect())
}

/// Returns the state of kept placements, before any unit comes.
fn start<'a>(
    rule_set: &'a RuleSet,
    cluster: &'a Snapshot,
    policy: &'a Policy,
) -> PlacementState<'a> {
    PlacementState { rule_set, cluster, policy, placements: keep::keep(rule_set, cluster) }
}

/// Returns the placements on absent machines that are kept. These are the placements of unreadable
/// units and of units with `Reschedule=never`.
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
