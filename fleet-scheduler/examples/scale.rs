//! Measures how long one plan for a large cluster takes, and prints one line of JSON.
//!
//! ```text
//! cargo run --release -p fleet-scheduler --example scale -- SHAPE UNITS MACHINES
//! ```
//!
//! No unit has a machine at first, so every one must be placed. The cluster depends on the
//! arguments alone. The shapes:
//!
//! | shape | units |
//! |---|---|
//! | `plain` | ask for nothing |
//! | `metadata` | ask for one of eight zones and one of two kinds of disk, as machines have them |
//! | `conflicts` | come in families, half as many as machines, that keep each other away |
//! | `groups` | come in fours: a leader, two that follow it and one that follows a follower |
//!
//! `seconds` and `ns_per_unit` are of the plan alone, the best of three; the cluster is built
//! before.
#![expect(clippy::print_stdout, reason = "the result of the program is its output")]

use std::process::ExitCode;
use std::time::Duration;

use fleet_core::{Machine, Requirements, Revision, Snapshot, TargetState, Unit};
use fleet_scheduler::plan;
use fleet_unitfile::UnitFile;

const SHAPES: [&str; 4] = ["plain", "metadata", "conflicts", "groups"];
const ZONES: usize = 8;
const DISKS: [&str; 2] = ["ssd", "hdd"];

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

fn measure(shape: &str, units: usize, machines: usize) -> String {
    let cluster = cluster(shape, units, machines);
    let (mut placed, mut best) = (0, Duration::MAX);
    for _ in 0..3 {
        let (decided, took) = timed(|| plan(&cluster));
        placed = decided.steps.len();
        best = best.min(took);
    }
    let ns_per_unit = best.as_nanos() / units.max(1) as u128;
    format!(
        "{{\"shape\":\"{shape}\",\"units\":{units},\"machines\":{machines},\"placed\":{placed},\
         \"seconds\":{:.6},\"ns_per_unit\":{ns_per_unit},\"peak_rss_mb\":{:.1}}}",
        best.as_secs_f64(),
        peak_rss_mb(),
    )
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

/// The most memory that the process has had, in MiB, as Linux tells; zero elsewhere.
#[expect(
    clippy::disallowed_methods,
    reason = "the example measures; the crate it measures does not"
)]
fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn cluster(shape: &str, units: usize, machines: usize) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(1);
    for index in 0..machines {
        cluster.put_machine(machine(index));
    }
    let family = (machines / 2).max(1);
    for index in 0..units {
        let (name, requirements) = match shape {
            "metadata" => (plain_name(index), with_metadata(index)),
            "conflicts" => with_conflicts(index, family),
            "groups" => in_group(index),
            _ => (plain_name(index), Requirements::default()),
        };
        let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("a unit file");
        let name = name.parse().expect("a unit name");
        cluster.put_unit(Unit::new(name, file, requirements, TargetState::Launched));
    }
    cluster
}

fn machine(index: usize) -> Machine {
    let zone = format!("z{}", index % ZONES);
    let disk = DISKS[index / ZONES % DISKS.len()];
    let id = format!("{index:032x}").parse().expect("a machine ID");
    Machine::new(id).with_metadata("zone", &zone).with_metadata("disk", disk)
}

fn plain_name(index: usize) -> String {
    format!("unit-{index:06}.service")
}

fn with_metadata(index: usize) -> Requirements {
    let one = |value: String| [value].into();
    let zone = one(format!("z{}", index % ZONES));
    let disk = one(String::from(DISKS[index / ZONES % DISKS.len()]));
    let metadata = [(String::from("zone"), zone), (String::from("disk"), disk)].into();
    Requirements { metadata, ..Requirements::default() }
}

fn with_conflicts(index: usize, family: usize) -> (String, Requirements) {
    let (prefix, member) = (index / family, index % family);
    let name = format!("family{prefix:06}@{member}.service");
    let pattern = format!("family{prefix:06}@*.service").parse().expect("a pattern");
    (name, Requirements { conflicts: vec![pattern], ..Requirements::default() })
}

fn in_group(index: usize) -> (String, Requirements) {
    let member = |at: usize| format!("group-{:06}-{at}.service", index / 4);
    let peer = match index % 4 {
        0 => None,
        1 | 2 => Some(member(0)),
        _ => Some(member(1)),
    };
    let machine_of = peer.iter().map(|name| name.parse().expect("a unit name")).collect();
    (member(index % 4), Requirements { machine_of, ..Requirements::default() })
}
