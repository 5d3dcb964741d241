//! Only `wire_up` picks both a store and a service manager. The folders of the scheduler, of an
//! init's model and of the native service manager depend on each other in one direction.

use crate::report::{Finding, fail_on};
use crate::rust::{Source, mentions, names_under};
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

/// A module with folders that depend on each other in one direction.
struct Layers {
    directory: &'static str,
    module: &'static str,
    /// Each folder with the folders that it may import.
    folders: &'static [(&'static str, &'static [&'static str])],
}

const SCHEDULER: Layers = Layers {
    directory: "fleet-scheduler/src/",
    module: "crate",
    folders: &[
        ("state", &[]),
        ("rules", &["state"]),
        ("ranking", &["state"]),
        ("index", &["state", "rules", "ranking"]),
        ("planner", &["state", "rules", "ranking", "index"]),
        ("check", &["state"]),
        ("testing", &[]),
    ],
};

const GRAPH: Layers = Layers {
    directory: "fleet-core/src/graph/",
    module: "crate::graph",
    folders: &[
        ("model", &[]),
        ("build", &["model"]),
        ("planner", &["model", "build"]),
        ("format", &["model", "build"]),
        ("systemd", &["model", "build"]),
        ("convert", &["model", "build", "format", "systemd"]),
    ],
};

const NATIVE: Layers = Layers {
    directory: "fleet-agent/src/native/",
    module: "crate::native",
    folders: &[
        ("linux", &[]),
        ("log", &["linux"]),
        ("executor", &["linux"]),
        ("run", &["executor", "linux", "log", "state"]),
        ("state", &["executor", "linux", "log", "run"]),
        ("supervisor", &["executor", "linux", "log", "run", "state"]),
        ("frontends", &["executor", "linux", "log", "state", "supervisor"]),
        ("rpc", &[]),
    ],
};

/// Folders of [`NATIVE`] that may name a serializer: `state` for the records, `rpc` for its
/// messages, and `executor` for its plans.
const SERIALIZING: [&str; 3] = ["executor", "state", "rpc"];

/// Folders of [`NATIVE`] that derive serde's traits for the data in records, and know no format.
const RECORDED: [&str; 2] = ["linux", "run"];

#[test]
fn state_and_rpc_alone_know_serde() {
    let mut findings = Vec::new();
    for file in rust_files() {
        let inside = file.path.strip_prefix(NATIVE.directory);
        let Some((folder, _)) = inside.and_then(|it| it.split_once('/')) else { continue };
        for (line, what) in serde_uses(&file.source, folder) {
            if !file.in_test(line) {
                findings.push(Finding::at(&file.path, line, what));
            }
        }
    }
    fail_on(findings, "pass the data to `state`, which writes and reads it");
}

/// Returns the lines of a file of `folder` that use serde although they may not.
fn serde_uses(source: &Source, folder: &str) -> Vec<(usize, String)> {
    let forbidden: &[&str] = match folder {
        folder if SERIALIZING.contains(&folder) => &[],
        folder if RECORDED.contains(&folder) => &["serde_json"],
        _ => &["serde", "serde_json"],
    };
    let used = |code: &str| forbidden.iter().find(|name| mentions(code, name)).copied();
    let lines = source.code_lines();
    lines.filter_map(|(line, code)| Some((line, format!("uses {}", used(code)?)))).collect()
}

#[test]
fn a_use_of_serde_is_found() {
    let source = Source::new("use serde::Serialize;\nlet text = serde_json::to_vec(&value);\n");
    let lines = |folder| serde_uses(&source, folder).into_iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!((lines("supervisor"), lines("run")), (vec![1, 2], vec![2]));
    assert!(lines("state").is_empty());
}

#[test]
fn scheduler_folders_import_only_those_below() {
    SCHEDULER.check();
}

#[test]
fn graph_folders_import_only_those_below() {
    GRAPH.check();
}

#[test]
fn native_folders_import_only_those_below() {
    NATIVE.check();
}

impl Layers {
    fn check(&self) {
        let mut findings = Vec::new();
        for file in rust_files() {
            let inside = file.path.strip_prefix(self.directory);
            let Some((folder, rest)) = inside.and_then(|it| it.split_once('/')) else { continue };
            let Some(forbidden) = self.forbidden_imports(&file.source, folder, depth(rest)) else {
                let what = format!("no rule for the folder {folder}");
                findings.push(Finding::whole(&file.path, what));
                continue;
            };
            for (line, name) in forbidden {
                if !file.in_test(line) {
                    findings.push(Finding::at(&file.path, line, format!("imports {name}")));
                }
            }
        }
        fail_on(findings, "move the item, or pass it as an argument");
    }

    /// Returns the folders that a file of `folder` imports although it may not, with their lines.
    /// `None` if the folder is unknown. `depth` is the number of `super` by which the file reaches
    /// the module of the folders.
    fn forbidden_imports(
        &self,
        source: &Source,
        folder: &str,
        depth: usize,
    ) -> Option<Vec<(usize, String)>> {
        let (_, allowed) = self.folders.iter().find(|(name, _)| *name == folder)?;
        let above = |depth| names_under(source.code(), &vec!["super"; depth].join("::"));
        let further = above(depth + 1);
        let mut names = names_under(source.code(), self.module);
        names.extend(above(depth).into_iter().filter(|name| !further.contains(name)));
        names.retain(|(_, name)| {
            let is_folder = self.folders.iter().any(|(known, _)| known == name);
            is_folder && name != folder && !allowed.contains(&name.as_str())
        });
        Some(names)
    }
}

/// Returns the number of `super` by which a file of a folder reaches the module that contains the
/// folder. `rest` is the path of the file within the folder.
fn depth(rest: &str) -> usize {
    let inner = rest.matches('/').count();
    if rest.ends_with("mod.rs") { inner + 1 } else { inner + 2 }
}

#[test]
fn an_import_from_above_is_found() {
    let source = Source::new("use crate::native::linux::spawn;\nuse crate::native::run::Run;\n");
    let forbidden = |folder| NATIVE.forbidden_imports(&source, folder, 1);
    assert_eq!(forbidden("log"), Some(vec![(2, "run".to_owned())]));
    assert_eq!(forbidden("supervisor"), Some(vec![]));
    assert_eq!(forbidden("attic"), None);
    let source = Source::new("use crate::index::Cluster;\n");
    let found = SCHEDULER.forbidden_imports(&source, "rules", 1);
    assert_eq!(found, Some(vec![(1, "index".to_owned())]));
    let source = Source::new("use super::super::run::Run;\nuse super::run::Run;\n");
    assert_eq!(["mod.rs", "a.rs", "a/mod.rs", "a/b.rs"].map(depth), [1, 2, 2, 3]);
    let found = |depth| NATIVE.forbidden_imports(&source, "log", depth);
    assert_eq!(found(1), Some(vec![(2, "run".to_owned())]));
    assert_eq!(found(2), Some(vec![(1, "run".to_owned())]));
}
