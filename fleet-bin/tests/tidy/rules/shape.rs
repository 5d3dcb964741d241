//! Limits on the length of files, functions and lines, and the `//!` doc that opens each file.

use crate::report::{Exception, Finding, fail_on, fail_on_except};
use crate::rust::Source;
use crate::tree::rust_files;

const MOST_COLUMNS: usize = 100;
const MOST_FILE_LINES: usize = 500;
const MOST_FUNCTION_LINES: usize = 70;

/// Files over the limit. The list may only shrink.
const LONG_FILES: &[Exception] = &[];

#[test]
fn every_file_opens_with_its_doc() {
    fail_on(
        over_all(opens_without_doc),
        "open the file with a `//!` line that says what the module is for and why it exists",
    );
}

#[test]
fn lines_fit() {
    fail_on(
        over_all(long_lines),
        "break the line; rustfmt leaves long strings and comments to you",
    );
}

#[test]
fn files_are_short() {
    fail_on_except(over_all(long_file), LONG_FILES, "split the file by topic");
}

#[test]
fn functions_are_short() {
    fail_on(over_all(long_functions), "extract a step of the function and name it");
}

fn over_all(rule: fn(&str, &Source) -> Vec<Finding>) -> Vec<Finding> {
    rust_files().iter().flat_map(|file| rule(&file.path, &file.source)).collect()
}

fn opens_without_doc(path: &str, source: &Source) -> Vec<Finding> {
    // The root of a crate may use its README as its doc.
    let openings = ["//! ", "#![doc = include_str!("];
    if openings.iter().any(|opening| source.text().starts_with(opening)) {
        return Vec::new();
    }
    vec![Finding::at(path, 1, "does not open with `//!`")]
}

fn long_lines(path: &str, source: &Source) -> Vec<Finding> {
    let lines = (1..).zip(source.text().lines()).map(|(line, text)| (line, text.chars().count()));
    lines
        .filter(|&(_, columns)| columns > MOST_COLUMNS)
        .map(|(line, columns)| Finding::at(path, line, format!("{columns} columns")))
        .collect()
}

fn long_file(path: &str, source: &Source) -> Vec<Finding> {
    let lines = source.text().lines().count();
    if lines <= MOST_FILE_LINES {
        return Vec::new();
    }
    vec![Finding::whole(path, format!("{lines} lines of at most {MOST_FILE_LINES}"))]
}

fn long_functions(path: &str, source: &Source) -> Vec<Finding> {
    let measured = source.functions().iter().map(|function| {
        let (first, last) = (*function.lines.start(), *function.lines.end());
        (first, last + 1 - first, &function.name)
    });
    measured
        .filter(|&(_, lines, _)| lines > MOST_FUNCTION_LINES)
        .map(|(first, lines, name)| {
            let what = format!("`{name}` has {lines} lines of at most {MOST_FUNCTION_LINES}");
            Finding::at(path, first, what)
        })
        .collect()
}

#[test]
fn long_or_undocumented_files_are_found() {
    let long = |text: String, rule: fn(&str, &Source) -> Vec<Finding>| {
        rule("a.rs", &Source::new(&text)).len()
    };
    assert_eq!(long("é".repeat(MOST_COLUMNS), long_lines), 0);
    assert_eq!(long("é".repeat(MOST_COLUMNS + 1), long_lines), 1);
    assert_eq!(long("\n".repeat(MOST_FILE_LINES), long_file), 0);
    assert_eq!(long("\n".repeat(MOST_FILE_LINES + 1), long_file), 1);
    let function = |lines: usize| format!("fn f() {{{}}}", "\n".repeat(lines - 1));
    assert_eq!(long(function(MOST_FUNCTION_LINES), long_functions), 0);
    assert_eq!(long(function(MOST_FUNCTION_LINES + 1), long_functions), 1);
    assert_eq!(long("fn f() {}".to_owned(), opens_without_doc), 1);
}
