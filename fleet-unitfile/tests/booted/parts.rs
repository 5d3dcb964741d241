//! Parts of values: words, limits, numbers and paths, in the form in which systemd shows them.

use fleet_unitfile::CommandLine;
use fleet_unitfile::command::Privileges;
use fleet_unitfile::values::{
    Size, Timespan, WordError, cescape, parse_size, parse_timespan, split_words,
};
use serde_json::{Value, json};

use crate::options::ComparedOption;

/// Returns the commands before the first refused one.
pub(crate) fn before_refusal(value: &str) -> Vec<CommandLine> {
    let ends = value.match_indices(';').map(|(at, _)| at);
    let ends = ends.filter(|at| value[..*at].ends_with([' ', '\t']));
    let mut ends = ends.chain([value.len()]).rev();
    ends.find_map(|end| CommandLine::parse(&value[..end]).ok()).unwrap_or_default()
}

/// Returns the words before the first invalid word. Words that are not UTF-8 are skipped.
pub(crate) fn before_error(value: &str) -> Vec<String> {
    let blanks = value.char_indices().filter(|(_, c)| matches!(c, ' ' | '\t'));
    let ends: Vec<usize> = blanks.map(|(at, _)| at).chain([value.len()]).collect();
    let (mut words, mut start) = (Vec::new(), 0);
    for end in ends {
        match split_words(&value[start..end]) {
            Ok(more) => words.extend(more),
            Err(WordError::NotUtf8 { .. }) => {}
            // A quote may continue after the blank.
            Err(WordError::OpenQuote { .. }) => continue,
            Err(_) => break,
        }
        start = end;
    }
    words
}

/// Splits a list in which backslashes are literal.
pub(crate) fn unquoted(value: &str) -> Vec<String> {
    let kept = value.replace('\\', "\\\\");
    before_error(&kept)
}

pub(crate) fn flags(command: &CommandLine) -> Vec<&'static str> {
    let mut flags = Vec::new();
    if command.ignores_failure() {
        flags.push("ignore-failure");
    }
    match command.privileges() {
        Privileges::Unit => {}
        Privileges::Full => flags.push("privileged"),
        Privileges::KeepUser => flags.push("no-setuid"),
        Privileges::KeepUserWithoutAmbient => flags.push("ambient"),
    }
    if !command.expands_variables() {
        flags.push("no-env-expand");
    }
    flags
}

pub(crate) fn limit(known: &ComparedOption, text: &str) -> Option<Value> {
    if text == "infinity" {
        return Some(json!(u64::MAX));
    }
    match known.option {
        "LimitMEMLOCK" => match parse_size(text).ok()? {
            Size::Bytes(bytes) => Some(json!(bytes)),
            _ => None,
        },
        _ => Some(json!(integer(text)?)),
    }
}

pub(crate) fn span(text: &str, zero_is_never: bool) -> Option<Value> {
    let micros = match parse_timespan(text).ok()? {
        Timespan::Finite(time) => u64::try_from(time.as_micros()).ok()?,
        Timespan::Infinity => u64::MAX,
    };
    Some(json!(if micros == 0 && zero_is_never { u64::MAX } else { micros }))
}

pub(crate) fn address(text: &str) -> String {
    match text.parse::<u16>() {
        Ok(port) => format!("[::]:{port}"),
        Err(_) => cescape(text),
    }
}

/// Parses an integer in the four bases that systemd knows.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let bases = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = bases.iter().find_map(|(mark, base)| Some((digits.strip_prefix(mark)?, *base)));
    let (digits, base) = match prefixed {
        Some(prefixed) => prefixed,
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    Some(sign * i64::from_str_radix(digits, base).ok()?)
}

/// Normalizes a path.
pub(crate) fn simplified(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let parts: Vec<&str> = parts.collect();
    format!("/{}", parts.join("/"))
}
