//! Small texts that show whether a crate reads unit files as systemd does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::readers::Reader;

/// A test case: the topic that it tests, a text, and the options in the text (section, name and
/// value).
type Probe = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const PROBES: &[Probe] = &[
    ("values of several lines", "[A]\nK=a\\\nb\n", &[("A", "K", "a b")]),
    ("comments between those", "[A]\nK=a \\\n# c\nb\n", &[("A", "K", "a  b")]),
    ("names again", "[A]\nK=a\nK=b\n", &[("A", "K", "a"), ("A", "K", "b")]),
    (
        "sections again",
        "[A]\nK=a\n[B]\nK=b\n[A]\nK=c\n",
        &[("A", "K", "a"), ("A", "K", "c"), ("B", "K", "b")],
    ),
    ("comments", "# a\n; b\n[A]\n# c\n; d\nK=a\n", &[("A", "K", "a")]),
    ("comment marks in values", "[A]\nK=a # b ; c\n", &[("A", "K", "a # b ; c")]),
    ("quotes", "[A]\nK=\"a b\" 'c'\n", &[("A", "K", "\"a b\" 'c'")]),
    ("backslashes", "[A]\nK=a\\x20\\tb\n", &[("A", "K", "a\\x20\\tb")]),
    ("colons", "[A]\nK:L=a:b\n", &[("A", "K:L", "a:b")]),
    ("blanks", "[A]\n K = a \n", &[("A", "K", "a")]),
    ("empty values", "[A]\nK=\nL=a\n", &[("A", "K", ""), ("A", "L", "a")]),
    ("carriage returns", "[A]\r\nK=a\r\n", &[("A", "K", "a")]),
    ("dashes in sections", "[X-A]\nK=a\n", &[("X-A", "K", "a")]),
    ("no line end at the end", "[A]\nK=a", &[("A", "K", "a")]),
];

/// Lists the texts that a crate reads differently, for the table.
pub(crate) fn wrong(reader: &Reader) -> String {
    let is_wrong = |(_, text, expected): &&Probe| {
        let mut found = caught(|| (reader.list)(text)).flatten().unwrap_or_default();
        // A map may lose the order of sections, which does not count as a difference.
        found.sort();
        let found = found.iter().map(|it| (it.0.as_str(), it.1.as_str(), it.2.as_str()));
        !found.eq(expected.iter().copied())
    };
    let wrong: Vec<&str> = PROBES.iter().filter(is_wrong).map(|(about, ..)| *about).collect();
    if wrong.is_empty() { "–".to_owned() } else { wrong.join(", ") }
}

/// Returns the result, or `None` after a panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
