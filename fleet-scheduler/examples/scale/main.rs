//! Measures how long plans for a large cluster take, and prints one line of JSON.
//!
//! ```text
//! cargo run --release -p fleet-scheduler --example scale -- SHAPE UNITS MACHINES
//! ```
//!
//! The cluster depends on the arguments alone; it is built before anything is measured. At first no
//! unit has a machine, so every one must be placed. The shapes:
//!
//! | shape | units |
//! |---|---|
//! | `plain` | ask for nothing |
//! | `metadata` | ask for one of three zones |
//! | `reserve` | reserve processor time and memory, nine tenths of what there is in all |
//! | `conflicts` | `Conflicts=green-*`, and all are called so |
//! | `templates` | ten of each template, `Conflicts=%p@*` |
//! | `groups` | come in fives: a leader, three that follow it and one that follows a follower |
//! | `spread` | a hundred of each template, `Spread=zone` over three zones |
//! | `pinned` | ask for one host each, by `MachineMetadata=host=` |
//! | `patterns` | have a `Conflicts=` pattern each that begins with a `*` |
//! | `beside` | come in twos, of which one follows the other by such a pattern |
//! | `restart` | are placed but for a tenth, each of which reserves more than there is |
//! | `change` | are planned, then one thing after the other changes: measures one change |
//! | `lost` | are planned, then a tenth of the machines are lost: measures that plan |
//! | `hopeless` | are planned, then come that fit and that do not in turn: measures one that fits |
//! | `explain` | are planned: measures one explanation |
//! | `shunned`, `ousted` | keep one away by `Conflicts=`, `Replaces=`: measures explaining it |
//! | `drain` | are planned, then a hundredth of the machines are drained: measures that plan |
//! | `rebalance` | are planned, then five machines join: measures a hundred moves to them |
//! | `replaced` | come in twos, of which one replaces the other: measures the coming of another |
//! | `stuck` | come in such twos side by side on full machines: measures the coming of another |
//! | `waiting` | fill a machine each, the rest replace those in vain: measures likewise |
//!
//! `seconds` and `ns_per_unit` are of the plan alone, `load_seconds` of reading the snapshot into
//! an index before; both are the best of three. `index_bytes_per_unit` is what the index keeps
//! after its plan was carried out. The shapes from `change` on add figures of their own.
#![expect(clippy::print_stdout, reason = "the result of the program is its output")]

mod clusters;
mod lives;
mod memory;
mod moves;

use std::process::ExitCode;
use std::time::Duration;

use fleet_core::{Epoch, Snapshot};
use fleet_scheduler::{Index, Plan, Policy};

const SHAPES: [&str; 22] = [
    "plain",
    "metadata",
    "reserve",
    "conflicts",
    "templates",
    "groups",
    "spread",
    "change",
    "lost",
    "hopeless",
    "explain",
    "pinned",
    "patterns",
    "beside",
    "restart",
    "shunned",
    "ousted",
    "drain",
    "rebalance",
    "replaced",
    "stuck",
    "waiting",
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

#[expect(clippy::print_stderr, reason = "how to use a program is told on standard error")]
fn usage() -> ExitCode {
    eprintln!("usage: scale {} UNITS MACHINES", SHAPES.join("|"));
    ExitCode::from(2)
}

/// What is measured of every shape.
struct Measured {
    load: Duration,
    plan: Duration,
    placed: usize,
    bytes: usize,
    more: String,
}

fn measure(shape: &str, units: usize, machines: usize) -> String {
    let cluster = clusters::cluster(shape, units, machines);
    let Measured { load, plan, placed, bytes, more } = match shape {
        "change" => lives::change(&cluster, units),
        "lost" => lives::lost(&cluster),
        "hopeless" => lives::hopeless(&cluster, units),
        "explain" => lives::explain(&cluster),
        "shunned" | "ousted" => lives::kept_away(&cluster),
        "drain" => moves::drain(&cluster),
        "rebalance" => moves::rebalance(&cluster),
        "replaced" | "stuck" | "waiting" => moves::coming(&cluster),
        _ => from_nothing(&cluster),
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

/// Loads and plans three times; the best of each.
fn from_nothing(cluster: &Snapshot) -> Measured {
    let mut best = planned(cluster).1;
    for _ in 0..2 {
        let (_, again) = planned(cluster);
        best.load = best.load.min(again.load);
        best.plan = best.plan.min(again.plan);
    }
    best
}

/// An index in which the first plan is carried out, and what that took.
fn planned(cluster: &Snapshot) -> (Index, Measured) {
    let before = memory::allocated();
    let (mut index, load) = timed(|| Index::load(Policy::default(), cluster));
    let (decided, plan): (Plan, _) = timed(|| index.plan());
    let placed = decided.steps.len();
    index.apply(&decided, Epoch(1));
    drop(decided);
    let bytes = memory::allocated().saturating_sub(before);
    (index, Measured { load, plan, placed, bytes, more: String::new() })
}

/// What a function returns, and how long it took.
#[expect(
    clippy::disallowed_methods,
    reason = "the example measures; the crate it measures does not"
)]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let result = run();
    (result, start.elapsed())
}
