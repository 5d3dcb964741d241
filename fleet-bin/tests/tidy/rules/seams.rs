//! Only `wire_up` picks both a store and a service manager.

use crate::report::{Finding, fail_on};
use crate::rust::{Source, mentions};
use crate::tree::rust_files;

const STORES: [&str; 3] = ["MemoryStore", "EmbeddedStore", "EtcdStore"];
const SERVICE_MANAGERS: [&str; 3] = ["NativeManager", "FakeManager", "SystemdManager"];

#[test]
fn one_module_picks_the_implementations() {
    let wires = |path: &str| path.starts_with("fleet-bin/src/") && path.ends_with("/wire_up.rs");
    let shipped = rust_files().iter().filter(|file| !file.is_auxiliary() && !wires(&file.path));
    let picking = shipped.filter(|file| picks_both(&file.source, |line| file.in_test(line)));
    let what = "names a store and a service manager";
    let findings = picking.map(|file| Finding::whole(&file.path, what));
    fail_on(findings.collect(), "take them as `dyn Store` and `dyn ServiceManager` from `wire_up`");
}

#[test]
fn the_listed_backends_exist() {
    let defined = |name: &str| {
        let definition = format!("struct {name}");
        let mut files = rust_files().iter();
        files.any(|file| mentions(file.source.code(), &definition))
    };
    let names = STORES.iter().chain(&SERVICE_MANAGERS);
    let gone = names.filter(|name| !defined(name));
    let findings = gone.map(|name| Finding::whole(file!(), format!("no `struct {name}`")));
    fail_on(findings.collect(), "name the backend as the code does");
}

fn picks_both(source: &Source, in_test: impl Fn(usize) -> bool) -> bool {
    let names = |what: &[&str]| {
        let mut lines = source.code_lines().filter(|(line, _)| !in_test(*line));
        lines.any(|(_, code)| what.iter().any(|name| mentions(code, name)))
    };
    names(&STORES) && names(&SERVICE_MANAGERS)
}

#[test]
fn a_second_module_is_found() {
    let both = Source::new("use a::MemoryStore;\nuse b::NativeManager;\n");
    assert!(picks_both(&both, |_| false));
    assert!(!picks_both(&both, |line| line == 2));
    assert!(!picks_both(&Source::new("use a::{MemoryStore, EmbeddedStore};"), |_| false));
}
