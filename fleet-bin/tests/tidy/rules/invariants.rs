//! Every documented invariant and v1 defect has a test that names it in a `// Holds: I-8` comment.
//!
//! `scripts/invariants` lists the tests of each.

use std::collections::BTreeMap;

use crate::report::{Finding, fail_on};
use crate::tree::{file, rust_files};

/// The documents, with the prefix and number of rows of each of their tables: the cluster, the
/// init, its event table, edge cases, recovery after a crash; and the defects of fleet v1.
const DOCUMENTS: [(&str, &[(&str, usize)]); 2] = [
    ("docs/reference/invariants.md", &[("I-", 29), ("G-", 31), ("T-", 25), ("X-", 29), ("R-", 14)]),
    ("docs/reference/v1-defects.md", &[("D-", 44)]),
];

/// Numbers that no row has yet.
const RESERVED: [&str; 0] = [];

const MARK: &str = "// Holds: ";

#[test]
fn every_invariant_and_defect_has_its_row() {
    for (document, tables) in DOCUMENTS {
        let text = file(document).map_or("", |file| file.text.as_str());
        let expected: Vec<String> = tables.iter().flat_map(|table| ids(*table)).collect();
        assert_eq!(rows(text), expected, "{document} lists each once, in order");
    }
}

#[test]
fn every_invariant_and_defect_has_a_test() {
    let held = held();
    let tables = DOCUMENTS.iter().flat_map(|(document, tables)| {
        tables.iter().flat_map(|table| ids(*table)).map(move |id| (*document, id))
    });
    let unheld = tables.filter(|(_, id)| !held.contains_key(id.as_str()));
    fail_on(
        unheld
            .map(|(document, id)| Finding::whole(document, format!("{id} has no test")))
            .collect(),
        "write a test of it, with the comment `// Holds: ID` above its attributes",
    );
}

#[test]
fn every_mark_names_documented_rows_and_a_test() {
    let known: Vec<String> =
        DOCUMENTS.iter().flat_map(|(_, tables)| tables.iter().flat_map(|t| ids(*t))).collect();
    let mut findings = Vec::new();
    for file in rust_files() {
        for mark in marks(file.source.text()) {
            for id in mark.ids.iter().filter(|id| !known.iter().any(|known| known == *id)) {
                let what = format!("`{id}` is not documented");
                findings.push(Finding::at(&file.path, mark.line, what));
            }
            if !mark.is_above_a_function {
                findings.push(Finding::at(&file.path, mark.line, "no function follows"));
            }
        }
    }
    fail_on(findings, "name rows of docs/reference, directly above a test's attributes");
}

fn ids((prefix, count): (&str, usize)) -> impl Iterator<Item = String> {
    let ids = (1..=count).map(move |number| format!("{prefix}{number}"));
    ids.filter(|id| !RESERVED.contains(&id.as_str()))
}

/// The ids of a document's rows, in order.
fn rows(text: &str) -> Vec<&str> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let is_id = |id: &&str| {
        id.split_once('-')
            .is_some_and(|(prefix, number)| prefix.len() == 1 && number.parse::<usize>().is_ok())
    };
    cells.map(|(id, _)| id).filter(is_id).collect()
}

/// A `// Holds: …` comment.
struct Mark<'a> {
    line: usize,
    ids: Vec<&'a str>,
    is_above_a_function: bool,
}

fn marks(text: &str) -> Vec<Mark<'_>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let ids = line.strip_prefix(MARK)?.split(", ").collect();
        let mut below = lines[at + 1..].iter().skip_while(|line| line.starts_with('#'));
        let is_above_a_function = below.next().is_some_and(|line| line.contains("fn "));
        Some(Mark { line: at + 1, ids, is_above_a_function })
    });
    found.collect()
}

/// The number of tests that hold each id.
fn held() -> BTreeMap<&'static str, usize> {
    let mut held = BTreeMap::new();
    for mark in rust_files().iter().flat_map(|file| marks(file.source.text())) {
        for id in mark.ids {
            *held.entry(id).or_default() += 1;
        }
    }
    held
}

#[test]
fn marks_and_rows_are_read() {
    let text = "    // Holds: I-1, G-2\n    #[test]\n    fn a() {}\n// Holds: X-3\nlet x = 1;\n";
    let found = marks(text);
    let found: Vec<_> =
        found.iter().map(|m| (m.line, m.ids.as_slice(), m.is_above_a_function)).collect();
    assert_eq!(found, [(1, ["I-1", "G-2"].as_slice(), true), (4, ["X-3"].as_slice(), false)]);
    assert_eq!(
        rows("| id | kind |\n|---|---|\n| I-1 | S |\n| S | x |\n| D-12 | y |\n"),
        ["I-1", "D-12"]
    );
}
