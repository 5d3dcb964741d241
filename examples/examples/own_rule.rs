//! For whoever adds a hard rule of their own to the scheduler, and wants to know that it holds.
//!
//! ```text
//! cargo run -p fleet-examples --example own_rule
//! ```
//!
//! The rule is written twice: once for the planner, which is fast and asks it only when it must,
//! and once as a clause of the letter, which the naive planner follows as plainly as can be. Then
//! both decide the same generated clusters. The seed is fixed, so every run is the same.
//!
//! The linter knows the rule as well: of a planner that does not, it finds what that one breaks.
//!
//! Look at the two short forms of the rule first, then at the cluster that is left when one of them
//! has a mistake.
#![expect(clippy::print_stdout, reason = "what the program prints is what it is for")]

use std::sync::Arc;

use fleet_core::{Machine, Rule};
use fleet_scheduler::naive::{self, Letter, Question};
use fleet_scheduler::strategies::{Cluster, Features, clusters};
use fleet_scheduler::{
    Candidate, HardRule, Index, LiftedBy, Policy, View, apply, check_with, plan,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// No more than this on one machine.
const MOST: usize = 2;

/// The rule as the planner asks it.
#[derive(Debug)]
struct AtMost {
    /// Whether global units are overlooked, which is a mistake.
    careless: bool,
}

impl HardRule for AtMost {
    fn name(&self) -> &str {
        "AtMost"
    }

    /// A machine that is full takes the unit once somebody has left.
    fn lifted_by(&self) -> LiftedBy {
        LiftedBy::Leaving
    }

    fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        let there = view.units_on(&machine.id);
        let counted = there.filter(|unit| !(self.careless && unit.requirements.global)).count();
        (counted >= MOST).then(|| format!("{counted} units are on it, {MOST} are allowed"))
    }
}

/// The same rule as a clause of the letter: whether the machine refuses. Who leaves for the unit's
/// sake does not count, nor does the planner's rule see it.
fn at_most(question: Question<'_>) -> bool {
    question.there.difference(question.leaving).count() >= MOST
}

fn main() {
    println!("== The rule as it should be\n");
    if let Some((why, cluster)) = refuted(false) {
        panic!("refuted by{cluster:?}because {why}");
    }
    println!("planner and letter agree on every cluster");
    println!("\n== A rule that overlooks global units\n");
    let (why, cluster) = refuted(true).expect("a mistake like this is found");
    println!("refuted by{cluster:?}because {why}");
    println!("\n== A planner that does not know the rule\n");
    let (why, cluster) = forgotten().expect("to forget a rule is found");
    println!("refuted by{cluster:?}because {why}");
}

/// The smallest cluster in which the plan without the rule breaks it, and what the linter says.
fn forgotten() -> Option<(String, Cluster)> {
    let judged = runner().run(&clusters(Features::NONE), |cluster| {
        let found = check_with(&policy(false), &cluster, &plan(&cluster));
        let told = found.first().map(ToString::to_string);
        prop_assert!(told.is_none(), "{}", told.unwrap_or_default());
        Ok(())
    });
    refutation(judged)
}

fn policy(careless: bool) -> Policy {
    Policy { rules: vec![Arc::new(AtMost { careless })], ..Policy::default() }
}

/// Compares where the planner and the letter put everything, for some hundred clusters; the
/// smallest one on which they differ, and how.
fn refuted(careless: bool) -> Option<(String, Cluster)> {
    let mut letter = Letter::default();
    letter.rules.push((Rule::Custom, at_most));
    let judged = runner().run(&clusters(Features::ALL), |cluster| {
        // The letter has the rule as a clause, so its policy has none.
        let expected = naive::plan_by(&letter, &cluster, &Policy::default());
        let plan = Index::load(policy(careless), &cluster).plan();
        let after = apply(&cluster, &plan);
        let found = after.placements().map(|(unit, at)| (unit.clone(), at.machine.clone()));
        prop_assert!(found.eq(expected), "the letter decides otherwise than\n{plan}");
        Ok(())
    });
    refutation(judged)
}

/// The smallest cluster that was refused, and why.
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
