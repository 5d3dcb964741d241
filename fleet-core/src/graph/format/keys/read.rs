//! Value readers shared by several keys.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_unitfile::Span;
use fleet_unitfile::spelling::suggest;
use fleet_unitfile::values::{Timespan, TimespanError, parse_timespan};

use crate::graph::format::diagnostic::{Code, Problems, short};
use crate::graph::format::lexer::Value;
use crate::graph::model::{InvalidName, Name, Signal, StatusSet, Target};

/// Reads one of these words.
pub(in crate::graph::format) fn one_of<T: Copy>(
    value: &Value,
    problems: &mut Problems,
    words: &[(&'static str, T)],
) -> Option<T> {
    let found = words.iter().find(|(word, _)| *word == value.text());
    if found.is_none() {
        let names = words.iter().map(|(word, _)| *word);
        let help = match suggest(value.text(), names.clone()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("write one of {}", names.collect::<Vec<_>>().join(", ")),
        };
        refuse(value, problems, help);
    }
    found.map(|(_, meaning)| *meaning)
}

/// Reads `yes` or `no`.
pub(super) fn yes_or_no(value: &Value, problems: &mut Problems) -> Option<bool> {
    one_of(value, problems, &[("yes", true), ("no", false)])
}

/// Reads an integer in a range.
pub(in crate::graph::format) fn number<T>(
    value: &Value,
    problems: &mut Problems,
    range: std::ops::RangeInclusive<T>,
) -> Option<T>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let number = value.text().parse().ok().filter(|number| range.contains(number));
    if number.is_none() {
        let (least, most) = range.into_inner();
        refuse(value, problems, format!("write a whole number from {least} to {most}"));
    }
    number
}

/// Reports that the key does not accept the value.
pub(super) fn refuse(value: &Value, problems: &mut Problems, help: impl Into<String>) {
    let message = format!("`{}` is not a valid value for this key", short(value.text()));
    value.refuse(problems, Code::BadValue, message, help);
}

/// Reads an absolute path.
pub(super) fn path(value: &Value, problems: &mut Problems) -> Option<String> {
    let path = absolute(value.text());
    if path.is_none() {
        refuse(value, problems, "write an absolute path");
    }
    path
}

/// Returns the text if it is an absolute path.
pub(super) fn absolute(text: &str) -> Option<String> {
    text.starts_with('/').then(|| text.to_owned())
}

/// Reads a duration, which may be zero.
pub(super) fn duration(value: &Value, problems: &mut Problems) -> Option<Duration> {
    let read = duration_text(value.text());
    read.map_err(|help| bad_duration(value, problems, help)).ok()
}

/// Reads a duration longer than zero, or `none` for no limit.
pub(in crate::graph::format) fn duration_or_none(
    value: &Value,
    problems: &mut Problems,
) -> Option<Option<Duration>> {
    if value.text() == "none" {
        return Some(None);
    }
    let duration = duration(value, problems)?;
    if duration.is_zero() {
        bad_duration(value, problems, "write none for no limit");
        return None;
    }
    Some(Some(duration))
}

/// Parses a duration, or returns a remedy.
pub(super) fn duration_text(text: &str) -> Result<Duration, &'static str> {
    match parse_timespan(text) {
        Ok(Timespan::Finite(duration)) => Ok(duration),
        Ok(Timespan::Infinity) => Err("infinity is not allowed; keys without a limit take `none`"),
        Err(TimespanError::TooLong) => Err("write a shorter one"),
        Err(_) => Err("write a number with ms, s, min or h, such as 90s"),
    }
}

fn bad_duration(value: &Value, problems: &mut Problems, help: &str) {
    let message = format!("`{}` is not a valid duration here", short(value.text()));
    value.refuse(problems, Code::BadDuration, message, help);
}

/// Splits a list into its items, each with its position. Empty items are reported and left out.
pub(in crate::graph::format) fn list<'v>(
    value: &'v Value,
    problems: &mut Problems,
) -> Vec<(&'v str, Span)> {
    let (mut items, mut at) = (Vec::new(), 0);
    for part in value.text().split(',') {
        let item = part.trim_matches([' ', '\t']);
        let start = at + (part.len() - part.trim_start_matches([' ', '\t']).len());
        if item.is_empty() {
            let place = value.part(at.saturating_sub(1)..at.max(1));
            problems.add(
                Code::Empty,
                place,
                "an item is missing at this comma",
                "write a name there, or remove the comma",
            );
        } else {
            items.push((item, value.part(start..start + item.len())));
        }
        at += part.len() + 1;
    }
    items
}

/// Reads a list of targets. Invalid items are reported and left out.
pub(in crate::graph::format) fn target_items(
    value: &Value,
    problems: &mut Problems,
) -> Vec<(Target, Span)> {
    let items = list(value, problems);
    items.into_iter().filter_map(|(it, span)| Some((target(it, span, problems)?, span))).collect()
}

/// Reads a target.
pub(in crate::graph::format) fn target(
    text: &str,
    span: Span,
    problems: &mut Problems,
) -> Option<Target> {
    let read = Target::new(text);
    read.map_err(|problem| bad_name("target", text, span, problem, problems)).ok()
}

/// Reads the name of a single target.
pub(in crate::graph::format) fn one_target(
    value: &Value,
    problems: &mut Problems,
) -> Option<Target> {
    if !value.text().contains([' ', '\t', ',']) {
        return target(value.text(), value.span(), problems);
    }
    let message = format!("`{}` is not a valid target name", short(value.text()));
    let help =
        "name one target; for several, name the target of a virtual unit that depends on them";
    problems.add(Code::BadName, value.span(), message, help);
    None
}

/// Reads the name of a unit.
pub(in crate::graph::format) fn name(
    text: &str,
    span: Span,
    problems: &mut Problems,
) -> Option<Name> {
    let read = Name::new(text);
    read.map_err(|problem| bad_name("unit", text, span, problem, problems)).ok()
}

fn bad_name(what: &str, text: &str, span: Span, problem: InvalidName, problems: &mut Problems) {
    let blank = matches!(problem, InvalidName::Character { character: ' ' | '\t', .. });
    let help = match problem {
        InvalidName::Character { .. } if blank && what == "target" => {
            "put a comma between two names"
        }
        InvalidName::Character { .. } => "use ASCII letters, digits and _ - . @ : \\",
        _ => "write at most 255 characters",
    };
    let message = format!("`{}` is not a valid {what} name", short(text));
    problems.add(Code::BadName, span, message, help);
}

/// Reads a list of variable names.
pub(super) fn variables(value: &Value, problems: &mut Problems) -> Vec<String> {
    let items = list(value, problems);
    let valid = items.into_iter().filter(|(it, span)| variable(it, *span, problems));
    valid.map(|(item, _)| item.to_owned()).collect()
}

/// Returns whether the text is a variable name. Reports an error if not.
pub(super) fn variable(text: &str, span: Span, problems: &mut Problems) -> bool {
    let valid = is_variable(text);
    if !valid {
        let message = format!("`{}` is not a valid variable name", short(text));
        let help = "use ASCII letters, digits and _, and no digit at the start";
        problems.add(Code::BadName, span, message, help);
    }
    valid
}

/// Returns whether the text is a variable name.
pub(in crate::graph::format) fn is_variable(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads a list of exit statuses and signals.
pub(super) fn statuses(value: &Value, problems: &mut Problems) -> StatusSet {
    let mut set = StatusSet::default();
    for (item, span) in list(value, problems) {
        let is_number = item.bytes().all(|byte| byte.is_ascii_digit());
        match (item.parse().ok(), Signal::parse(item).filter(|_| !is_number)) {
            (Some(code), _) if is_number => drop(set.codes.insert(code)),
            (_, Some(signal)) => drop(set.signals.insert(signal)),
            _ => bad_status(item, span, problems),
        }
    }
    set
}

/// Reads a signal name.
pub(super) fn signal(value: &Value, problems: &mut Problems) -> Option<Signal> {
    let signal = Signal::parse(value.text());
    if signal.is_none() {
        bad_status(value.text(), value.span(), problems);
    }
    signal
}

fn bad_status(text: &str, span: Span, problems: &mut Problems) {
    let known: BTreeSet<String> = Signal::all().map(|signal| signal.to_string()).collect();
    let upper = text.to_ascii_uppercase();
    let help = match suggest(&upper, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "write a status from 0 to 255, or a signal such as SIGTERM".to_owned(),
    };
    let message = format!("`{}` is neither an exit status nor a signal", short(text));
    problems.add(Code::BadStatus, span, message, help);
}
