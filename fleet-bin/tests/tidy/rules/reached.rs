//! No file lies about unused: each is reached by `mod` lines from the root of a target.

use std::collections::BTreeSet;

use crate::report::{Finding, settle};
use crate::rust::{is_word, positions};
use crate::tree::{RustFile, rust_files};

#[test]
fn every_file_is_reached() {
    let all: BTreeSet<&str> = rust_files().iter().map(|file| file.path.as_str()).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut next: Vec<String> = all
        .iter()
        .filter(|path| is_root(path))
        .map(|path| (*path).to_owned())
        .collect();
    while let Some(path) = next.pop() {
        if let Some(file) = rust_files().iter().find(|file| file.path == path) {
            next.extend(
                children(file)
                    .into_iter()
                    .filter(|child| all.contains(child.as_str())),
            );
        }
        reached.insert(path);
    }
    let lost = all.into_iter().filter(|path| !reached.contains(*path));
    settle(
        lost.map(|path| Finding::whole(path, "is part of no target"))
            .collect(),
        "declare it with `mod` in the file above it (tests: in `tests/it/main.rs`), or delete it",
    );
}

/// The files that the `mod` lines of `file` may mean.
fn children(file: &RustFile) -> Vec<String> {
    let folder = folder_of_children(&file.path);
    let named = declared(file.source.code()).into_iter();
    named
        .flat_map(|name| {
            [
                format!("{folder}/{name}.rs"),
                format!("{folder}/{name}/mod.rs"),
            ]
        })
        .collect()
}

/// The name of each `mod name;`.
fn declared(code: &str) -> Vec<String> {
    let names = positions(code, "mod").filter_map(|at| {
        let rest = code[at + "mod".len()..].trim_start();
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        rest[name.len()..]
            .trim_start()
            .starts_with(';')
            .then_some(name)
    });
    names.collect()
}

fn folder_of_children(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').expect("a Rust file lies in a crate");
    let stem = name.trim_end_matches(".rs");
    if is_root(path) || stem == "mod" {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    }
}

/// Whether cargo starts here: `src/lib.rs`, `src/main.rs`, or a file or a folder's `main.rs` right
/// below `src/bin`, `tests`, `examples` or `benches`.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    matches!(
        parts[..],
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests" | "examples" | "benches", _]
            | ["tests" | "examples" | "benches", _, "main.rs"]
    )
}

#[test]
fn roots_and_children_are_told_apart() {
    for path in [
        "c/src/lib.rs",
        "c/src/bin/d.rs",
        "c/tests/it/main.rs",
        "c/examples/e.rs",
    ] {
        assert!(is_root(path), "{path}");
    }
    for path in ["c/src/a.rs", "c/tests/it/a.rs", "c/src/a/mod.rs"] {
        assert!(!is_root(path), "{path}");
    }
    assert_eq!(folder_of_children("c/tests/it/main.rs"), "c/tests/it");
    assert_eq!(folder_of_children("c/src/a.rs"), "c/src/a");
    assert_eq!(folder_of_children("c/src/a/mod.rs"), "c/src/a");
    assert_eq!(
        declared("mod a;\npub(crate) mod b ;\nmod c { mod d; }"),
        ["a", "b", "d"]
    );
}
