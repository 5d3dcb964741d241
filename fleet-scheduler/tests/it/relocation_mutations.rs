//! Mutation tests of drains and rebalancing: each test leaves out or exchanges one clause of the
//! specification. The result must differ for some generated cluster. If random clusters would
//! reveal the difference too rarely, the test builds a specific cluster.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Machine, Snapshot};
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::testing::naive::{self, RuleSet};
use fleet_scheduler::testing::strategies::{Features, GeneratedCluster, clusters};
use fleet_scheduler::{Drain, Rebalance, apply, plan};
use fleet_unitfile::UnitName;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::language::unit;
use crate::relocation::{drains, rebalances};

/// Runs generated requests until a difference is detected.
fn is_detected<T: std::fmt::Debug>(
    request: impl Strategy<Value = T>,
    differs: impl Fn(&GeneratedCluster, &T) -> bool,
) -> bool {
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config }, rng);
    let found = runner.run(&(clusters(Features::ALL), request), |(cluster, request)| {
        prop_assert!(!differs(&cluster, &request));
        Ok(())
    });
    match found {
        Ok(()) => false,
        Err(TestError::Fail(..)) => true,
        Err(error) => panic!("{error}"),
    }
}

fn changed(change: impl Fn(&mut RuleSet)) -> RuleSet {
    let mut rule_set = RuleSet::default();
    change(&mut rule_set);
    rule_set
}

/// Returns whether a changed drain is detected.
fn drain_mutation_is_detected(change: impl Fn(&mut RuleSet)) -> bool {
    let rule_set = changed(change);
    is_detected(drains(), |cluster, request: &Drain| {
        let policy = Policy::default();
        naive::drain_with(&rule_set, cluster, &policy, request)
            != naive::drain(cluster, &policy, request)
    })
}

/// Returns whether a changed rebalancing is detected. Each cluster gets two new machines, because
/// there would be nothing to rebalance otherwise.
fn rebalance_mutation_is_detected(ranking: Ranking, change: impl Fn(&mut RuleSet)) -> bool {
    let rule_set = changed(change);
    is_detected(rebalances(), |cluster, request: &Rebalance| {
        let (cluster, policy) = (widened(cluster), Policy::new().with_ranking(ranking));
        naive::rebalance_with(&rule_set, &cluster, &policy, request)
            != naive::rebalance(&cluster, &policy, request)
    })
}

fn widened(cluster: &Snapshot) -> Snapshot {
    let mut cluster = apply(cluster, &plan(cluster));
    cluster.put_machine(Machine::new("m0".parse().unwrap()).with_metadata("disk", "x"));
    cluster.put_machine(Machine::new("m9".parse().unwrap()).with_metadata("zone", "y"));
    cluster
}

#[test]
fn missing_drain_clause_is_detected() {
    for clause in ["unreadable", "min_available", "max_moves"] {
        let found = drain_mutation_is_detected(|rule_set| {
            rule_set.drain_clauses.retain(|(name, _)| *name != clause);
        });
        assert!(found, "the missing clause {clause} was not detected");
    }
}

#[test]
fn reordered_drain_clauses_are_detected() {
    assert!(drain_mutation_is_detected(|rule_set| rule_set.drain_clauses.reverse()));
}

#[test]
fn missing_displacement_clause_is_detected() {
    let cluster = cluster(&[
        ("new.service", "m1", "Replaces=web@*"),
        ("web@1.service", "m2", ""),
        ("full.service", "m3", ""),
        ("fuller.service", "m3", ""),
    ]);
    let rule_set = changed(|rule_set| rule_set.displacement_clause = |_, _| None);
    let request = Drain::new(["m1".parse().unwrap()]).keep_available(1);
    let policy = Policy::default();
    let right = naive::drain(&cluster, &policy, &request);
    assert_ne!(naive::drain_with(&rule_set, &cluster, &policy, &request), right);
}

#[test]
fn drain_splitting_groups_is_detected() {
    assert!(drain_mutation_is_detected(
        |rule_set| rule_set.eviction_group = |_, unit, _| BTreeSet::from([unit])
    ));
}

/// With this mutation, the followers of a unit move with it, but the units that it names do not.
#[test]
fn drain_group_without_named_units_is_detected() {
    assert!(drain_mutation_is_detected(
        |rule_set| rule_set.eviction_group = RuleSet::default().displaced_group
    ));
}

#[test]
fn drain_with_arbitrary_machine_order_is_detected() {
    assert!(drain_mutation_is_detected(|rule_set| {
        rule_set.machine_order = |state, _| state.cluster.machines().map(AsRef::as_ref).collect();
    }));
}

#[test]
fn missing_leave_clause_is_detected() {
    for clause in ["movable", "no_job", "budget", "max_group_size", "min_available"] {
        let found = rebalance_mutation_is_detected(Ranking::LeastLoaded, |rule_set| {
            rule_set.leave_clauses.retain(|(name, _)| *name != clause);
        });
        assert!(found, "the missing clause {clause} was not detected");
    }
}

#[test]
fn missing_target_clause_is_detected() {
    for clause in ["replaces_none", "scores", "is_worth_it"] {
        let found = rebalance_mutation_is_detected(Ranking::LeastLoaded, |rule_set| {
            rule_set.target_clauses.retain(|(name, _)| *name != clause);
        });
        assert!(found, "the missing clause {clause} was not detected");
    }
}

#[test]
fn rebalancing_ignoring_globals_is_detected() {
    let mut cluster = cluster(&[
        ("free.service", "m1", "Conflicts=agent.service"),
        ("kept.service", "m1", "MachineID=m1"),
    ]);
    cluster.put_machine(Machine::new("m1".parse().unwrap()).with_metadata("kind", "old"));
    let global = "[X-Fleet]\nGlobal=true\nMachineMetadata=kind=old\n";
    cluster.put_unit(unit("agent.service", "launched", global));
    is_detected_in(&cluster, Ranking::LeastLoaded, |rule_set| {
        rule_set.leave_clauses.retain(|(name, _)| *name != "globals");
    });
}

/// The machine with the lower load has more instances.
#[test]
fn rebalancing_ignoring_instance_counts_is_detected() {
    let cluster = cluster(&[
        ("d@1.service", "m1", "MachineMetadataExpr=not exists far"),
        ("x1.service", "m1", "MachineID=m1"),
        ("x2.service", "m1", "MachineID=m1"),
        ("x3.service", "m1", "MachineID=m1"),
        ("d@2.service", "m2", "MachineID=m2"),
        ("full.service", "m3", "Conflicts=*"),
    ]);
    is_detected_in(&cluster, Ranking::Spread, |rule_set| {
        rule_set.target_clauses.retain(|(name, _)| *name != "instances");
    });
}

/// Returns three machines, and units with a machine and an option each.
fn cluster(units: &[(&str, &str, &str)]) -> Snapshot {
    let mut cluster = Snapshot::default();
    for id in ["m1", "m2", "m3"] {
        cluster.put_machine(Machine::new(id.parse().unwrap()));
    }
    for (name, machine, option) in units {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
        cluster.place(name.parse().unwrap(), machine.parse().unwrap(), Epoch(1));
    }
    cluster
}

fn is_detected_in(cluster: &Snapshot, ranking: Ranking, change: impl Fn(&mut RuleSet)) {
    let (rule_set, policy) = (changed(change), Policy::new().with_ranking(ranking));
    let request = Rebalance::with_budget(5);
    let right = naive::rebalance(cluster, &policy, &request);
    assert_ne!(naive::rebalance_with(&rule_set, cluster, &policy, &request), right);
    let plan = fleet_scheduler::Cluster::load(policy, cluster).rebalance(&request);
    assert_eq!(crate::naive_planner::placements(&apply(cluster, &plan)), right);
}

#[test]
fn rebalancing_off_by_one_is_detected() {
    assert!(rebalance_mutation_is_detected(Ranking::LeastLoaded, |rule_set| {
        for (name, clause) in &mut rule_set.target_clauses {
            if *name == "is_worth_it" {
                *clause = |going, machine, after| {
                    going.before.units_on(going.machine).len() >= after.units_on(machine).len()
                };
            }
        }
    }));
}

#[test]
fn rebalancing_splitting_groups_is_detected() {
    let alone: fn(&naive::PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName> =
        |_, unit, _| BTreeSet::from([unit]);
    assert!(rebalance_mutation_is_detected(Ranking::LeastLoaded, |rule_set| rule_set
        .eviction_group =
        alone));
}
