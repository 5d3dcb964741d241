//! No stubs, debug prints or disabled tests are left in the tree.

use crate::report::{Finding, fail_on};
use crate::rust::{Source, positions};
use crate::tree::rust_files;

/// Macros that no finished file contains.
const STUBS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

/// Macros that only a program may use: a library returns results.
const PRINTS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];

#[test]
fn no_stub_is_left() {
    fail_on(over_all(|_| true, &STUBS), "implement it, or remove the whole item");
}

#[test]
fn libraries_do_not_print() {
    let in_library = |path: &str| {
        let program = path.starts_with("fleet-bin/") || path.starts_with("examples/");
        !program && !path.contains("/examples/") && !path.contains("/benches/")
    };
    let mut findings = over_all(in_library, &PRINTS);
    findings.retain(|finding| !is_test(&finding.path, finding.line));
    fail_on(findings, "return it, or record it with `tracing`");
}

/// The end of the reason with which a test is ignored because it needs a program.
const RUN_BY_SCRIPT: &str = ": run by scripts/test --full\"";

#[test]
fn every_test_runs() {
    let findings = rust_files().iter().flat_map(|file| ignored(&file.path, &file.source));
    fail_on(
        findings.collect(),
        "make the test run everywhere: give it what it needs, or a fake of it; where only the real \
         program will do, say `#[ignore = \"needs PROGRAM: run by scripts/test --full\"]`",
    );
}

fn over_all(applies: fn(&str) -> bool, what: &[&str]) -> Vec<Finding> {
    let files = rust_files().iter().filter(|file| applies(&file.path));
    files.flat_map(|file| macros(&file.path, &file.source, what)).collect()
}

fn is_test(path: &str, line: usize) -> bool {
    rust_files().iter().any(|file| file.path == path && file.in_test(line))
}

fn macros(path: &str, source: &Source, what: &[&str]) -> Vec<Finding> {
    let lines = source.code_lines().flat_map(|(line, code)| {
        let found = what.iter().filter(move |name| calls(code, name));
        found.map(move |name| Finding::at(path, line, format!("`{name}`")))
    });
    lines.collect()
}

fn calls(code: &str, name: &str) -> bool {
    let bare = name.trim_end_matches('!');
    positions(code, bare).any(|at| code[at..].starts_with(name))
}

/// Ignored tests except those that `scripts/test` runs.
fn ignored(path: &str, source: &Source) -> Vec<Finding> {
    let lines = source.code_lines().zip(source.text().lines());
    let ignored = lines
        .filter(|((_, code), text)| code.contains("#[ignore") && !text.contains(RUN_BY_SCRIPT));
    ignored.map(|((line, _), _)| Finding::at(path, line, "an ignored test")).collect()
}

#[test]
fn leftovers_are_found_in_code_only() {
    let source =
        Source::new("//! todo!()\nfn f() { todo!(); my_print!(); print!(\"dbg!\") }\n#[ignore]\n");
    let found = |what| macros("a.rs", &source, what).len();
    assert_eq!((found(&STUBS), found(&PRINTS)), (1, 1));
    assert_eq!(ignored("a.rs", &source), [Finding::at("a.rs", 3, "an ignored test")]);
    for reason in ["needs etcd", "boots a machine"] {
        let attribute = format!("#[ignore = \"{reason}: run by scripts/test --full\"]\n");
        let elsewhere = Source::new(&attribute);
        assert_eq!(ignored("a.rs", &elsewhere), []);
    }
}
