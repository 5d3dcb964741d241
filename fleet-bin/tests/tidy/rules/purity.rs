//! The pure crates use no clock, environment, file, socket, process, thread or random source.

use crate::report::{Finding, fail_on};
use crate::rust::{Source, mentions, names_under};
use crate::tree::{PURE, file, rust_files};

/// Modules of `std` that reach outside. `net` is absent: an address is a value; the sockets are
/// listed below.
const IMPURE_MODULES: [&str; 5] = ["env", "fs", "os", "process", "thread"];

/// Further impure items, and collections whose order differs from run to run.
const IMPURE_ITEMS: [&str; 9] = [
    "Instant::now",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "HashMap",
    "HashSet",
    "RandomState",
];

/// Items that the `clippy.toml` of a pure crate must ban, in tests too.
const BANS: [&str; 6] = [
    "std::env::var",
    "std::process::Command::new",
    "std::thread::spawn",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::collections::HashMap",
];

#[test]
fn pure_crates_forbid_unsafe_code() {
    let findings = PURE.iter().filter_map(|name| {
        let path = format!("{name}/src/lib.rs");
        let root = rust_files().iter().find(|file| file.path == path)?;
        let forbids = root.source.code().contains("#![forbid(unsafe_code)]");
        (!forbids).then(|| Finding::whole(&path, "does not forbid unsafe code"))
    });
    fail_on(findings.collect(), "add `#![forbid(unsafe_code)]`");
}

#[test]
fn pure_crates_ban_impure_items_in_clippy() {
    let findings = PURE.iter().flat_map(|name| {
        let path = format!("{name}/clippy.toml");
        let bans = file(&path).map_or("", |file| file.text.as_str());
        let missing = BANS.iter().filter(|ban| !bans.contains(&format!("\"{ban}\"")));
        let found = missing.map(|ban| Finding::whole(&path, format!("does not ban {ban}")));
        found.collect::<Vec<_>>()
    });
    fail_on(findings.collect(), "ban it in the crate's clippy.toml, with the reason");
}

#[test]
fn pure_crates_use_nothing_impure() {
    let pure = |path: &str| PURE.iter().any(|name| path.starts_with(&format!("{name}/src/")));
    let sources = rust_files().iter().filter(|file| pure(&file.path));
    let findings = sources.flat_map(|file| impure_uses(&file.path, &file.source));
    fail_on(
        findings.collect(),
        "take it as an argument, or do it in a crate that may; for a map, use `BTreeMap`",
    );
}

/// A module of another crate may promise purity by a `//! Pure: ` line.
#[test]
fn modules_marked_pure_are_pure() {
    let promise = |text: &str| text.lines().any(|line| line.starts_with("//! Pure: "));
    let promising = rust_files().iter().filter(|file| promise(file.source.text()));
    let findings = promising.flat_map(|file| {
        let mut found = impure_uses(&file.path, &file.source);
        let runtimes = names_under(file.source.code(), "tokio").into_iter();
        let what = |name| format!("`tokio::{name}`");
        found.extend(runtimes.map(|(line, name)| Finding::at(&file.path, line, what(name))));
        found.retain(|finding| !file.in_test(finding.line));
        found
    });
    fail_on(findings.collect(), "take it as an argument, or take back the promise");
}

fn impure_uses(path: &str, source: &Source) -> Vec<Finding> {
    let words = source.code_lines().flat_map(|(line, code)| {
        let found = IMPURE_ITEMS.iter().filter(move |word| mentions(code, word));
        found.map(move |word| Finding::at(path, line, format!("`{word}`")))
    });
    let modules = names_under(source.code(), "std").into_iter();
    let modules = modules.filter(|(_, module)| IMPURE_MODULES.contains(&module.as_str()));
    let modules = modules.map(|(line, module)| Finding::at(path, line, format!("`std::{module}`")));
    words.chain(modules).collect()
}

#[test]
fn impure_items_are_found() {
    let source = Source::new(
        "use std::{collections::{BTreeMap, HashMap}, fs, io};\n\
         use std::fmt;\n\
         fn f() { std::thread::yield_now(); }\n\
         fn env() -> SystemTime {}\n",
    );
    let found: Vec<_> =
        impure_uses("a.rs", &source).into_iter().map(|found| (found.line, found.what)).collect();
    let expected = [(1, "`HashMap`"), (4, "`SystemTime`"), (1, "`std::fs`"), (3, "`std::thread`")];
    assert_eq!(found, expected.map(|(line, what)| (line, what.to_owned())));
}
