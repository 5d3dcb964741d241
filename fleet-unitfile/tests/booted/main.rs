//! Compares how a booted systemd and this crate read thousands of unit files, property by property.
//!
//! This is a test binary of its own, because it boots a machine. `scripts/test --full` runs it on
//! hosts that can boot one.

mod cases;
mod expected;
mod machine;
mod options;
mod parts;
mod properties;
mod random;
mod samples;
mod systemd;
mod values;

use std::collections::BTreeMap;

use fleet_unitfile::specifier::Specifier;
use fleet_unitfile::{UnitFile, UnitType};
use serde_json::json;

use self::cases::{Case, File, case, plain, shared};
use self::expected::{Expected, World, expected};
use self::machine::Machine;
use self::random::Random;

/// Number of units that are loaded at once.
const BATCH: usize = 250;
/// Maximum number of differences that are printed in full.
const MAX_REPORTED: usize = 20;

#[test]
#[ignore = "boots a machine: run by scripts/test --full"]
fn systemd_and_crate_read_the_same_properties() {
    let seed = setting("FLEET_BOOTED_SEED", 20_140_224);
    let count = setting("FLEET_BOOTED_FILES", 2_000);
    let mut random = Random::new(seed);
    let machine = Machine::boot();
    let world = world(&machine);
    let (mut files, mut number, mut differences) = (0, 0, Vec::new());
    while files < count {
        let shared = shared(&mut random);
        let mut cases = Vec::new();
        while cases.len() < BATCH && files < count {
            number += 1;
            cases.push(case(&mut random, number));
            files += cases.last().map_or(0, |case| case.files.len() as u64);
        }
        differences.extend(compare(&machine, &world, &cases, &shared));
    }
    print(&format!("{files} files of {number} units were read, FLEET_BOOTED_SEED={seed}"));
    let reported: Vec<String> = differences.iter().take(MAX_REPORTED).cloned().collect();
    let (all, reported) = (differences.len(), reported.join("\n"));
    assert!(all == 0, "{all} differences, FLEET_BOOTED_SEED={seed}:\n{reported}");
}

/// Prints to the terminal, bypassing the captured output.
fn print(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").expect("a test can write to its standard error");
}

#[expect(clippy::disallowed_methods, reason = "the environment sets the size of the test")]
fn setting(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name}: {given}")))
}

/// Determines the facts of the machine from minimal units.
fn world(machine: &Machine) -> World {
    let types = ["service", "socket", "timer", "path", "mount", "slice", "target"];
    let types = types.iter().map(|it| it.parse::<UnitType>().expect("a type"));
    let mut probes: Vec<Case> = types.map(|it| plain(it, "")).collect();
    probes.push(plain(UnitType::Service, "MemoryMax=100%\n[Unit]\nDescription=%s\n"));
    let mut answers = systemd::ask(machine, &probes, &[]);
    let asked = answers.pop().expect("as many as were asked").properties;
    let memory = asked["MemoryMax"].as_u64().expect("a size");
    let page = machine.shell("getconf PAGESIZE").trim().parse().expect("a number");
    let shell = asked["Description"].as_str().expect("a text");
    let context = machine.context().with(Specifier::Shell, shell);
    let of_type = |(probe, answer): (&Case, systemd::SystemdUnit)| {
        (probe.name.unit_type().as_str(), answer.properties)
    };
    let plain: BTreeMap<_, _> = probes.iter().zip(answers).map(of_type).collect();
    World { context, memory: (memory, page), plain }
}

/// Loads the units of a batch with systemd and with this crate. Describes each difference, together
/// with the files of the unit.
fn compare(machine: &Machine, world: &World, cases: &[Case], shared: &[File]) -> Vec<String> {
    let answers = systemd::ask(machine, cases, shared);
    assert_eq!(answers.len(), cases.len(), "systemd answered for each unit");
    let pairs = cases.iter().zip(&answers);
    let reported = pairs.filter_map(|(case, theirs)| {
        let ours = expected(case, shared, world);
        let differences = differences(&ours, theirs);
        (!differences.is_empty()).then(|| format!("{}{}", differences.concat(), shown(case)))
    });
    reported.collect()
}

fn differences(ours: &Expected, theirs: &systemd::SystemdUnit) -> Vec<String> {
    if ours.load_state != theirs.load_state {
        let (ours, theirs) = (ours.load_state, &theirs.load_state);
        return vec![format!("LoadState: ours {ours}, systemd's {theirs}\n")];
    }
    let unequal = ours.properties.iter().filter_map(|(name, ours)| {
        let theirs = theirs.properties.get(name).cloned().unwrap_or(json!(null));
        let theirs = systemd::comparable(name, theirs);
        (*ours != theirs).then(|| format!("{name}:\n  ours      {ours}\n  systemd's {theirs}\n"))
    });
    unequal.collect()
}

fn shown(case: &Case) -> String {
    let mut text = format!("of {}\n", case.name);
    for (path, source) in &case.files {
        let source = String::from_utf8_lossy(source);
        let (_, diagnostics) = UnitFile::parse_collecting(source.as_bytes());
        text.push_str(&format!("  {path} ({} diagnostics): {source:?}\n", diagnostics.len()));
    }
    text
}
