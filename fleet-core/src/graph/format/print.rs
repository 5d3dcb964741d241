//! Prints units as stanzas. Equal units give the same text, and reading that text gives the same
//! unit again. Also value writers that several keys share.

use std::fmt::Display;
use std::time::Duration;

use fleet_unitfile::values::Timespan;

use super::diagnostic::Problems;
use super::keys;
use super::keys::Key;
use super::lexer::Value;
use super::stanza::{Draft, TypeWord, sets_variable};
use crate::graph::model::{InitUnit, StatusSet, Timeouts};

/// A unit as text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrintedStanza {
    /// The stanza, ending with a newline.
    pub text: String,
    /// Keys that could not be written.
    pub omitted: Vec<OmittedKey>,
}

/// A setting of a unit that is omitted because a stanza cannot express it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OmittedKey {
    /// Key of the setting.
    pub key: &'static str,
    /// Value of the setting.
    pub value: String,
    /// Reason why the setting cannot be written.
    pub why: String,
}

/// Prints a unit as a stanza. Values that equal their default are omitted. `defaults` are the
/// default timeouts that the reader of the stanza will use.
///
/// A unit that was read from a stanza is always printed completely. Units from other sources, such
/// as systemd unit files, may have settings that a stanza cannot express. These are listed in
/// `omitted`.
#[must_use]
pub fn print(unit: &InitUnit, defaults: &Timeouts) -> PrintedStanza {
    let mut printed = PrintedStanza { text: format!("unit: {}\n", unit.name), omitted: Vec::new() };
    let word = TypeWord::of(unit);
    for key in keys::all() {
        let values = (key.write)(unit, defaults);
        for value in values {
            match omission_reason(key, &value, word, unit, defaults) {
                None => printed.text.push_str(&format!("{}: {value}\n", key.name)),
                Some(why) => printed.omitted.push(OmittedKey { key: key.name, value, why }),
            }
        }
    }
    printed
}

/// Returns the keys in which the stanzas of two units differ, in the order in which keys are
/// printed.
#[must_use]
pub fn differing_keys(one: &InitUnit, other: &InitUnit) -> Vec<&'static str> {
    let defaults = Timeouts::default();
    let differs = |key: &&Key| (key.write)(one, &defaults) != (key.write)(other, &defaults);
    keys::all().filter(differs).map(|key| key.name).collect()
}

/// Returns the reason why a value cannot be written, or `None` if reading it gives the same value.
fn omission_reason(
    key: &Key,
    value: &str,
    word: TypeWord,
    unit: &InitUnit,
    defaults: &Timeouts,
) -> Option<String> {
    if !key.types.contains(word) {
        return Some(format!("it is not allowed for units of type {}", word.as_str()));
    }
    if value.is_empty() || value.trim_matches([' ', '\t']) != value {
        return Some("a value must not be empty, nor begin or end with a blank".to_owned());
    }
    if value.contains(char::is_control) {
        return Some("it contains a control character".to_owned());
    }
    let mut draft = Draft::new(unit.name.clone(), *defaults);
    let mut problems = Problems::default();
    (key.read)(&Value::new(value, 0), &mut draft, &mut problems);
    if problems.errors() > 0 {
        return problems.first().map(str::to_owned);
    }
    let unknown = draft.variables.iter().find(|(name, _)| !sets_variable(&unit.run, name));
    unknown.map(|(name, _)| format!("no variable `{name}` is given to the command"))
}

/// Returns the value, unless it is the default.
pub(crate) fn unless<T: PartialEq>(value: &T, default: &T, text: impl Into<String>) -> Vec<String> {
    if value == default { Vec::new() } else { vec![text.into()] }
}

/// Returns the word for a value, unless it is the default.
pub(crate) fn word<T: PartialEq + Default>(words: &[(&str, T)], value: T) -> Vec<String> {
    let found = words.iter().find(|(_, known)| *known == value && value != T::default());
    found.map(|(word, _)| (*word).to_owned()).into_iter().collect()
}

/// Returns the value, if there is one.
pub(crate) fn some(value: Option<impl Display>) -> Vec<String> {
    value.map(|value| value.to_string()).into_iter().collect()
}

/// Returns a list in one line, unless it is empty.
pub(crate) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { Vec::new() } else { vec![items.join(", ")] }
}

/// Formats a duration, or `none`.
pub(in crate::graph::format) fn duration(duration: Option<Duration>) -> String {
    duration.map_or("none".to_owned(), |it| Timespan::Finite(it).to_string())
}

/// Returns exit statuses, then signals.
pub(crate) fn statuses(set: &StatusSet) -> Vec<String> {
    let codes = set.codes.iter().map(u8::to_string);
    list(codes.chain(set.signals.iter().map(ToString::to_string)))
}

/// Returns `yes` or `no`.
pub(crate) fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
