//! Checks of specifiers in values.

use std::ops::Range;

use super::code::FindingCode;
use super::kind::Kind;
use super::value_error::ValueError;
use crate::command::{CommandLine, Commands};
use crate::quoting::Splitter;

/// The specifier letters of systemd 252, and the percent sign. The list includes `c`, `r` and `R`,
/// which systemd expands with a warning.
const LETTERS: &str = "aAbBcCdEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY%";

/// Specifiers that are allowed in unit names, because their values contain no blanks or slashes.
const NAME_LETTERS: &str = "aAbBgGHijlmMnNopquUvwW%";

/// Returns an error for the first invalid specifier of a value. Returns `None` if all specifiers
/// are valid, or if systemd expands no specifiers in values of this kind.
///
/// A percent sign is literal at the end of a value, and before any character other than a letter or
/// digit.
pub(super) fn check(kind: Kind, value: &str) -> Option<ValueError> {
    if kind == Kind::Command {
        return Commands::new(value).map_while(Result::ok).find_map(|it| in_command(value, &it));
    }
    if kind == Kind::Environment {
        return in_words(value);
    }
    let code = code(kind, value)?;
    let is_name = matches!(kind, Kind::Unit | Kind::UnitOf(_) | Kind::Units | Kind::UnitsOf(_));
    let (at, letter) = unknown(value, if is_name { NAME_LETTERS } else { LETTERS })?;
    let at = at..at + 1 + letter.len_utf8();
    if !LETTERS.contains(letter) {
        return Some(not_a_specifier(code, at, letter));
    }
    let message = format!("\"%{letter}\" cannot be part of the name of a unit");
    let help = "write a specifier such as %i, %j, %n or %p".to_owned();
    Some(ValueError { code, at, message, help })
}

/// Checks the words of a value. The quotes and escapes of a word are processed before its
/// specifiers.
fn in_words(value: &str) -> Option<ValueError> {
    let mut words = Splitter::new(value, true);
    loop {
        words.skip_blanks();
        let start = words.at();
        // systemd reads nothing after an error.
        let word = words.next()?.ok()?;
        if let Some((at, letter)) = in_word(value, &word, start..words.at()) {
            return Some(not_a_specifier(FindingCode::Specifier, at, letter));
        }
    }
}

/// Returns an error for the first invalid specifier of a command.
///
/// An invalid specifier makes systemd refuse the unit. If the command has the prefix `-`, systemd
/// ignores only the command, so the finding is a warning.
pub(super) fn in_command(value: &str, command: &CommandLine) -> Option<ValueError> {
    let mut words = command.words();
    let (at, letter) = words.find_map(|(word, span)| in_word(value, word, span.start..span.end))?;
    let code = match command.ignores_failure() {
        true => FindingCode::IgnoredCommand,
        false => FindingCode::FatalSpecifier,
    };
    Some(not_a_specifier(code, at, letter))
}

/// Finds the first invalid specifier in `word`, and returns its range in `value` and its letter.
/// `span` is the range of the whole word in `value`.
///
/// Quotes or escapes in the word may produce a specifier that does not appear literally in `value`.
/// Its range is then `span`.
fn in_word(value: &str, word: &str, span: Range<usize>) -> Option<(Range<usize>, char)> {
    let (_, letter) = unknown(word, LETTERS)?;
    let written = unknown(&value[span.clone()], LETTERS).filter(|(_, it)| *it == letter);
    let at = written
        .map_or(span.clone(), |(at, _)| span.start + at..span.start + at + 1 + letter.len_utf8());
    Some((at, letter))
}

fn not_a_specifier(code: FindingCode, at: Range<usize>, letter: char) -> ValueError {
    let message = format!("\"%{letter}\" is not a specifier");
    ValueError { code, at, message, help: "write %% for a percent sign".to_owned() }
}

/// Returns the code for an invalid specifier in a value of this kind. Returns `None` if systemd
/// expands no specifiers in such a value.
fn code(kind: Kind, value: &str) -> Option<FindingCode> {
    match kind {
        // With the dash systemd only warns.
        Kind::WorkingDirectory if value.starts_with('-') => Some(FindingCode::Specifier),
        Kind::User | Kind::Users | Kind::RootPath | Kind::WorkingDirectory => {
            Some(FindingCode::FatalSpecifier)
        }
        Kind::Binds
        | Kind::BusName
        | Kind::Calendar
        | Kind::Condition
        | Kind::Device
        | Kind::EnvironmentFile
        | Kind::Listen
        | Kind::ListenLocal
        | Kind::Path
        | Kind::PathEach
        | Kind::PathList
        | Kind::PathTest
        | Kind::Paths
        | Kind::PathsOnly
        | Kind::RelativePaths
        | Kind::Sources
        | Kind::Spans
        | Kind::Text
        | Kind::Unit
        | Kind::UnitOf(_)
        | Kind::Units
        | Kind::UnitsOf(_)
        | Kind::Urls
        | Kind::WordOrArgument(_) => Some(FindingCode::Specifier),
        _ => None,
    }
}

fn unknown(value: &str, known: &str) -> Option<(usize, char)> {
    let mut characters = value.char_indices();
    while let Some((at, character)) = characters.next() {
        if character != '%' {
            continue;
        }
        let (_, letter) = characters.next()?;
        if letter.is_ascii_alphanumeric() && !known.contains(letter) {
            return Some((at, letter));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_specifier_letters_are_found() {
        for (value, expected) in [
            ("/bin/%i", None),
            ("100%%", None),
            ("100%", None),
            ("%%z", None),
            ("a %z", Some((2, 'z'))),
            ("50% of all, %ä", None),
            ("date +%F", Some((6, 'F'))),
            ("%D", Some((0, 'D'))),
        ] {
            assert_eq!(unknown(value, LETTERS), expected, "{value}");
        }
    }
}
