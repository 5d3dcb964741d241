//! The random campaign: many clusters, each with a sequence of operations drawn from a seed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;
use tokio::runtime::Builder;

use crate::cluster::Cluster;
use crate::host::Host;
use crate::operation::Operation;
use crate::rng::Rng;
use crate::units::{self, Workload};

/// Default number of seeds.
const RUNS: u64 = 120;

/// Default number of seeds with random requirements.
const RANDOM_RUNS: u64 = 60;

/// Number of operations before a cluster is healed.
const LENGTH: usize = 80;

/// Reads a number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

// Holds: I-1, I-2, I-3, I-4, I-5, I-7, I-8, I-9, I-10, I-12, I-14, I-18, I-21, I-22, I-23, I-25
#[test]
fn invariants_hold_under_random_faults() {
    run_all(RUNS, async |seed, log| drop(story(seed, log).await));
}

// Holds: I-1, I-2, I-3, I-4, I-5, I-7, I-8, I-9, I-10, I-12, I-14, I-18, I-21, I-22, I-23, I-25
#[test]
fn invariants_hold_for_random_requirements() {
    run_all(RANDOM_RUNS, async |seed, log| {
        drop(story_of(units::random_requirement, seed, log).await);
    });
}

/// Runs this many seeds, or the ones selected by the environment. `FLEET_FEWER_CASES=10` runs a
/// tenth of them.
pub(crate) fn run_all(runs: u64, story: impl AsyncFn(u64, &mut Vec<String>)) {
    let runs = runs / number("FLEET_FEWER_CASES").unwrap_or(1);
    let first = number("FLEET_SIM_SEED");
    let runs = number("FLEET_SIM_RUNS").unwrap_or(if first.is_some() { 1 } else { runs });
    let first = first.unwrap_or(0);
    for seed in first..first + runs {
        run(seed, &story);
    }
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in 0..10 {
        let (one, other) = (run(seed, story), run(seed, story));
        let difference = one.iter().zip(&other).find(|(one, other)| one != other);
        assert!(difference.is_none() && one.len() == other.len(), "seed {seed}: {difference:?}");
    }
}

/// Runs one seed, and prints its operations if it fails. Returns the result of `story`.
fn run<T>(seed: u64, story: impl AsyncFn(u64, &mut Vec<String>) -> T) -> T {
    let mut log = Vec::new();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime needs nothing");
    let story = AssertUnwindSafe(story(seed, &mut log)).catch_unwind();
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(story)));
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) | Err(panic) => {
            let log = log.join("\n  ");
            let message = message(&*panic);
            panic!("seed {seed} fails (FLEET_SIM_SEED={seed} replays it):\n  {log}\n{message}")
        }
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// Runs a cluster with the usual units; returns all calls that were made.
async fn story(seed: u64, log: &mut Vec<String>) -> Vec<String> {
    story_of(units::requirement, seed, log).await
}

/// Runs a cluster with units of this workload; returns all calls that were made.
async fn story_of(workload: Workload, seed: u64, log: &mut Vec<String>) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let machines = 2 + rng.below(3);
    let mut cluster = Cluster::start(machines).await;
    for _ in 0..LENGTH {
        let operation = Operation::draw(&mut rng, machines, workload);
        log.push(operation.to_string());
        operation.happen(&mut cluster).await;
        cluster.settle().await;
    }
    log.push("all is healed".to_owned());
    cluster.heal_and_rest().await;
    let events = cluster.hosts.iter().flat_map(Host::events);
    events.map(|event| format!("{event:?}")).collect()
}
