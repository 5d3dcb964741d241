//! Tests of the crate's public interface.

mod aliases;
mod calendar;
mod canonical;
mod check;
mod commands;
mod corpus;
mod directory;
mod document;
mod durations;
mod edit;
mod elapses;
mod grammar;
mod merge;
mod merged;
mod names;
mod properties;
mod reader;
mod sections;
mod specifiers;
mod systemd;
mod values;
#[cfg(feature = "jiff")]
mod zones;

/// Wraps long lines at blanks, so that a snapshot of messages fits the page.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ') {
            let fits = column + word.len() < 88;
            folded.push_str(match column {
                0 => "",
                _ if fits => " ",
                _ => "\n    ",
            });
            folded.push_str(word);
            column = if fits { column } else { 4 } + 1 + word.len();
        }
        folded.push('\n');
    }
    folded
}

/// Reports that a comparison was skipped because the program is not installed.
fn report_skipped(program: &str) {
    use std::io::Write as _;
    let written = writeln!(std::io::stderr(), "skipped: {program} is not installed, or is another");
    written.expect("a test can write to its standard error");
}
