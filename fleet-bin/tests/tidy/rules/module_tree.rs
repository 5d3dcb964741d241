//! Every Rust file is part of a target, through `mod` lines from its root.

use std::collections::BTreeSet;

use crate::report::{Finding, fail_on};
use crate::rust::{is_word, positions};
use crate::tree::{RustFile, rust_files};
use crate::workspace::targets;

#[test]
fn every_file_is_part_of_a_target() {
    let all: BTreeSet<&str> = rust_files().iter().map(|file| file.path.as_str()).collect();
    let roots: BTreeSet<String> = targets().map(|(_, root)| root).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut next: Vec<String> = roots.iter().cloned().collect();
    while let Some(path) = next.pop() {
        if let Some(file) = rust_files().iter().find(|file| file.path == path) {
            let children = children(file, roots.contains(&path)).into_iter();
            next.extend(children.filter(|child| all.contains(child.as_str())));
        }
        reached.insert(path);
    }
    // Excluded: these folders are workspaces of their own.
    let is_built_here = |path: &&str| !path.contains("/fuzz/") && !path.contains("/compare/");
    let lost = all.into_iter().filter(is_built_here).filter(|path| !reached.contains(*path));
    fail_on(
        lost.map(|path| Finding::whole(path, "is part of no target")).collect(),
        "declare it with `mod` in the file above it (tests: in `tests/it/main.rs`), or delete it",
    );
}

#[test]
fn integration_tests_share_a_binary() {
    let loose = targets().filter(|(target, root)| target.is_test() && !root.ends_with("/main.rs"));
    fail_on(
        loose.map(|(_, root)| Finding::whole(&root, "is a test binary by itself")).collect(),
        "make it a module of `tests/it/main.rs`: linking is what makes tests slow",
    );
}

/// The files that the `mod` lines of `file` may refer to.
fn children(file: &RustFile, is_root: bool) -> Vec<String> {
    let folder = folder_of_children(&file.path, is_root);
    let files = |name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    declared(file.source.code()).into_iter().flat_map(files).collect()
}

/// The name of each `mod name;`.
fn declared(code: &str) -> Vec<String> {
    let names = positions(code, "mod").filter_map(|at| {
        let rest = code[at + "mod".len()..].trim_start();
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        rest[name.len()..].trim_start().starts_with(';').then_some(name)
    });
    names.collect()
}

fn folder_of_children(path: &str, is_root: bool) -> String {
    let (folder, name) = path.rsplit_once('/').expect("a Rust file lies in a crate");
    let stem = name.trim_end_matches(".rs");
    if is_root || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") }
}

#[test]
fn the_folder_below_a_file_is_known() {
    assert_eq!(folder_of_children("c/tests/it/main.rs", true), "c/tests/it");
    assert_eq!(folder_of_children("c/src/a.rs", false), "c/src/a");
    assert_eq!(folder_of_children("c/src/a/mod.rs", false), "c/src/a");
    assert_eq!(declared("mod a;\npub(crate) mod b ;\nmod c { mod d; }"), ["a", "b", "d"]);
}
