//! Checks of specifiers in values.

use std::borrow::Cow;
use std::ops::Range;

use crate::check::finding::{FindingCode, ValueError};
use crate::check::kind::Kind;
use crate::command::{CommandLine, Commands};
use crate::name::UnitName;
use crate::specifier::{Specifier, SpecifierContext};
use crate::values::words::Splitter;

/// The specifier letters of systemd, and the percent sign. The list includes `c`, `r` and `R`,
/// which systemd 252 expands with a warning, and `D`, which is new in systemd 256.
const LETTERS: &str = "aAbBcCdDEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY%";

/// Specifiers that are allowed in unit names, because their values contain no blanks or slashes.
const NAME_LETTERS: &str = "aAbBgGHijlmMnNopquUvwW%";

/// Returns an error for the first invalid specifier of a value. Returns `None` if all specifiers
/// are valid, or if systemd expands no specifiers in values of this kind.
///
/// A percent sign is literal at the end of a value, and before any character other than a letter or
/// digit.
pub(super) fn check(kind: Kind, value: &str) -> Option<ValueError> {
    if kind == Kind::Command {
        return Commands::newest(value).map_while(Result::ok).find_map(|it| in_command(value, &it));
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

/// Finds `%D` in a value whose specifiers systemd expands. Returns its range, and the code for an
/// unknown specifier there.
pub(super) fn shared_data(kind: Kind, value: &str) -> Option<(FindingCode, Range<usize>)> {
    const OLDER: &str = "aAbBcCdEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY%";
    let found = |text: &str, start: usize| {
        let (at, _) = unknown(text, OLDER).filter(|(_, letter)| *letter == 'D')?;
        Some(start + at..start + at + 2)
    };
    if kind == Kind::Command {
        return Commands::newest(value).map_while(Result::ok).find_map(|command| {
            let mut words = command.words();
            let at = words.find_map(|(_, span)| found(&value[span.start..span.end], span.start))?;
            let code = match command.ignores_failure() {
                true => FindingCode::IgnoredCommand,
                false => FindingCode::FatalSpecifier,
            };
            Some((code, at))
        });
    }
    let code = match kind {
        Kind::Environment => FindingCode::Specifier,
        _ => code(kind, value)?,
    };
    Some((code, found(value, 0)?))
}

/// Expands the specifiers of a word. The unit's name tells some of them. For the others, a value of
/// the same form stands in: a path for a path, a number for a number.
///
/// Returns `None` if the form depends on the instance of a template, or on the machine.
pub(super) fn expanded<'a>(word: &'a str, unit: &UnitName) -> Option<Cow<'a, str>> {
    if !word.contains('%') {
        return Some(Cow::Borrowed(word));
    }
    if unit.is_template() && has_any(word, "iIf") {
        return None;
    }
    let instance = unit.is_template().then(|| unit.instantiate("x").ok()).flatten();
    examples().expand(word, instance.as_ref().unwrap_or(unit)).ok().map(Cow::Owned)
}

/// Expands the specifiers of a path like [`expanded`]. A specifier with an unknown value counts as
/// an absolute path at the start, and as a part of a name elsewhere.
pub(super) fn path_form<'a>(word: &'a str, unit: &UnitName) -> Cow<'a, str> {
    if let Some(expanded) = expanded(word, unit) {
        return expanded;
    }
    let mut form = String::new();
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' if characters.next().is_none_or(|letter| !letter.is_ascii_alphanumeric()) => {
                form.push('%');
            }
            '%' if form.trim_start_matches(['-', '+', '|', '!']).is_empty() => form.push_str("/x"),
            '%' => form.push('x'),
            _ => form.push(character),
        }
    }
    Cow::Owned(form)
}

/// Returns values of the usual form for specifiers of the machine.
fn examples() -> SpecifierContext {
    const ID: &str = "0123456789abcdef0123456789abcdef";
    SpecifierContext::system_manager()
        .with(Specifier::Architecture, "x86-64")
        .with(Specifier::BootId, ID)
        .with(Specifier::BuildId, "1")
        .with(Specifier::Fragment, "/x/x")
        .with(Specifier::HostName, "host")
        .with(Specifier::ImageId, "image")
        .with(Specifier::ImageVersion, "1")
        .with(Specifier::KernelRelease, "6.1")
        .with(Specifier::MachineId, ID)
        .with(Specifier::OsId, "linux")
        .with(Specifier::Shell, "/bin/sh")
        .with(Specifier::VariantId, "server")
        .with(Specifier::VersionId, "1")
}

/// Returns `true` if a word has one of these specifiers.
fn has_any(word: &str, letters: &str) -> bool {
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        if character == '%' && characters.next().is_some_and(|letter| letters.contains(letter)) {
            return true;
        }
    }
    false
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
        Kind::WorkingDirectory | Kind::Label if value.starts_with('-') => {
            Some(FindingCode::Specifier)
        }
        Kind::Form(form) => form.has_specifiers().then_some(FindingCode::Specifier),
        Kind::Label | Kind::User | Kind::Users | Kind::RootPath | Kind::WorkingDirectory => {
            Some(FindingCode::FatalSpecifier)
        }
        Kind::Binds
        | Kind::BusName
        | Kind::Calendar
        | Kind::Condition
        | Kind::CpuSet
        | Kind::Device
        | Kind::EnvironmentFile
        | Kind::Listen
        | Kind::ListenLocal
        | Kind::Path
        | Kind::PathEach
        | Kind::PathList
        | Kind::PathTest
        | Kind::PidFile
        | Kind::Paths
        | Kind::PathsOnly
        | Kind::RelativePaths
        | Kind::Spans
        | Kind::Text
        | Kind::Unit
        | Kind::UnitOf(_)
        | Kind::Units
        | Kind::UnitsOf(_)
        | Kind::Urls
        | Kind::Variables
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
            ("%D", None),
            ("%Q", Some((0, 'Q'))),
        ] {
            assert_eq!(unknown(value, LETTERS), expected, "{value}");
        }
    }
}
