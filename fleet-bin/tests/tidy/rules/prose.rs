//! Limits on mannerisms in doc comments, per crate, and on the width of Markdown.
//!
//! Four figures are measured over the doc comments of each crate's `src`. Each was once far over
//! its limit; the limits keep the comments in plain engineering English. See `docs/style.md`.

use std::collections::BTreeMap;

use crate::report::{Finding, fail_on};
use crate::tree::{files, has_extension, rust_files};

/// The widest line of Markdown outside tables and code blocks.
const MAX_MARKDOWN_COLUMNS: usize = 120;

/// Words that open a comment without a subject or verb.
const QUESTION_WORDS: [&str; 10] =
    ["what", "who", "whom", "whose", "whoever", "whether", "how", "which", "where", "when"];

/// One figure of the comments of a crate.
struct Figure {
    name: &'static str,
    words: &'static [&'static str],
    /// In 1,000 words.
    limit: f64,
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "what, who and their forms",
        words: &["what", "who", "whom", "whose", "whoever", "whatever", "whomever"],
        limit: 3.0,
    },
    Figure {
        name: "persons for things",
        words: &["somebody", "nobody", "anybody", "everybody", "whoever"],
        limit: 0.3,
    },
    Figure {
        name: "archaic words",
        words: &[
            "anew",
            "told",
            "tells",
            "tidings",
            "thereof",
            "thereby",
            "hence",
            "henceforth",
            "by now",
            "of late",
            "goes by",
            "go by",
            "is there for",
            "as far as",
            "for the time being",
            "all the same",
        ],
        limit: 1.0,
    },
];

/// The share of comments that may open with one of [`QUESTION_WORDS`], in percent.
const MAX_QUESTION_OPENINGS: f64 = 6.0;

#[test]
fn doc_comments_are_plain() {
    let mut crates: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in rust_files() {
        if let Some((name, _)) = file.path.split_once("/src/") {
            crates.entry(name).or_default().extend(doc_comments(file.source.text()));
        }
    }
    let findings = crates.iter().flat_map(|(name, comments)| {
        let over = measure(comments).into_iter();
        over.map(move |what| Finding::whole(&format!("{name}/src"), what))
    });
    fail_on(findings.collect(), "rewrite the comments: see docs/style.md");
}

#[test]
fn markdown_fits() {
    let documents = files().iter().filter(|file| has_extension(&file.path, "md"));
    let findings = documents.flat_map(|file| {
        let wide = wide_lines(&file.text).into_iter();
        wide.map(|(line, columns)| Finding::at(&file.path, line, format!("{columns} columns")))
    });
    fail_on(findings.collect(), "wrap at 100 columns; tables and code blocks are exempt");
}

/// The figures that are over their limits.
fn measure(comments: &[String]) -> Vec<String> {
    let words: usize = comments.iter().map(|text| text.split_whitespace().count()).sum();
    let mut over = Vec::new();
    for figure in &FIGURES {
        let found: usize = comments.iter().map(|text| count(text, figure.words)).sum();
        let share = 1000.0 * found as f64 / words.max(1) as f64;
        if share > figure.limit {
            over.push(format!(
                "{}: {share:.1} in 1,000 words, at most {}",
                figure.name, figure.limit
            ));
        }
    }
    let openings = comments.iter().filter(|text| opens_with_question_word(text)).count();
    let share = 100.0 * openings as f64 / comments.len().max(1) as f64;
    if share > MAX_QUESTION_OPENINGS {
        over.push(format!(
            "{share:.1} % of comments open with a question word, at most {MAX_QUESTION_OPENINGS}"
        ));
    }
    over
}

fn opens_with_question_word(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    QUESTION_WORDS.contains(&first.to_lowercase().as_str())
}

/// How often the words occur in the text, in any case and as whole words.
fn count(text: &str, words: &[&str]) -> usize {
    let plain: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '_' { c } else { ' ' })
        .collect();
    let spaced = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join("  "));
    words.iter().map(|word| spaced.matches(&format!(" {} ", word.replace(' ', "  "))).count()).sum()
}

/// The text of each block of `///` and `//!` lines, without its code blocks.
fn doc_comments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    let mut in_code = false;
    for line in text.lines().map(str::trim) {
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            found.extend(block.take());
            in_code = false;
            continue;
        };
        let block = block.get_or_insert_default();
        if doc.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            if !block.is_empty() {
                block.push(' ');
            }
            block.push_str(doc.trim());
        }
    }
    found.extend(block);
    found
}

/// The lines over the limit, outside tables and code blocks, with their columns.
fn wide_lines(text: &str) -> Vec<(usize, usize)> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let columns = line.chars().count();
        if !in_code && !line.trim_start().starts_with('|') && columns > MAX_MARKDOWN_COLUMNS {
            found.push((number, columns));
        }
    }
    found
}

#[test]
fn mannerisms_are_counted_as_whole_words() {
    assert_eq!(count("Who is told? By now, whoever.", &["who", "told", "by now"]), 3);
    assert_eq!(count("whole, retold, by_now", &["who", "told", "by now"]), 0);
    assert!(opens_with_question_word("What, then") && !opens_with_question_word("Whatever"));
}

#[test]
fn figures_over_their_limits_are_reported() {
    let comments = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(measure(&comments(&["Returns the lease.", "Stops the unit."])), [""; 0]);
    assert_eq!(measure(&comments(&["What nobody told."])).len(), 4);
}

#[test]
fn doc_comments_are_read_without_code() {
    let text =
        "//! One\n//! two.\n\n/// ```\n/// who\n/// ```\nfn f() {} // what\n    /// Three.\n";
    assert_eq!(doc_comments(text), ["One two.", "", "Three."]);
    let wide = "x".repeat(MAX_MARKDOWN_COLUMNS + 1);
    assert_eq!(wide_lines(&format!("{wide}\n| {wide}\n```\n{wide}\n```\nx\n")), [(1, 121)]);
}
