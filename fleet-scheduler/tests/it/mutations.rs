//! Mutation tests: each test gives the naive planner a known defect by exchanging one clause of the
//! specification. If some thousand generated clusters do not reveal the defect, the tested
//! properties are too weak.

use std::collections::BTreeSet;

use fleet_core::refusal::Rule;
use fleet_core::{Epoch, Machine, Snapshot};
use fleet_scheduler::testing::naive::{self, PlacementState, RuleQuery, RuleSet};
use fleet_scheduler::testing::strategies::{Features, GeneratedCluster, clusters};
use fleet_scheduler::{Policy, Violation, check};
use fleet_unitfile::UnitName;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::naive_planner::plan_to;

/// Runs a planner on generated clusters until the defect is detected.
fn is_detected(rule_set: &RuleSet, detects: impl Fn(&RuleSet, &GeneratedCluster) -> bool) -> bool {
    let config = Config { cases: 50_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config }, rng);
    let found = runner.run(&clusters(Features::ALL), |cluster| {
        prop_assert!(!detects(rule_set, &cluster));
        Ok(())
    });
    match found {
        Ok(()) => false,
        Err(TestError::Fail(..)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Detects violations of a rule with the linter.
fn lint(rule: Rule) -> impl Fn(&RuleSet, &GeneratedCluster) -> bool {
    move |rule_set, cluster| {
        let broken = |violation: &Violation| match violation {
            Violation::Broken { refusal, .. } => refusal.rule() == rule,
            _ => false,
        };
        violations(rule_set, cluster).iter().any(broken)
    }
}

fn violations(rule_set: &RuleSet, cluster: &Snapshot) -> Vec<Violation> {
    let placements = naive::plan_with(rule_set, cluster, &Policy::default());
    check(cluster, &plan_to(cluster, &placements))
}

/// Detects placements that differ from the specification.
fn compare(rule_set: &RuleSet, cluster: &GeneratedCluster) -> bool {
    let policy = Policy::default();
    naive::plan_with(rule_set, cluster, &policy) != naive::plan(cluster, &policy)
}

fn is_linted(change: impl Fn(&mut RuleSet), rule: Rule) {
    let mut rule_set = RuleSet::default();
    change(&mut rule_set);
    assert!(is_detected(&rule_set, lint(rule)), "no violation of {rule} was detected");
}

fn differs(change: impl Fn(&mut RuleSet)) {
    let mut rule_set = RuleSet::default();
    change(&mut rule_set);
    assert!(is_detected(&rule_set, compare), "no plan differs");
}

/// Each hard rule in turn is missing.
// Holds: I-4
#[test]
fn linter_detects_a_missing_rule() {
    for rule in Rule::ALL.into_iter().filter(|rule| *rule != Rule::Custom) {
        is_linted(|rule_set| rule_set.rules.retain(|(request, _)| *request != rule), rule);
    }
}

/// Each retention rule in turn is checked only for units that come.
#[test]
fn linter_detects_missing_retention_rules() {
    for rule in [Rule::MachineId, Rule::MachineMetadata, Rule::MachineMetadataExpr] {
        is_linted(|rule_set| rule_set.lasting_rules.retain(|request| *request != rule), rule);
    }
    for rule in [Rule::Conflicts, Rule::MaxPerMachine, Rule::Reserve] {
        is_linted(|rule_set| rule_set.retention_rules.retain(|request| *request != rule), rule);
    }
}

/// Replaces the implementation of a rule.
fn exchange(rule_set: &mut RuleSet, rule: Rule, refuses: fn(RuleQuery<'_>) -> bool) {
    for (of, request) in &mut rule_set.rules {
        if *of == rule {
            *request = refuses;
        }
    }
}

#[test]
fn linter_detects_one_sided_conflicts() {
    let one_sided = |q: RuleQuery<'_>| {
        let patterns = &q.unit.requirements.conflicts;
        let others = q.present.iter().filter(|other| **other != q.unit.name);
        others.into_iter().any(|other| patterns.iter().any(|pattern| pattern.matches(other)))
    };
    is_linted(|rule_set| exchange(rule_set, Rule::Conflicts, one_sided), Rule::Conflicts);
}

#[test]
fn linter_detects_one_sided_limits() {
    let own_limit = |q: RuleQuery<'_>| {
        let Some(limit) = q.unit.requirements.max_per_machine else { return false };
        let template = q.unit.name.template();
        let others = q.present.iter().filter(|other| **other != q.unit.name);
        let alike = others.filter(|other| other.template() == template).count();
        template.is_some() && alike >= limit as usize
    };
    is_linted(|rule_set| exchange(rule_set, Rule::MaxPerMachine, own_limit), Rule::MaxPerMachine);
}

#[test]
fn linter_detects_reservations_without_other_units() {
    let alone = |q: RuleQuery<'_>| !q.unit.requirements.reserve.fits_in(q.machine.offers);
    is_linted(|rule_set| exchange(rule_set, Rule::Reserve, alone), Rule::Reserve);
}

#[test]
fn linter_detects_metadata_with_any_key() {
    let any_key = |q: RuleQuery<'_>| {
        let wanted = &q.unit.requirements.metadata;
        let has = |(key, values): (&String, &BTreeSet<String>)| {
            q.machine.metadata.get(key).is_some_and(|found| values.contains(found))
        };
        !wanted.is_empty() && !wanted.iter().any(has)
    };
    is_linted(
        |rule_set| {
            exchange(rule_set, Rule::MachineMetadata, any_key);
            rule_set.lasting_rules.retain(|rule| *rule != Rule::MachineMetadata);
        },
        Rule::MachineMetadata,
    );
}

#[test]
fn linter_detects_a_unit_as_its_own_peer() {
    let among_all = |q: RuleQuery<'_>| {
        let mut all = q.present.clone();
        all.insert(q.unit.name.clone());
        let peers = &q.unit.requirements.machine_of;
        !peers.iter().all(|peer| all.iter().any(|name| peer.matches(name)))
    };
    is_linted(|rule_set| exchange(rule_set, Rule::MachineOf, among_all), Rule::MachineOf);
}

#[test]
fn linter_detects_forbidden_rescheduling() {
    let rule_set = RuleSet { keeps_lost_placement: |_| false, ..RuleSet::default() };
    let moved = |rule_set: &RuleSet, cluster: &GeneratedCluster| {
        let is_that = |violation: &Violation| matches!(violation, Violation::MustNotMove(_));
        violations(rule_set, cluster).iter().any(is_that)
    };
    assert!(is_detected(&rule_set, moved));
}

#[test]
fn comparison_detects_displaced_units_without_followers() {
    differs(|rule_set| rule_set.displaced_group = |_, head, _| BTreeSet::from([head]));
}

#[test]
fn comparison_detects_groups_placed_one_by_one() {
    differs(|rule_set| rule_set.waiting_peers = |_, _, _| BTreeSet::new());
}

#[test]
fn comparison_detects_missing_global_rules() {
    for rule in [Rule::MachineMetadata, Rule::MachineMetadataExpr, Rule::Conflicts] {
        differs(|rule_set| rule_set.global_rules.retain(|request| *request != rule));
    }
}

#[test]
fn comparison_detects_seniority_by_name_alone() {
    fn by_name(_: &Snapshot, name: &UnitName) -> (bool, Epoch, UnitName) {
        (true, Epoch::ZERO, name.clone())
    }
    differs(|rule_set| rule_set.seniority = by_name);
}

#[test]
fn comparison_detects_a_wrong_machine_order() {
    // By ID alone; the highest ID first; the load without global units.
    differs(|rule_set| rule_set.machine_order = |state, _| all(state));
    differs(|rule_set| {
        rule_set.machine_order = |state, unit| {
            let mut machines = (RuleSet::default().machine_order)(state, unit);
            machines.reverse();
            machines
        };
    });
    differs(|rule_set| {
        rule_set.machine_order = |state, _| {
            let mut machines = all(state);
            machines.sort_by_key(|machine| state.placed_on(machine).len());
            machines
        };
    });
}

/// Without preferences, the correct order is by load.
#[test]
fn comparison_detects_ignored_preferences() {
    differs(|rule_set| {
        rule_set.machine_order = |state, _| {
            let mut machines = all(state);
            machines.sort_by_key(|machine| state.units_on(machine).len());
            machines
        };
    });
}

fn all<'a>(state: &PlacementState<'a>) -> Vec<&'a Machine> {
    state.cluster.machines().map(AsRef::as_ref).collect()
}
