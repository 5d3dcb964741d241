//! Value writers shared by several keys.

use std::fmt::Display;
use std::time::Duration;

use fleet_unitfile::values::Timespan;

use crate::graph::model::StatusSet;

/// Returns the value, unless it is the default.
pub(super) fn unless<T: PartialEq>(value: &T, default: &T, text: impl Into<String>) -> Vec<String> {
    if value == default { Vec::new() } else { vec![text.into()] }
}

/// Returns the word for a value, unless it is the default.
pub(super) fn word<T: PartialEq + Default>(words: &[(&str, T)], value: T) -> Vec<String> {
    let found = words.iter().find(|(_, known)| *known == value && value != T::default());
    found.map(|(word, _)| (*word).to_owned()).into_iter().collect()
}

/// Returns the value, if there is one.
pub(super) fn some(value: Option<impl Display>) -> Vec<String> {
    value.map(|value| value.to_string()).into_iter().collect()
}

/// Returns a list in one line, unless it is empty.
pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { Vec::new() } else { vec![items.join(", ")] }
}

/// Formats a duration, or `none`.
pub(in crate::graph::format) fn duration(duration: Option<Duration>) -> String {
    duration.map_or("none".to_owned(), |it| Timespan::Finite(it).to_string())
}

/// Returns exit statuses, then signals.
pub(super) fn statuses(set: &StatusSet) -> Vec<String> {
    let codes = set.codes.iter().map(u8::to_string);
    list(codes.chain(set.signals.iter().map(ToString::to_string)))
}

/// Returns `yes` or `no`.
pub(super) fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
