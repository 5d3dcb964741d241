//! The public API of the libraries: few names at each root, and one type of a name.

use std::collections::BTreeMap;

use crate::report::{Finding, fail_on};
use crate::rust::{Source, is_word};
use crate::tree::rust_files;

const MOST_ROOT_NAMES: usize = 30;

#[test]
fn roots_have_few_names() {
    let roots = rust_files().iter().filter(|file| is_library(&file.path, "/src/lib.rs"));
    let crowded = roots.filter_map(|file| {
        let names = root_names(&file.source).len();
        let what = format!("{names} names at the root, of at most {MOST_ROOT_NAMES}");
        (names > MOST_ROOT_NAMES).then(|| Finding::whole(&file.path, what))
    });
    let remedy = "keep at the root what most users need, and put the rest into public modules";
    fail_on(crowded.collect(), remedy);
}

#[test]
fn public_types_of_two_crates_have_two_names() {
    let mut crates: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| is_library(&file.path, ".rs")) {
        let library = file.path.split('/').next().unwrap_or_default();
        for (line, name) in public_types(&file.source) {
            let first = *crates.entry(name).or_insert(library);
            if first != library {
                findings.push(Finding::at(&file.path, line, format!("{first} has a {name}, too")));
            }
        }
    }
    fail_on(findings, "name the type by its own subject, or use the other one");
}

fn is_library(path: &str, end: &str) -> bool {
    let is_shipped = path.split('/').nth(1) == Some("src");
    is_shipped
        && path.starts_with("fleet-")
        && !path.starts_with("fleet-bin/")
        && path.ends_with(end)
}

/// Returns the names that a root re-exports, without its modules.
fn root_names(source: &Source) -> Vec<&str> {
    let statements = source.code().split(';').filter_map(|statement| {
        let (_, tree) = statement.rsplit_once("pub use ")?;
        Some(tree)
    });
    let leaves = statements.flat_map(|tree| tree.split(['{', ',', '}']));
    let last = leaves.filter_map(|leaf| leaf.trim().rsplit([':', ' ']).next());
    last.filter(|name| !name.is_empty()).collect()
}

/// Returns the public structs, enums and traits outside of nested modules, with their lines.
fn public_types(source: &Source) -> Vec<(usize, &str)> {
    let named = source.code_lines().filter_map(|(line, code)| {
        let item = code.strip_prefix("pub ")?;
        let kinds = ["struct ", "enum ", "trait "];
        let rest = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
        Some((line, rest.split(|c| !is_word(c)).next()?))
    });
    named.collect()
}

#[test]
fn names_and_types_are_found() {
    let root = Source::new(
        "pub mod a;\npub use a::One;\npub use b::{Two, three, c::{Four, Five as Six}};\n\
         use d::No;\n",
    );
    assert_eq!(root_names(&root), ["One", "Two", "three", "Four", "Six"]);
    let types = Source::new("pub struct A(u8);\npub(crate) enum B {}\npub trait C<T> {}\n");
    assert_eq!(public_types(&types), [(1, "A"), (3, "C")]);
}
