//! Drains and rebalancing are those of the rule_set: the planner comes to the same as its naive twin.

use std::collections::BTreeMap;

use fleet_core::{Epoch, Machine, Reason, Rule, Snapshot, Tally};
use fleet_scheduler::naive::{self, StayReason};
use fleet_scheduler::strategies::{Features, clusters, policies, wide_clusters};
use fleet_scheduler::{
    Drain, DrainPlan, HoldReason, Index, Policy, Ranking, Rebalance, apply, plan,
};
use proptest::prelude::*;

use crate::config::{cases, few_cases};
use crate::language::unit;
use crate::relocation::{drains, rebalances};
use crate::twin::placements;

type Verdict = Result<(), TestCaseError>;

/// Whether a drain moves whom the letter moves, and holds back whom it holds back, for its reason.
fn drains_by_the_letter(cluster: &Snapshot, policy: &Policy, asked: &Drain) -> Verdict {
    let told = Index::load(policy.clone(), cluster).drain(asked);
    let expected = naive::drain(cluster, policy, asked);
    prop_assert_eq!(placements(&apply(cluster, &told.plan)), expected.placements, "{}", told);
    prop_assert!(told.held.keys().eq(expected.held.keys()), "{}\n{:?}", told, expected.held);
    for (unit, why) in &expected.held {
        is_held_by_the_letter(&told, &told.held[unit], why)?;
    }
    Ok(())
}

fn is_held_by_the_letter(told: &DrainPlan, held: &HoldReason, expected: &StayReason) -> Verdict {
    match (held, expected) {
        (held, StayReason::Blocked(expected)) => prop_assert_eq!(held, expected, "{}", told),
        (HoldReason::NowhereElse(reason), StayReason::Refused(counts)) => {
            if let Reason::NoMachineFits { tallies, .. }
            | Reason::NoMachineFitsGroup { tallies, .. } = &**reason
            {
                prop_assert_eq!(&counted(tallies), counts, "{}", told);
            }
        }
        (held, expected) => prop_assert!(false, "{held:?} instead of {expected:?}: {told}"),
    }
    Ok(())
}

/// How many machines refuse by each rule, an embedder's rules counted as one.
fn counted(tallies: &[Tally]) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for tally in tallies {
        *counts.entry(tally.refusal.rule()).or_insert(0) += tally.machines;
    }
    counts
}

fn rebalances_by_the_letter(cluster: &Snapshot, policy: &Policy, asked: &Rebalance) -> Verdict {
    let plan = Index::load(policy.clone(), cluster).rebalance(asked);
    let expected = naive::rebalance(cluster, policy, asked);
    prop_assert_eq!(placements(&apply(cluster, &plan)), expected, "{}", plan);
    Ok(())
}

/// The default policy for the most part, and others.
fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => Just(Policy::default()), 1 => policies()]
}

proptest! {
    #![proptest_config(cases(3))]

    // Holds: I-18
    #[test]
    fn a_drain_is_that_of_the_letter(
        cluster in clusters(Features::ALL),
        asked in drains(),
        policy in any_policy(),
    ) {
        drains_by_the_letter(&cluster, &policy, &asked)?;
    }

    #[test]
    fn a_drain_of_a_cluster_at_rest_is_that_of_the_letter(
        cluster in clusters(Features::ALL),
        asked in drains(),
    ) {
        let cluster = apply(&cluster, &plan(&cluster));
        drains_by_the_letter(&cluster, &Policy::default(), &asked)?;
    }

    // Holds: I-18
    #[test]
    fn a_rebalancing_is_that_of_the_letter(
        cluster in clusters(Features::ALL),
        asked in rebalances(),
        policy in any_policy(),
    ) {
        rebalances_by_the_letter(&cluster, &policy, &asked)?;
    }

    #[test]
    fn a_rebalancing_with_empty_machines_is_that_of_the_letter(
        cluster in clusters(Features { cordons: false, ..Features::ALL }),
        asked in rebalances(),
        policy in any_policy(),
        empty in 1..3_u8,
    ) {
        let mut cluster = apply(&cluster, &Index::load(policy.clone(), &cluster).plan());
        for at in 0..empty {
            cluster.put_machine(Machine::new(format!("new{at}").parse().unwrap()));
        }
        rebalances_by_the_letter(&cluster, &policy, &asked)?;
    }
}

proptest! {
    #![proptest_config(few_cases(1))]

    #[test]
    fn among_many_machines_both_are_those_of_the_letter(
        cluster in wide_clusters(Features::ALL),
        drained in drains(),
        balanced in rebalances(),
    ) {
        drains_by_the_letter(&cluster, &Policy::default(), &drained)?;
        rebalances_by_the_letter(&cluster, &Policy::default(), &balanced)?;
    }
}

/// The unit could go to the empty machine; but then a global unit that it keeps away would come to
/// its own, which would have as much to do as before.
#[test]
fn nobody_moves_for_balance_if_a_global_unit_takes_its_place() {
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
    let mut index = Index::load(Policy::default(), &cluster);
    assert!(index.rebalance(&Rebalance::with_budget(5)).is_empty());
    // Without the global unit it goes.
    index.remove_unit("agent.service");
    let steps = index.rebalance(&Rebalance::with_budget(5)).steps;
    let told: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["move free.service from m1 to m2: the other machine has fewer units"]);
}

/// Where loads are to differ there is no balance to be made.
#[test]
fn the_letter_does_not_unpack_either() {
    let mut cluster = Snapshot::default();
    for id in ["m1", "m2"] {
        cluster.put_machine(Machine::new(id.parse().unwrap()));
    }
    for name in ["a.service", "b.service"] {
        cluster.put_unit(unit(name, "launched", ""));
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    let policy = Policy { ranking: Ranking::BinPacking, ..Policy::default() };
    let asked = Rebalance::with_budget(5);
    assert_eq!(naive::rebalance(&cluster, &policy, &asked), placements(&cluster));
    assert_ne!(naive::rebalance(&cluster, &Policy::default(), &asked), placements(&cluster));
}
