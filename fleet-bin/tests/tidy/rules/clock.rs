//! One module per crate may read the real clock, and no test waits for time to pass.

use crate::report::{Exception, Finding, fail_on, fail_on_except};
use crate::rust::{Source, names_under};
use crate::tree::rust_files;

/// The modules that own the real clock. All other code takes the time as an argument.
const OWNERS: &[Exception] = &[
    Exception { path: "fleet-agent/src/clock.rs", reason: "it is the clock of every loop" },
    Exception {
        path: "fleet-http/src/clock.rs",
        reason: "it measures requests and pauses, and dates forwarded requests",
    },
    Exception {
        path: "fleet-store/src/clock.rs",
        reason: "a store without a server times leases; a store client times its calls",
    },
];

/// Functions that read the clock or wait on it: the last two parts of their paths.
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
fn only_owners_read_the_real_clock() {
    let shipped = rust_files().iter().filter(|file| !file.is_auxiliary());
    let findings = shipped.flat_map(|file| {
        let found = reads(&file.path, &file.source).into_iter();
        found.filter(|finding| !file.in_test(finding.line))
    });
    fail_on_except(
        findings.collect(),
        OWNERS,
        "take the time as an argument, or take a clock from the caller that starts the loop",
    );
}

#[test]
fn tests_wait_for_conditions() {
    let findings = rust_files().iter().flat_map(|file| {
        let found = sleeps(&file.path, &file.source).into_iter();
        found.filter(|finding| file.in_test(finding.line))
    });
    fail_on(
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

/// A sleep between two checks of a condition does not count.
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
