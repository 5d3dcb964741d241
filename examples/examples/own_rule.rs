//! Adds a custom hard rule to the scheduler and tests it.
//!
//! ```text
//! cargo run -p fleet-examples --example own_rule
//! ```
//!
//! The rule is written twice: once for the planner, which is fast and evaluates it only if
//! necessary, and once as a clause of the rule set, which the naive planner follows literally. Both
//! then plan the same generated clusters. The seed is fixed, so every run is the same.
//!
//! The checker knows the rule as well: it finds the violations of a planner that does not know it.
//!
//! Look at the two short forms of the rule first, then at the minimal cluster that exposes a defect
//! in one of them.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::sync::Arc;

use fleet_core::{Machine, Rule};
use fleet_scheduler::naive::{self, RuleQuery, RuleSet};
use fleet_scheduler::strategies::{Cluster, Features, clusters};
use fleet_scheduler::{Candidate, HardRule, Index, Policy, RetryOn, View, apply, check_with, plan};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Maximum number of units on one machine.
const MOST: usize = 2;

/// The rule as the planner evaluates it.
#[derive(Debug)]
struct AtMost {
    /// Whether to ignore global units, which is a deliberate defect.
    careless: bool,
}

impl HardRule for AtMost {
    fn name(&self) -> &str {
        "AtMost"
    }

    /// A full machine accepts the unit once another one has left.
    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        let there = view.units_on(&machine.id);
        let counted = there.filter(|unit| !(self.careless && unit.requirements.global)).count();
        (counted >= MOST).then(|| format!("{counted} units are on it, {MOST} are allowed"))
    }
}

/// The same rule as a clause of the rule set: whether the machine refuses. Units that leave to make
/// room do not count here, nor does the planner's rule see them.
fn at_most(query: RuleQuery<'_>) -> bool {
    query.present.difference(query.leaving).count() >= MOST
}

fn main() {
    println!("== The rule as it should be\n");
    if let Some((why, cluster)) = refuted(false) {
        panic!("refuted by{cluster:?}because {why}");
    }
    println!("planner and rule set agree on every cluster");
    println!("\n== A rule that overlooks global units\n");
    let (why, cluster) = refuted(true).expect("the defect is found");
    println!("refuted by{cluster:?}because {why}");
    println!("\n== A planner that does not know the rule\n");
    let (why, cluster) = forgotten().expect("a missing rule is found");
    println!("refuted by{cluster:?}because {why}");
}

/// Returns the smallest cluster in which a plan without the rule violates it, with the checker's
/// report.
fn forgotten() -> Option<(String, Cluster)> {
    let judged = runner().run(&clusters(Features::NONE), |cluster| {
        let found = check_with(&policy(false), &cluster, &plan(&cluster));
        let violation = found.first().map(ToString::to_string);
        prop_assert!(violation.is_none(), "{}", violation.unwrap_or_default());
        Ok(())
    });
    refutation(judged)
}

fn policy(careless: bool) -> Policy {
    Policy { rules: vec![Arc::new(AtMost { careless })], ..Policy::default() }
}

/// Compares the placements of the planner and the rule set for some hundred clusters. Returns the
/// smallest cluster on which they differ, and the difference.
fn refuted(careless: bool) -> Option<(String, Cluster)> {
    let mut rule_set = RuleSet::default();
    rule_set.rules.push((Rule::Custom, at_most));
    let judged = runner().run(&clusters(Features::ALL), |cluster| {
        // The rule set has the rule as a clause, so its policy has none.
        let expected = naive::plan_with(&rule_set, &cluster, &Policy::default());
        let plan = Index::load(policy(careless), &cluster).plan();
        let after = apply(&cluster, &plan);
        let found = after.placements().map(|(unit, at)| (unit.clone(), at.machine.clone()));
        prop_assert!(found.eq(expected), "the rule set disagrees with\n{plan}");
        Ok(())
    });
    refutation(judged)
}

/// Returns the smallest refused cluster and the reason.
fn refutation(judged: Result<(), TestError<Cluster>>) -> Option<(String, Cluster)> {
    match judged {
        Ok(()) => None,
        Err(TestError::Fail(why, cluster)) => Some((why.to_string(), cluster)),
        Err(error) => panic!("{error}"),
    }
}

fn runner() -> TestRunner {
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}
