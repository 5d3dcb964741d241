//! Expands the specifiers of option values and command lines, and parses values. Errors include a
//! remedy.

use std::fmt::Display;
use std::time::Duration;

use fleet_unitfile::{
    CommandError, CommandLine, SpecifierContext, UnitName, parse_bool, parse_timespan,
};

use crate::graph::Signal;

/// Context for parsing the values of one unit.
pub(super) struct ValueContext<'a> {
    pub(super) name: &'a UnitName,
    specifiers: &'a SpecifierContext,
}

impl<'a> ValueContext<'a> {
    pub(super) fn new(name: &'a UnitName, specifiers: &'a SpecifierContext) -> Self {
        Self { name, specifiers }
    }

    /// Expands the specifiers of a text.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        self.specifiers.expand(text, self.name).map_err(unreadable)
    }

    /// Expands the specifiers of a command line.
    pub(super) fn expand_command(&self, line: &CommandLine) -> Result<CommandLine, CommandError> {
        line.expand(self.specifiers, self.name)
    }

    /// Expands specifiers and checks that the result is an absolute path.
    pub(super) fn path(&self, text: &str) -> Result<String, String> {
        absolute(&self.expand(text)?)
    }
}

/// Formats an error of another crate.
pub(super) fn unreadable(error: impl Display) -> String {
    format!("cannot be read: {error}")
}

/// Reads the value of an option that an empty value resets to its default. Returns `None` for an
/// empty value, and otherwise the result of `read`. (Other options must not be empty: systemd would
/// ignore the empty value, but here it is refused.)
pub(super) fn read_resettable<T>(
    value: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { read(value).map(Some) }
}

/// Reads a boolean.
pub(super) fn flag(value: &str) -> Result<bool, String> {
    parse_bool(value).ok_or_else(|| format!("is {value:?}: write yes or no"))
}

/// Reads an integer in a range.
pub(super) fn number<T>(value: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or_else(|| format!("is {value:?}: write a whole number from {least} to {most}"))
}

/// A time span from an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(
    /// `None` means infinity.
    pub(super) Option<Duration>,
);

/// Reads a time span.
pub(super) fn span(value: &str) -> Result<Span, String> {
    parse_timespan(value).map(|span| Span(span.as_duration())).map_err(unreadable)
}

/// Reads a timeout; zero means no timeout.
pub(super) fn timeout(value: &str) -> Result<Span, String> {
    let Span(span) = span(value)?;
    Ok(Span(span.filter(|span| !span.is_zero())))
}

/// Reads a maximum runtime. systemd takes zero literally, so zero is refused.
pub(super) fn longest(value: &str) -> Result<Option<Duration>, String> {
    match span(value)?.0 {
        Some(Duration::ZERO) => Err(format!(
            "is {value:?}, which stops the unit as soon as it is active: write the maximum \
             runtime, or infinity"
        )),
        span => Ok(span),
    }
}

/// Reads a finite time span.
pub(super) fn delay(value: &str, instead: &str) -> Result<Duration, String> {
    span(value)?.0.ok_or_else(|| format!("cannot be infinity: {instead}"))
}

/// Reads a signal.
pub(super) fn signal(value: &str) -> Result<Signal, String> {
    Signal::parse(value).ok_or_else(|| {
        format!("is no signal: {value:?}; write a name such as SIGTERM or SIGRTMIN+3")
    })
}

/// Reads one of several words.
pub(super) fn choice<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
        return Ok(*meaning);
    }
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(format!("is {value:?}: write {}", or(&all)))
}

/// Formats alternatives as `a, b or c`.
fn or(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// Checks that a path is absolute and, as systemd requires, has no `..` component.
pub(super) fn absolute(path: &str) -> Result<String, String> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(format!("has the relative path {path:?}: write an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("has a part \"..\" in the path {path:?}: write the path without it"));
    }
    Ok(path.to_owned())
}
