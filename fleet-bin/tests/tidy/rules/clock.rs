//! Time enters by one door, and no test waits for it to pass.

use crate::report::{Exception, Finding, settle, settle_except};
use crate::rust::{Source, mentions};
use crate::tree::rust_files;

/// The one module that owns the real clock.
const OWNER: &str = "fleet-agent/src/clock.rs";

/// What reads the clock or waits on it.
const READS: [&str; 6] = [
    "Instant::now",
    "SystemTime::now",
    "thread::sleep",
    "time::sleep",
    "time::sleep_until",
    "time::interval",
];

const SLEEPS: [&str; 3] = ["thread::sleep", "time::sleep", "time::sleep_until"];

/// Files that look at the clock although it is not theirs. The list may only become shorter.
const READERS: &[Exception] = &[];

#[test]
fn the_real_clock_has_one_owner() {
    let shipped = rust_files()
        .iter()
        .filter(|file| file.path != OWNER && !file.is_aside());
    let findings = shipped.flat_map(|file| {
        let found = reads(&file.path, &file.source).into_iter();
        found.filter(|finding| !file.in_test(finding.line))
    });
    settle_except(
        findings.collect(),
        READERS,
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
        "wait for the condition with a deadline, in a helper whose name starts with `wait_`",
    );
}

fn reads(path: &str, source: &Source) -> Vec<Finding> {
    named(path, source, &READS)
}

/// A sleep between two looks at a condition is no wait for time to pass.
fn sleeps(path: &str, source: &Source) -> Vec<Finding> {
    let polls = |line| {
        source
            .function_at(line)
            .is_some_and(|f| f.name.starts_with("wait_"))
    };
    let mut found = named(path, source, &SLEEPS);
    found.retain(|finding| !polls(finding.line));
    found
}

fn named(path: &str, source: &Source, what: &[&str]) -> Vec<Finding> {
    let lines = source.code_lines().flat_map(|(line, code)| {
        let found = what.iter().filter(move |name| mentions(code, name));
        found.map(move |name| Finding::at(path, line, format!("`{name}`")))
    });
    lines.collect()
}

#[test]
fn clocks_and_sleeps_are_found() {
    let source = Source::new(
        "fn f() { Instant::now(); clock.sleep(1); } // SystemTime::now\n\
         fn g() { std::thread::sleep(x); }\n\
         fn wait_until() { tokio::time::sleep(x).await; }\n",
    );
    let lines = |found: Vec<Finding>| found.into_iter().map(|f| f.line).collect::<Vec<_>>();
    assert_eq!(lines(reads("a.rs", &source)), [1, 2, 3]);
    assert_eq!(lines(sleeps("a.rs", &source)), [2]);
}
