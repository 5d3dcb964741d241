//! Values of options: what they mean, and what to write where they cannot be read.

use std::fmt::Display;
use std::time::Duration;

use fleet_unitfile::{SpecifierContext, UnitName, parse_bool, parse_timespan};

use crate::graph::Signal;

/// The unit that values are read for.
pub(super) struct In<'a> {
    pub(super) name: &'a UnitName,
    pub(super) facts: &'a SpecifierContext,
}

impl<'a> In<'a> {
    pub(super) fn new(name: &'a UnitName, facts: &'a SpecifierContext) -> Self {
        Self { name, facts }
    }

    /// The text with its specifiers replaced.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        self.facts.expand(text, self.name).map_err(shown)
    }

    /// An absolute path, after its specifiers were replaced.
    pub(super) fn path(&self, text: &str) -> Result<String, String> {
        absolute(&self.expand(text)?)
    }
}

/// The words of an error of another crate.
pub(super) fn shown(error: impl Display) -> String {
    format!("cannot be read: {error}")
}

/// What an option says that an empty value sets back; nothing is the default. systemd ignores an
/// empty value of any other option, which is refused here like whatever else it ignores.
pub(super) fn unless_empty<T>(
    value: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { read(value).map(Some) }
}

/// A yes or no.
pub(super) fn flag(value: &str) -> Result<bool, String> {
    parse_bool(value).ok_or_else(|| format!("is {value:?}: write yes or no"))
}

/// A whole number within bounds.
pub(super) fn number<T>(value: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or_else(|| format!("is {value:?}: write a whole number from {least} to {most}"))
}

/// A span of time that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(
    /// Nothing is for ever.
    pub(super) Option<Duration>,
);

/// A span of time.
pub(super) fn span(value: &str) -> Result<Span, String> {
    parse_timespan(value).map(|span| Span(span.as_duration())).map_err(shown)
}

/// A limit in time, of which zero means that there is none.
pub(super) fn timeout(value: &str) -> Result<Span, String> {
    let Span(span) = span(value)?;
    Ok(Span(span.filter(|span| !span.is_zero())))
}

/// How long something may last at most; systemd takes zero at its word.
pub(super) fn longest(value: &str) -> Result<Option<Duration>, String> {
    match span(value)?.0 {
        Some(Duration::ZERO) => Err(format!(
            "is {value:?}, which ends the unit as soon as it is up: write how long it may run, or \
             infinity"
        )),
        span => Ok(span),
    }
}

/// A span of time that has an end.
pub(super) fn delay(value: &str, instead: &str) -> Result<Duration, String> {
    span(value)?.0.ok_or_else(|| format!("cannot be infinity: {instead}"))
}

/// A signal.
pub(super) fn signal(value: &str) -> Result<Signal, String> {
    Signal::parse(value).ok_or_else(|| {
        format!("names no signal: {value:?}; write a name such as SIGTERM, no real-time signal")
    })
}

/// One of some words with its meaning.
pub(super) fn choice<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
        return Ok(*meaning);
    }
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(format!("is {value:?}: write {}", or(&all)))
}

/// The words as one reads them out: `a, b or c`.
fn or(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// A path from the root on.
pub(super) fn absolute(path: &str) -> Result<String, String> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path.to_owned());
    }
    Err(format!("has the relative path {path:?}: write it from the root on"))
}
