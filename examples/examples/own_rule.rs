//! Adds a custom hard rule to the scheduler and tests it.
//!
//! ```text
//! cargo run -p fleet-examples --example own_rule
//! ```
//!
//! The rule allows at most two units on a machine. It is written twice. The first form is for the
//! planner, which is fast because it evaluates rules only if necessary. The second form is a clause
//! of the rule set, which the naive planner follows literally.
//!
//! The program lets both planners plan the same generated clusters, and compares the results. It
//! does this for the correct rule, and for a form of it with a deliberate defect. Finally, it shows
//! that the checker finds the violations of a planner that does not know the rule. The seed is
//! fixed, so every run is the same.
//!
//! Look at the two short forms of the rule first. Then look at the smallest cluster that exposes
//! the defect, in the program's output.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use fleet_core::Machine;
use fleet_core::refusal::Rule;
use fleet_scheduler::policy::{Candidate, HardRule, Policy, RetryOn, View};
use fleet_scheduler::testing::naive::{self, RuleQuery, RuleSet};
use fleet_scheduler::testing::strategies::{Features, GeneratedCluster, clusters};
use fleet_scheduler::{Cluster, apply, check_with, plan};
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

    /// Returns the change after which a machine that refused a unit may accept it: another unit has
    /// left the machine.
    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        let there = view.units_on(&machine.id);
        let counted = there.filter(|unit| !(self.careless && unit.requirements.global)).count();
        (counted >= MOST).then(|| format!("{counted} units are on it, {MOST} are allowed"))
    }
}

/// The same rule as a clause of the rule set. Returns whether the machine refuses the unit. Units
/// that leave in order to make room do not count, because the planner's form of the rule does not
/// see them either.
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

/// Looks for a cluster in which a plan that was made without the rule violates it. Returns the
/// smallest one, with the checker's report.
fn forgotten() -> Option<(String, GeneratedCluster)> {
    let judged = runner().run(&clusters(Features::NONE), |cluster| {
        let found = check_with(&policy(false), &cluster, &plan(&cluster));
        let violation = found.first().map(ToString::to_string);
        prop_assert!(violation.is_none(), "{}", violation.unwrap_or_default());
        Ok(())
    });
    refutation(judged)
}

fn policy(careless: bool) -> Policy {
    Policy::new().with_rule(AtMost { careless })
}

/// Compares the placements of the planner with those of the rule set, for 300 clusters. Returns the
/// smallest cluster on which they differ, and the difference. `careless` selects the rule with the
/// defect.
fn refuted(careless: bool) -> Option<(String, GeneratedCluster)> {
    let mut rule_set = RuleSet::default();
    rule_set.rules.push((Rule::Custom, at_most));
    let judged = runner().run(&clusters(Features::ALL), |cluster| {
        // The rule set has the rule as a clause, so its policy has none.
        let expected = naive::plan_with(&rule_set, &cluster, &Policy::default());
        let plan = Cluster::load(policy(careless), &cluster).plan();
        let after = apply(&cluster, &plan);
        let found = after.placements().map(|(unit, at)| (unit.clone(), at.machine.clone()));
        prop_assert!(found.eq(expected), "the rule set disagrees with\n{plan}");
        Ok(())
    });
    refutation(judged)
}

/// Returns the smallest refused cluster and the reason.
fn refutation(
    judged: Result<(), TestError<GeneratedCluster>>,
) -> Option<(String, GeneratedCluster)> {
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
