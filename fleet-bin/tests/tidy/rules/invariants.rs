//! `docs/invariants.md` names each invariant once, `docs/old-defects.md` each defect, and both
//! name tests that exist.
//!
//! A row says which tests hold it as a path in backticks and then the names of tests in that file,
//! in backticks too; or it says that no test does yet.

use crate::report::{Finding, settle};
use crate::rust::positions;
use crate::tree::{file, has_extension};

/// The documents, with the marks of their tables and how many rows each has: what holds of a
/// cluster, of an init, of the events of its units, of edge cases and of what a killed one leaves,
/// and what version 1 got wrong.
const DOCUMENTS: [(&str, &[(&str, usize)]); 2] = [
    ("docs/invariants.md", &[("I-", 26), ("G-", 31), ("T-", 25), ("X-", 29), ("R-", 14)]),
    ("docs/old-defects.md", &[("D-", 44)]),
];

/// What a row without tests has to say.
const UNHELD: &str = "Not yet held by a test";

#[test]
fn every_invariant_and_defect_has_its_row() {
    for (document, tables) in DOCUMENTS {
        let rows = rows(document);
        let ids: Vec<&str> = rows.iter().map(|row| row.id).collect();
        let of_table = |(mark, count): &(&str, usize)| {
            (1..=*count).map(|number| format!("{mark}{number}")).collect::<Vec<_>>()
        };
        let expected: Vec<String> = tables.iter().flat_map(of_table).collect();
        assert_eq!(ids, expected, "{document} lists each once, in order");
    }
}

#[test]
fn every_named_test_exists() {
    let rows = DOCUMENTS.iter().flat_map(|(document, _)| rows(document));
    let findings = rows.flat_map(|row| check(&row, has_function)).collect();
    settle(
        findings,
        "name a test that exists, or say \"Not yet held by a test\" and what is missing",
    );
}

/// A row of the table.
struct Row<'a> {
    document: &'a str,
    line: usize,
    id: &'a str,
    held_by: &'a str,
}

fn rows(document: &'static str) -> Vec<Row<'static>> {
    let text = file(document).map_or("", |file| file.text.as_str());
    (1..).zip(text.lines()).filter_map(|(line, text)| row(document, line, text)).collect()
}

fn row<'a>(document: &'a str, line: usize, text: &'a str) -> Option<Row<'a>> {
    let cells = text.strip_prefix("| ")?;
    let (id, _) = cells.split_once(" |")?;
    let (mark, number) = id.split_at_checked("I-".len())?;
    let is_known =
        DOCUMENTS.iter().flat_map(|(_, tables)| *tables).any(|(known, _)| *known == mark);
    if !is_known || number.parse::<usize>().is_err() {
        return None;
    }
    let held_by = cells.trim_end_matches(['|', ' ']).rsplit(" | ").next()?;
    Some(Row { document, line, id, held_by })
}

fn check(row: &Row<'_>, exists: impl Fn(&str, &str) -> bool) -> Vec<Finding> {
    let mut path = "";
    let mut tests = 0;
    let mut findings = Vec::new();
    for quoted in row.held_by.split('`').skip(1).step_by(2) {
        if has_extension(quoted, "rs") {
            path = quoted;
            continue;
        }
        tests += 1;
        if !exists(path, quoted) {
            let what = format!("{}: no test `{quoted}` in `{path}`", row.id);
            findings.push(Finding::at(row.document, row.line, what));
        }
    }
    if tests == 0 && !row.held_by.starts_with(UNHELD) {
        findings.push(Finding::at(row.document, row.line, format!("{}: names no test", row.id)));
    }
    findings
}

fn has_function(path: &str, name: &str) -> bool {
    let definition = format!("fn {name}");
    file(path).is_some_and(|file| positions(&file.text, &definition).next().is_some())
}

#[test]
fn a_row_is_held_to_its_word() {
    let table = [
        ("`a.rs` `yes`", 0),
        ("`a.rs` `yes`, `no`", 1),
        ("`b.rs` `yes`", 1),
        ("by luck", 1),
        ("`a.rs`", 1),
        ("Not yet held by a test: a thing is missing", 0),
    ];
    for (held_by, findings) in table {
        let text = format!("| I-7 | what `holds` | {held_by} |");
        let row = row("a.md", 1, &text).expect("a row of an invariant");
        assert_eq!((row.id, row.held_by), ("I-7", held_by));
        let exists = |path: &str, name: &str| (path, name) == ("a.rs", "yes");
        assert_eq!(check(&row, exists).len(), findings, "{held_by}");
    }
}
