//! The planner and the naive planner come to the same result for drains and rebalancing.

use std::collections::BTreeMap;

use fleet_core::reason::Tally;
use fleet_core::refusal::Rule;
use fleet_core::{Epoch, Machine, Reason, Snapshot};
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::testing::naive::{self, StayReason};
use fleet_scheduler::testing::strategies::{Features, clusters, policies, wide_clusters};
use fleet_scheduler::{Cluster, Drain, DrainPlan, HoldReason, Rebalance, apply, plan};
use proptest::prelude::*;

use crate::config::{cases, few_cases};
use crate::language::unit;
use crate::naive_planner::placements;
use crate::relocation::{drains, rebalances};

type Outcome = Result<(), TestCaseError>;

/// Checks that a drain moves and holds back the same units as the specification, for the same
/// reasons.
fn drains_like_the_specification(cluster: &Snapshot, policy: &Policy, request: &Drain) -> Outcome {
    let result = Cluster::load(policy.clone(), cluster).drain(request);
    let expected = naive::drain(cluster, policy, request);
    prop_assert_eq!(placements(&apply(cluster, &result.plan)), expected.placements, "{}", result);
    prop_assert!(result.held.keys().eq(expected.held.keys()), "{}\n{:?}", result, expected.held);
    for (unit, reason) in &expected.held {
        is_held_like_the_specification(&result, &result.held[unit], reason)?;
    }
    Ok(())
}

fn is_held_like_the_specification(
    result: &DrainPlan,
    held: &HoldReason,
    expected: &StayReason,
) -> Outcome {
    match (held, expected) {
        (held, StayReason::Blocked(expected)) => prop_assert_eq!(held, expected, "{}", result),
        (HoldReason::NowhereElse(reason), StayReason::Refused(counts)) => {
            if let Reason::NoMachineFits { tallies, .. }
            | Reason::NoMachineFitsGroup { tallies, .. } = &**reason
            {
                prop_assert_eq!(&counted(tallies), counts, "{}", result);
            }
        }
        (held, expected) => prop_assert!(false, "{held:?} instead of {expected:?}: {result}"),
    }
    Ok(())
}

/// Counts the refusing machines by rule, with all custom rules counted as one.
fn counted(tallies: &[Tally]) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for tally in tallies {
        *counts.entry(tally.refusal.rule()).or_insert(0) += tally.machines;
    }
    counts
}

fn rebalances_like_the_specification(
    cluster: &Snapshot,
    policy: &Policy,
    request: &Rebalance,
) -> Outcome {
    let plan = Cluster::load(policy.clone(), cluster).rebalance(request);
    let expected = naive::rebalance(cluster, policy, request);
    prop_assert_eq!(placements(&apply(cluster, &plan)), expected, "{}", plan);
    Ok(())
}

/// Generates the default policy most of the time, and others.
fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => Just(Policy::default()), 1 => policies()]
}

proptest! {
    #![proptest_config(cases(3))]

    // Holds: I-18
    #[test]
    fn drain_matches_the_specification(
        cluster in clusters(Features::ALL),
        request in drains(),
        policy in any_policy(),
    ) {
        drains_like_the_specification(&cluster, &policy, &request)?;
    }

    #[test]
    fn drain_of_a_settled_cluster_matches_the_specification(
        cluster in clusters(Features::ALL),
        request in drains(),
    ) {
        let cluster = apply(&cluster, &plan(&cluster));
        drains_like_the_specification(&cluster, &Policy::default(), &request)?;
    }

    // Holds: I-18
    #[test]
    fn rebalancing_matches_the_specification(
        cluster in clusters(Features::ALL),
        request in rebalances(),
        policy in any_policy(),
    ) {
        rebalances_like_the_specification(&cluster, &policy, &request)?;
    }

    #[test]
    fn rebalancing_to_empty_machines_matches_the_specification(
        cluster in clusters(Features { cordons: false, ..Features::ALL }),
        request in rebalances(),
        policy in any_policy(),
        empty in 1..3_u8,
    ) {
        let mut cluster = apply(&cluster, &Cluster::load(policy.clone(), &cluster).plan());
        for at in 0..empty {
            cluster.put_machine(Machine::new(format!("new{at}").parse().unwrap()));
        }
        rebalances_like_the_specification(&cluster, &policy, &request)?;
    }
}

proptest! {
    #![proptest_config(few_cases(1))]

    #[test]
    fn relocation_on_many_machines_matches_the_specification(
        cluster in wide_clusters(Features::ALL),
        drained in drains(),
        balanced in rebalances(),
    ) {
        drains_like_the_specification(&cluster, &Policy::default(), &drained)?;
        rebalances_like_the_specification(&cluster, &Policy::default(), &balanced)?;
    }
}

/// `free.service` could move to the empty machine. But it conflicts with the global unit
/// `agent.service`, which would then take the free place. The load of the old machine would stay
/// the same.
#[test]
fn no_balance_move_if_a_global_unit_takes_the_place() {
    let mut cluster = Snapshot::default();
    cluster.put_machine(Machine::new("m1".parse().unwrap()).with_metadata("kind", "old"));
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    for (name, option) in [
        ("agent.service", "Global=true\nMachineMetadata=kind=old"),
        ("free.service", "Conflicts=agent.service"),
        ("kept.service", "MachineID=m1"),
    ] {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
    }
    for name in ["free.service", "kept.service"] {
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    let mut index = Cluster::load(Policy::default(), &cluster);
    assert!(index.rebalance(&Rebalance::with_budget(5)).is_empty());
    // Without the global unit it moves.
    index.remove("agent.service");
    let steps = index.rebalance(&Rebalance::with_budget(5)).steps;
    let result: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(result, ["move free.service from m1 to m2: the other machine has fewer units"]);
}

/// With this ranking loads should differ, so there is nothing to balance.
#[test]
fn naive_rebalancing_does_not_unpack_either() {
    let mut cluster = Snapshot::default();
    for id in ["m1", "m2"] {
        cluster.put_machine(Machine::new(id.parse().unwrap()));
    }
    for name in ["a.service", "b.service"] {
        cluster.put_unit(unit(name, "launched", ""));
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    let policy = Policy::new().with_ranking(Ranking::BinPacking);
    let request = Rebalance::with_budget(5);
    assert_eq!(naive::rebalance(&cluster, &policy, &request), placements(&cluster));
    assert_ne!(naive::rebalance(&cluster, &Policy::default(), &request), placements(&cluster));
}
