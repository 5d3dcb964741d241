//! Drains and rebalancing with a known mistake, made by leaving out or exchanging one clause of the
//! rule_set: each comes to something else than the letter in some generated cluster, or in one that
//! is made for it where chance would take too long.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Machine, Snapshot};
use fleet_scheduler::naive::{self, RuleSet};
use fleet_scheduler::strategies::{Cluster, Features, clusters};
use fleet_scheduler::{Drain, Policy, Ranking, Rebalance, apply, plan};
use fleet_unitfile::UnitName;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::language::unit;
use crate::relocation::{drains, rebalances};

/// Whether two judges differ for any of some thousand questions.
fn is_found_out<T: std::fmt::Debug>(
    asked: impl Strategy<Value = T>,
    differs: impl Fn(&Cluster, &T) -> bool,
) -> bool {
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config }, rng);
    let found = runner.run(&(clusters(Features::ALL), asked), |(cluster, asked)| {
        prop_assert!(!differs(&cluster, &asked));
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

/// Whether drains by the changed letter are found out.
fn drains_otherwise(change: impl Fn(&mut RuleSet)) -> bool {
    let rule_set = changed(change);
    is_found_out(drains(), |cluster, asked: &Drain| {
        let policy = Policy::default();
        naive::drain_with(&rule_set, cluster, &policy, asked)
            != naive::drain(cluster, &policy, asked)
    })
}

/// Whether rebalancing by the changed letter is found out. Some machines are new, or nothing would
/// have to be done.
fn rebalances_otherwise(ranking: Ranking, change: impl Fn(&mut RuleSet)) -> bool {
    let rule_set = changed(change);
    is_found_out(rebalances(), |cluster, asked: &Rebalance| {
        let (cluster, policy) = (widened(cluster), Policy { ranking, ..Policy::default() });
        naive::rebalance_with(&rule_set, &cluster, &policy, asked)
            != naive::rebalance(&cluster, &policy, asked)
    })
}

fn widened(cluster: &Snapshot) -> Snapshot {
    let mut cluster = apply(cluster, &plan(cluster));
    cluster.put_machine(Machine::new("m0".parse().unwrap()).with_metadata("disk", "x"));
    cluster.put_machine(Machine::new("m9".parse().unwrap()).with_metadata("zone", "y"));
    cluster
}

#[test]
fn a_drain_that_forgets_what_holds_a_company_back_is_found_out() {
    for clause in ["unreadable", "min_available", "max_moves"] {
        let found =
            drains_otherwise(|rule_set| rule_set.drain_clauses.retain(|(name, _)| *name != clause));
        assert!(found, "nobody saw that {clause} is missing");
    }
}

#[test]
fn a_drain_that_asks_in_another_order_is_found_out() {
    assert!(drains_otherwise(|rule_set| rule_set.drain_clauses.reverse()));
}

#[test]
fn a_drain_that_forgets_who_makes_room_is_found_out() {
    let cluster = cluster(&[
        ("new.service", "m1", "Replaces=web@*"),
        ("web@1.service", "m2", ""),
        ("full.service", "m3", ""),
        ("fuller.service", "m3", ""),
    ]);
    let rule_set = changed(|rule_set| rule_set.displacement_clause = |_, _| None);
    let asked = Drain { min_available: 1, ..Drain::new(["m1".parse().unwrap()]) };
    let policy = Policy::default();
    let right = naive::drain(&cluster, &policy, &asked);
    assert_ne!(naive::drain_with(&rule_set, &cluster, &policy, &asked), right);
}

#[test]
fn a_drain_that_tears_companies_apart_is_found_out() {
    assert!(drains_otherwise(
        |rule_set| rule_set.eviction_group = |_, unit, _| BTreeSet::from([unit])
    ));
}

/// Those who follow the unit go along, and those whom it follows do not.
#[test]
fn a_drain_that_forgets_whom_a_unit_names_is_found_out() {
    assert!(drains_otherwise(
        |rule_set| rule_set.eviction_group = RuleSet::default().displaced_group
    ));
}

#[test]
fn a_drain_that_takes_any_machine_is_found_out() {
    assert!(drains_otherwise(|rule_set| {
        rule_set.machine_order = |state, _| state.cluster.machines().map(AsRef::as_ref).collect();
    }));
}

#[test]
fn a_rebalancing_that_forgets_who_may_leave_is_found_out() {
    for clause in ["movable", "budget", "max_group_size", "min_available"] {
        let found = rebalances_otherwise(Ranking::LeastLoaded, |rule_set| {
            rule_set.leave_clauses.retain(|(name, _)| *name != clause);
        });
        assert!(found, "nobody saw that {clause} is missing");
    }
}

#[test]
fn a_rebalancing_that_forgets_what_suits_a_company_is_found_out() {
    for clause in ["replaces_none", "scores", "is_worth_it"] {
        let found = rebalances_otherwise(Ranking::LeastLoaded, |rule_set| {
            rule_set.target_clauses.retain(|(name, _)| *name != clause);
        });
        assert!(found, "nobody saw that {clause} is missing");
    }
}

#[test]
fn a_rebalancing_that_makes_room_for_a_global_unit_is_found_out() {
    let mut cluster = cluster(&[
        ("free.service", "m1", "Conflicts=agent.service"),
        ("kept.service", "m1", "MachineID=m1"),
    ]);
    cluster.put_machine(Machine::new("m1".parse().unwrap()).with_metadata("kind", "old"));
    let global = "[X-Fleet]\nGlobal=true\nMachineMetadata=kind=old\n";
    cluster.put_unit(unit("agent.service", "launched", global));
    is_seen_in(&cluster, Ranking::LeastLoaded, |rule_set| {
        rule_set.leave_clauses.retain(|(name, _)| *name != "globals");
    });
}

/// The machine with less to do has more instances.
#[test]
fn a_rebalancing_that_forgets_how_instances_are_spread_is_found_out() {
    let cluster = cluster(&[
        ("d@1.service", "m1", "MachineMetadataExpr=not exists far"),
        ("x1.service", "m1", "MachineID=m1"),
        ("x2.service", "m1", "MachineID=m1"),
        ("x3.service", "m1", "MachineID=m1"),
        ("d@2.service", "m2", "MachineID=m2"),
        ("full.service", "m3", "Conflicts=*"),
    ]);
    is_seen_in(&cluster, Ranking::Spread, |rule_set| {
        rule_set.target_clauses.retain(|(name, _)| *name != "instances");
    });
}

/// Three machines, and units with the machine and an option of each.
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

fn is_seen_in(cluster: &Snapshot, ranking: Ranking, change: impl Fn(&mut RuleSet)) {
    let (rule_set, policy) = (changed(change), Policy { ranking, ..Policy::default() });
    let asked = Rebalance::with_budget(5);
    let right = naive::rebalance(cluster, &policy, &asked);
    assert_ne!(naive::rebalance_with(&rule_set, cluster, &policy, &asked), right);
    let plan = fleet_scheduler::Index::load(policy, cluster).rebalance(&asked);
    assert_eq!(crate::twin::placements(&apply(cluster, &plan)), right);
}

#[test]
fn a_rebalancing_that_counts_one_too_few_is_found_out() {
    assert!(rebalances_otherwise(Ranking::LeastLoaded, |rule_set| {
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
fn a_rebalancing_that_tears_companies_apart_is_found_out() {
    let alone: fn(&naive::PlacementState<'_>, UnitName, &Machine) -> BTreeSet<UnitName> =
        |_, unit, _| BTreeSet::from([unit]);
    assert!(rebalances_otherwise(Ranking::LeastLoaded, |rule_set| rule_set.eviction_group = alone));
}
