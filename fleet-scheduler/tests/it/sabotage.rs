//! Planners with a known mistake, made by exchanging one clause of the rule_set: each is found out
//! within some thousand clusters, or the properties are worth nothing.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Machine, Rule, Snapshot};
use fleet_scheduler::naive::{self, PlacementState, RuleQuery, RuleSet};
use fleet_scheduler::strategies::{Cluster, Features, clusters};
use fleet_scheduler::{Policy, Violation, check};
use fleet_unitfile::UnitName;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::twin::plan_to;

/// Runs a planner on up to so many clusters, until a judge finds it out.
fn is_found_out(rule_set: &RuleSet, judge: impl Fn(&RuleSet, &Cluster) -> bool) -> bool {
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config }, rng);
    let found = runner.run(&clusters(Features::ALL), |cluster| {
        prop_assert!(!judge(rule_set, &cluster));
        Ok(())
    });
    match found {
        Ok(()) => false,
        Err(TestError::Fail(..)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the linter finds that a machine should have refused by a rule.
fn lint(rule: Rule) -> impl Fn(&RuleSet, &Cluster) -> bool {
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

/// Whether the placements are others than those of the rule_set.
fn compare(rule_set: &RuleSet, cluster: &Cluster) -> bool {
    let policy = Policy::default();
    naive::plan_with(rule_set, cluster, &policy) != naive::plan(cluster, &policy)
}

fn is_linted(change: impl Fn(&mut RuleSet), rule: Rule) {
    let mut rule_set = RuleSet::default();
    change(&mut rule_set);
    assert!(is_found_out(&rule_set, lint(rule)), "nobody saw that {rule} is broken");
}

fn differs(change: impl Fn(&mut RuleSet)) {
    let mut rule_set = RuleSet::default();
    change(&mut rule_set);
    assert!(is_found_out(&rule_set, compare), "the plans are all the same");
}

/// Every hard rule in turn is never asked of anybody.
// Holds: I-4
#[test]
fn a_planner_that_forgets_a_rule_is_found_by_the_linter() {
    for rule in Rule::ALL.into_iter().filter(|rule| *rule != Rule::Custom) {
        is_linted(|rule_set| rule_set.rules.retain(|(asked, _)| *asked != rule), rule);
    }
}

/// Every rule that decides who stays is asked of newcomers alone.
#[test]
fn a_planner_that_never_looks_back_is_found_by_the_linter() {
    for rule in [Rule::MachineId, Rule::MachineMetadata, Rule::MachineMetadataExpr] {
        is_linted(|rule_set| rule_set.lasting_rules.retain(|asked| *asked != rule), rule);
    }
    for rule in [Rule::Conflicts, Rule::MaxPerMachine, Rule::Reserve] {
        is_linted(|rule_set| rule_set.retention_rules.retain(|asked| *asked != rule), rule);
    }
}

/// A rule as it may be written wrong.
fn exchange(rule_set: &mut RuleSet, rule: Rule, refuses: fn(RuleQuery<'_>) -> bool) {
    for (of, asked) in &mut rule_set.rules {
        if *of == rule {
            *asked = refuses;
        }
    }
}

#[test]
fn conflicts_that_only_the_newcomer_states_are_found_by_the_linter() {
    let one_sided = |q: RuleQuery<'_>| {
        let patterns = &q.unit.requirements.conflicts;
        let others = q.there.iter().filter(|other| **other != q.unit.name);
        others.into_iter().any(|other| patterns.iter().any(|pattern| pattern.matches(other)))
    };
    is_linted(|rule_set| exchange(rule_set, Rule::Conflicts, one_sided), Rule::Conflicts);
}

#[test]
fn a_limit_that_only_the_newcomer_states_is_found_by_the_linter() {
    let own_limit = |q: RuleQuery<'_>| {
        let Some(limit) = q.unit.requirements.max_per_machine else { return false };
        let template = q.unit.name.template();
        let others = q.there.iter().filter(|other| **other != q.unit.name);
        let alike = others.filter(|other| other.template() == template).count();
        template.is_some() && alike >= limit as usize
    };
    is_linted(|rule_set| exchange(rule_set, Rule::MaxPerMachine, own_limit), Rule::MaxPerMachine);
}

#[test]
fn reservations_that_count_the_newcomer_alone_are_found_by_the_linter() {
    let alone = |q: RuleQuery<'_>| !q.unit.requirements.reserve.fits_in(q.machine.offers);
    is_linted(|rule_set| exchange(rule_set, Rule::Reserve, alone), Rule::Reserve);
}

#[test]
fn metadata_of_which_one_key_is_enough_is_found_by_the_linter() {
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
fn a_unit_that_counts_as_its_own_peer_is_found_by_the_linter() {
    let among_all = |q: RuleQuery<'_>| {
        let mut all = q.there.clone();
        all.insert(q.unit.name.clone());
        let peers = &q.unit.requirements.machine_of;
        !peers.iter().all(|peer| all.iter().any(|name| peer.covers(name)))
    };
    is_linted(|rule_set| exchange(rule_set, Rule::MachineOf, among_all), Rule::MachineOf);
}

#[test]
fn units_that_are_rescheduled_against_their_will_are_found_by_the_linter() {
    let rule_set = RuleSet { keeps_lost_placement: |_| false, ..RuleSet::default() };
    let moved = |rule_set: &RuleSet, cluster: &Cluster| {
        let is_that = |violation: &Violation| matches!(violation, Violation::MustNotMove(_));
        violations(rule_set, cluster).iter().any(is_that)
    };
    assert!(is_found_out(&rule_set, moved));
}

#[test]
fn a_train_without_its_followers_is_found_by_the_comparison() {
    differs(|rule_set| rule_set.displaced_group = |_, head, _| BTreeSet::from([head]));
}

#[test]
fn groups_that_are_placed_one_by_one_are_found_by_the_comparison() {
    differs(|rule_set| rule_set.waiting_peers = |_, _, _| BTreeSet::new());
}

#[test]
fn global_units_that_ignore_a_rule_are_found_by_the_comparison() {
    for rule in [Rule::MachineMetadata, Rule::MachineMetadataExpr, Rule::Conflicts] {
        differs(|rule_set| rule_set.global_rules.retain(|asked| *asked != rule));
    }
}

#[test]
fn seniority_by_name_alone_is_found_by_the_comparison() {
    fn by_name(_: &Snapshot, name: &UnitName) -> (bool, Epoch, UnitName) {
        (true, Epoch::ZERO, name.clone())
    }
    differs(|rule_set| rule_set.seniority = by_name);
}

#[test]
fn a_wrong_order_of_machines_is_found_by_the_comparison() {
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

/// Without preferences, the right order is that of loads.
#[test]
fn preferences_that_nobody_obeys_are_found_by_the_comparison() {
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
