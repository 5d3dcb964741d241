//! Percent signs in values: which letters may follow one.

use std::ops::Range;

use super::code::FindingCode;
use super::flaw::Flaw;
use super::kind::Kind;
use crate::command::{CommandLine, Commands};
use crate::words::Splitter;

/// The letters that systemd 252 has a specifier for, `c`, `r` and `R` among them, which it warns of
/// and replaces, and the percent sign itself.
const LETTERS: &str = "aAbBcCdEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY%";

/// Those that may be part of the name of a unit: what they stand for has no blanks and slashes.
const OF_NAMES: &str = "aAbBgGHijlmMnNopquUvwW%";

/// The first percent sign that begins no specifier, in a value whose specifiers systemd replaces.
///
/// One at the very end stays as it is, and so does one before anything but a letter or digit.
pub(super) fn check(kind: Kind, value: &str) -> Option<Flaw> {
    if kind == Kind::Command {
        return Commands::new(value).map_while(Result::ok).find_map(|it| of_command(value, &it));
    }
    if kind == Kind::Environment {
        return in_words(value);
    }
    let code = code(kind, value)?;
    let is_name = matches!(kind, Kind::Unit | Kind::UnitOf(_) | Kind::Units | Kind::UnitsOf(_));
    let (at, letter) = unknown(value, if is_name { OF_NAMES } else { LETTERS })?;
    let at = at..at + 1 + letter.len_utf8();
    if !LETTERS.contains(letter) {
        return Some(no_specifier(code, at, letter));
    }
    let message = format!("\"%{letter}\" cannot be part of the name of a unit");
    let help = "write a specifier such as %i, %j, %n or %p".to_owned();
    Some(Flaw { code, at, message, help })
}

/// The same for words that may have quotes and escapes: they are read before the specifiers are.
fn in_words(value: &str) -> Option<Flaw> {
    let mut words = Splitter::new(value, true);
    loop {
        words.skip_blanks();
        let start = words.at();
        // What follows an error is not read.
        let word = words.next()?.ok()?;
        if let Some((at, letter)) = in_word(value, &word, start..words.at()) {
            return Some(no_specifier(FindingCode::Specifier, at, letter));
        }
    }
}

/// The same for one command of a value; systemd only ignores one that may fail.
pub(super) fn of_command(value: &str, command: &CommandLine) -> Option<Flaw> {
    let mut words = command.words();
    let (at, letter) = words.find_map(|(word, span)| in_word(value, word, span.start..span.end))?;
    let code = match command.ignores_failure() {
        true => FindingCode::IgnoredCommand,
        false => FindingCode::FatalSpecifier,
    };
    Some(no_specifier(code, at, letter))
}

/// Where a word has a specifier that there is not: all of it, where quotes or escapes make it up.
fn in_word(value: &str, word: &str, span: Range<usize>) -> Option<(Range<usize>, char)> {
    let (_, letter) = unknown(word, LETTERS)?;
    let written = unknown(&value[span.clone()], LETTERS).filter(|(_, it)| *it == letter);
    let at = written
        .map_or(span.clone(), |(at, _)| span.start + at..span.start + at + 1 + letter.len_utf8());
    Some((at, letter))
}

fn no_specifier(code: FindingCode, at: Range<usize>, letter: char) -> Flaw {
    let message = format!("\"%{letter}\" is no specifier");
    Flaw { code, at, message, help: "write %% for a percent sign".to_owned() }
}

/// What an unknown specifier means for a kind of value; `None` where a percent sign is like any
/// other character.
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
        | Kind::Stream(_)
        | Kind::Text
        | Kind::Unit
        | Kind::UnitOf(_)
        | Kind::Units
        | Kind::UnitsOf(_)
        | Kind::Urls => Some(FindingCode::Specifier),
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
    fn a_percent_sign_needs_a_letter_that_systemd_knows() {
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
