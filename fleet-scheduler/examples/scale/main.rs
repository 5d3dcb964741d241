//! Measures the time of plans for a large cluster, and prints one line of JSON.
//!
//! ```text
//! cargo run --release -p fleet-scheduler --example scale -- SHAPE UNITS MACHINES
//! ```
//!
//! The cluster depends only on the arguments; it is built before the measurement. At first no unit
//! has a machine, so every unit must be placed. The shapes:
//!
//! | shape | units |
//! |---|---|
//! | `plain` | no requirements |
//! | `metadata` | one of three zones |
//! | `reserve` | CPU and memory reservations of nine tenths of the capacity |
//! | `conflicts` | `Conflicts=green-*`, with names that match it |
//! | `templates` | ten of each template, `Conflicts=%p@*` |
//! | `groups` | groups of five: a leader, three followers, and a follower of a follower |
//! | `spread` | a hundred of each template, `Spread=zone` over three zones |
//! | `pinned` | one host each, by `MachineMetadata=host=` |
//! | `patterns` | one `Conflicts=` pattern each that begins with a `*` |
//! | `followers` | pairs of which one follows the other by such a pattern |
//! | `restart` | nine tenths are placed, the others reserve more than any machine has |
//! | `change` | planned, then changed repeatedly: measures one change |
//! | `lost` | planned, then a tenth of the machines are lost: measures that plan |
//! | `unplaceable` | planned, then fitting units alternate with unplaceable ones: measures one |
//! | `explain` | planned: measures one explanation |
//! | `blocked_conflicts`, `blocked_replaces` | all keep one unit away: measures its explanation |
//! | `drain` | planned, then a hundredth of the machines are drained: measures that plan |
//! | `rebalance` | planned, then five machines join: measures a hundred moves to them |
//! | `replaced` | pairs of which one replaces the other: measures the arrival of another unit |
//! | `stuck` | such pairs on the same full machines: measures the arrival of another unit |
//! | `waiting` | units fill a machine each, replacers cannot come: measures an arrival |
//! | `star`, `chain` | all follow the first, or each the one before; put, lost, removed |
//! | `bound` | a star that cannot move: measures a drain, then a rebalancing |
//! | `common_pattern` | half follow by one pattern that matches the other half |
//! | `unmatched` | all follow by one pattern that matches no unit |
//! | `prefer`, `expression` | one `Prefer=` or `MachineMetadataExpr=` each |
//! | `packed` | a reservation of their own each, with the ranking `BinPacking` |
//!
//! `seconds` and `ns_per_unit` refer to the plan alone, `load_seconds` to the load of the snapshot
//! into an index. Both are the best of three. `index_bytes_per_unit` is the memory of the index
//! after its plan was applied. The shapes from `change` on add their own figures.
#![expect(clippy::print_stdout, reason = "the result of the program is its output")]

mod clusters;
mod groups;
mod memory;
mod moves;
mod operations;

use std::process::ExitCode;
use std::time::Duration;

use fleet_core::Snapshot;
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::{Cluster, Plan};

const SHAPES: [&str; 30] = [
    "plain",
    "metadata",
    "reserve",
    "conflicts",
    "templates",
    "groups",
    "spread",
    "change",
    "lost",
    "unplaceable",
    "explain",
    "pinned",
    "patterns",
    "followers",
    "restart",
    "blocked_conflicts",
    "blocked_replaces",
    "drain",
    "rebalance",
    "replaced",
    "stuck",
    "waiting",
    "star",
    "chain",
    "bound",
    "common_pattern",
    "unmatched",
    "prefer",
    "expression",
    "packed",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, units, machines] = &arguments[..] else { return usage() };
    let (Ok(units), Ok(machines)) = (units.parse(), machines.parse()) else { return usage() };
    if !SHAPES.contains(&shape.as_str()) {
        return usage();
    }
    println!("{}", measure(shape, units, machines));
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the usage of a program is printed to standard error")]
fn usage() -> ExitCode {
    eprintln!("usage: scale {} UNITS MACHINES", SHAPES.join("|"));
    ExitCode::from(2)
}

/// The measurements of every shape.
struct Measurement {
    load: Duration,
    plan: Duration,
    placed: usize,
    bytes: usize,
    more: String,
}

fn measure(shape: &str, units: usize, machines: usize) -> String {
    let cluster = clusters::cluster(shape, units, machines);
    let Measurement { load, plan, placed, bytes, more } = match shape {
        "change" => operations::change(&cluster, units),
        "lost" => operations::lost(&cluster),
        "unplaceable" => operations::unplaceable(&cluster, units),
        "explain" => operations::explain(&cluster),
        "blocked_conflicts" | "blocked_replaces" => operations::blocked(&cluster),
        "drain" => moves::drain(&cluster),
        "rebalance" => moves::rebalance(&cluster),
        "replaced" | "stuck" | "waiting" => moves::arrivals(&cluster),
        "star" | "chain" => groups::lost(&cluster),
        "bound" => groups::bound(&cluster),
        _ => from_nothing(&cluster, shape),
    };
    let ns_per_unit = plan.as_nanos() / units.max(1) as u128;
    format!(
        "{{\"shape\":\"{shape}\",\"units\":{units},\"machines\":{machines},\"placed\":{placed},\
         \"load_seconds\":{:.6},\"seconds\":{:.6},\"ns_per_unit\":{ns_per_unit},\
         \"index_bytes_per_unit\":{},\"peak_rss_mb\":{:.1}{more}}}",
        load.as_secs_f64(),
        plan.as_secs_f64(),
        bytes / units.max(1),
        memory::peak_rss_mb(),
    )
}

/// Loads and plans three times, and returns the best times.
fn from_nothing(cluster: &Snapshot, shape: &str) -> Measurement {
    let ranking = if shape == "packed" { Ranking::BinPacking } else { Ranking::default() };
    let policy = Policy::new().with_ranking(ranking);
    let mut best = planned_by(policy.clone(), cluster).1;
    for _ in 0..2 {
        let (_, again) = planned_by(policy.clone(), cluster);
        best.load = best.load.min(again.load);
        best.plan = best.plan.min(again.plan);
    }
    best
}

/// Returns an index with its first plan applied, and the measurements.
fn planned(cluster: &Snapshot) -> (Cluster, Measurement) {
    planned_by(Policy::default(), cluster)
}

fn planned_by(policy: Policy, cluster: &Snapshot) -> (Cluster, Measurement) {
    let before = memory::allocated();
    let (mut index, load) = timed(|| Cluster::load(policy, cluster));
    let (decided, plan): (Plan, _) = timed(|| index.plan_affected());
    let placed = decided.steps.len();
    index.apply(&decided);
    drop(decided);
    let bytes = memory::allocated().saturating_sub(before);
    (index, Measurement { load, plan, placed, bytes, more: String::new() })
}

/// Returns the result of a function, and its duration.
#[expect(
    clippy::disallowed_methods,
    reason = "the example measures; the crate it measures does not"
)]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let result = run();
    (result, start.elapsed())
}
