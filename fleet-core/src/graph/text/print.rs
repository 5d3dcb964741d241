//! Stanzas of units: the same unit gives the same bytes, which read back as the same unit.

use super::diagnostic::Problems;
use super::draft::{Draft, knows_variable};
use super::keys::{self, Key};
use super::types::TypeWord;
use super::value::Value;
use crate::graph::{InitUnit, Timeouts};

/// A unit as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedStanza {
    /// Its stanza, with a line end at the end.
    pub text: String,
    /// What it could not say.
    pub omitted: Vec<OmittedKey>,
}

/// Something of a unit that a stanza cannot say, and that is left out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedKey {
    /// The key that would have said it.
    pub key: &'static str,
    /// The value that it would have had.
    pub value: String,
    /// Why it cannot be said.
    pub why: String,
}

/// Writes a unit as a stanza. What is the default is not written; `defaults` are the time-outs
/// that those who read it will take for granted.
///
/// What was read from a stanza is written without a loss. Units that were made in other ways, as
/// from unit files of systemd, may ask for what stanzas do not know.
#[must_use]
pub fn print(unit: &InitUnit, defaults: &Timeouts) -> PrintedStanza {
    let mut printed = PrintedStanza { text: format!("unit: {}\n", unit.name), omitted: Vec::new() };
    let word = TypeWord::of(unit);
    for key in keys::all() {
        let values = (key.write)(unit, defaults);
        for value in values {
            match objection(key, &value, word, unit, defaults) {
                None => printed.text.push_str(&format!("{}: {value}\n", key.name)),
                Some(why) => printed.omitted.push(OmittedKey { key: key.name, value, why }),
            }
        }
    }
    printed
}

/// The keys that the stanzas of two units would not have alike, in the order in which they are
/// printed.
#[must_use]
pub fn differing_keys(one: &InitUnit, other: &InitUnit) -> Vec<&'static str> {
    let defaults = Timeouts::default();
    let differs = |key: &&Key| (key.write)(one, &defaults) != (key.write)(other, &defaults);
    keys::all().filter(differs).map(|key| key.name).collect()
}

/// Why this value would not be read back as what it is.
fn objection(
    key: &Key,
    value: &str,
    word: TypeWord,
    unit: &InitUnit,
    defaults: &Timeouts,
) -> Option<String> {
    if !key.types.contains(word) {
        return Some(format!("it is not for units of type {}", word.as_str()));
    }
    if value.is_empty() || value.trim_matches([' ', '\t']) != value {
        return Some("a value does not begin or end with a blank, and is not empty".to_owned());
    }
    if value.contains(char::is_control) {
        return Some("it has a control character".to_owned());
    }
    let mut draft = Draft::new(unit.name.clone(), *defaults);
    let mut problems = Problems::default();
    (key.read)(&Value::new(value, 0), &mut draft, &mut problems);
    if problems.errors() > 0 {
        return problems.first().map(str::to_owned);
    }
    let unknown = draft.variables.iter().find(|(name, _)| !knows_variable(&unit.run, name));
    unknown.map(|(name, _)| format!("no variable `{name}` is given to the command"))
}
