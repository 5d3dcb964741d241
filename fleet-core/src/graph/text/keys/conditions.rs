//! Keys for conditions on the machine.

use std::fmt;

use super::{Form, Key, nearest, read};
use crate::graph::text::diagnostic::Problems;
use crate::graph::text::draft::Draft;
use crate::graph::text::types::Types;
use crate::graph::text::value::Value;
use crate::graph::{ConditionTest, InitUnit, UnitCondition};

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "condition",
        Types::RUNNING,
        Form::Lines,
        |value, draft, problems| read_condition(false, value, draft, problems),
        |unit, _| conditions(false, unit),
    ),
    Key::new(
        "assert",
        Types::RUNNING,
        Form::Lines,
        |value, draft, problems| read_condition(true, value, draft, problems),
        |unit, _| conditions(true, unit),
    ),
];

/// A test with its word.
type NamedTest = (&'static str, fn(String) -> ConditionTest);

const TESTS: [NamedTest; 7] = [
    ("path-exists", ConditionTest::PathExists),
    ("path-is-directory", ConditionTest::PathIsDirectory),
    ("file-not-empty", ConditionTest::FileNotEmpty),
    ("file-is-executable", ConditionTest::FileIsExecutable),
    ("host", ConditionTest::Host),
    ("kernel-command-line", ConditionTest::KernelCommandLine),
    ("user", ConditionTest::User),
];

/// Reads `|`, `!`, a test and its argument: `!path-exists /etc/nologin`.
fn read_condition(assert: bool, value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (any, text) = marked(value.text(), '|');
    let (negated, text) = marked(text, '!');
    let (word, about) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let about = about.trim_matches([' ', '\t']);
    let found = TESTS.iter().find(|(known, _)| *known == word);
    let Some((_, test)) = found else {
        let names = TESTS.iter().map(|(known, _)| *known);
        let help = match nearest(word, names.clone()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("begin it with one of {}", names.collect::<Vec<_>>().join(", ")),
        };
        return read::refuse(value, problems, help);
    };
    let is_path = word.starts_with("path-") || word.starts_with("file-");
    if about.is_empty() || (is_path && read::absolute(about).is_none()) {
        let what = if is_path { "an absolute path" } else { "its argument" };
        return read::refuse(value, problems, format!("write {what} after {word}"));
    }
    let test = test(about.to_owned());
    draft.run().conditions.push(UnitCondition { test, negated, any, assert });
}

fn marked(text: &str, mark: char) -> (bool, &str) {
    text.strip_prefix(mark).map_or((false, text), |rest| (true, rest.trim_start_matches(' ')))
}

fn conditions(assert: bool, unit: &InitUnit) -> Vec<String> {
    let conditions = unit.run.conditions.iter().filter(|it| it.assert == assert);
    conditions.map(ToString::to_string).collect()
}

impl fmt::Display for UnitCondition {
    /// Writes the condition as the value of `condition` or `assert` in a stanza.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, about) = match &self.test {
            ConditionTest::PathExists(path) => ("path-exists", path),
            ConditionTest::PathIsDirectory(path) => ("path-is-directory", path),
            ConditionTest::FileNotEmpty(path) => ("file-not-empty", path),
            ConditionTest::FileIsExecutable(path) => ("file-is-executable", path),
            ConditionTest::Host(pattern) => ("host", pattern),
            ConditionTest::KernelCommandLine(text) => ("kernel-command-line", text),
            ConditionTest::User(user) => ("user", user),
        };
        let any = if self.any { "|" } else { "" };
        let negated = if self.negated { "!" } else { "" };
        write!(f, "{any}{negated}{word} {about}")
    }
}
