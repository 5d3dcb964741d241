//! Time enters by one door in each crate that needs one, and no test waits for it to pass.

use crate::report::{Exception, Finding, settle, settle_except};
use crate::rust::{Source, names_under};
use crate::tree::rust_files;

/// The modules that own the real clock; nobody else looks at it.
const OWNERS: &[Exception] = &[
    Exception { path: "fleet-agent/src/clock.rs", reason: "it is the clock of every loop" },
    Exception {
        path: "fleet-http/src/clock.rs",
        reason: "requests, calls of the store and pauses of a stream are measured",
    },
    Exception {
        path: "fleet-store/src/clock.rs",
        reason: "a store without a server measures the leases itself, one with a server its calls",
    },
];

/// What reads the clock or waits on it: the last two parts of its path.
const READS: [(&str, &str); 7] = [
    ("Instant", "now"),
    ("SystemTime", "now"),
    ("thread", "sleep"),
    ("time", "sleep"),
    ("time", "sleep_until"),
    ("time", "interval"),
    ("time", "interval_at"),
];

#[test]
fn the_real_clock_has_one_owner() {
    let shipped = rust_files().iter().filter(|file| !file.is_aside());
    let findings = shipped.flat_map(|file| {
        let found = reads(&file.path, &file.source).into_iter();
        found.filter(|finding| !file.in_test(finding.line))
    });
    settle_except(
        findings.collect(),
        OWNERS,
        "take the time as an argument, or the clock from whoever starts the loop",
    );
}

#[test]
fn tests_wait_for_conditions() {
    let findings = rust_files().iter().flat_map(|file| {
        let found = sleeps(&file.path, &file.source).into_iter();
        found.filter(|finding| file.in_test(finding.line))
    });
    settle(
        findings.collect(),
        "wait for the condition with a deadline, in a helper whose name starts with `wait`, and \
         name the sleep by its path",
    );
}

fn reads(path: &str, source: &Source) -> Vec<Finding> {
    let found = READS.iter().flat_map(|&(parent, name)| {
        let lines = names_under(source.code(), parent).into_iter();
        let lines = lines.filter(move |(_, found)| found == name);
        lines.map(move |(line, _)| Finding::at(path, line, format!("`{parent}::{name}`")))
    });
    found.collect()
}

/// A sleep between two looks at a condition is no wait for time to pass.
fn sleeps(path: &str, source: &Source) -> Vec<Finding> {
    let polls = |line| source.function_at(line).is_some_and(|f| f.name.starts_with("wait"));
    let mut found = reads(path, source);
    found.retain(|finding| finding.what.contains("sleep") && !polls(finding.line));
    found
}

#[test]
fn clocks_and_sleeps_are_found() {
    let source = Source::new(
        "use tokio::time::{Duration, sleep};\n\
         fn f() { Instant::now(); clock.sleep(1); } // SystemTime::now\n\
         fn g() { std::thread::sleep(x); }\n\
         fn wait_until() { tokio::time::sleep(x).await; }\n",
    );
    let lines = |mut found: Vec<Finding>| {
        found.sort();
        found.into_iter().map(|f| f.line).collect::<Vec<_>>()
    };
    assert_eq!(lines(reads("a.rs", &source)), [1, 2, 3, 4]);
    assert_eq!(lines(sleeps("a.rs", &source)), [1, 3]);
}
