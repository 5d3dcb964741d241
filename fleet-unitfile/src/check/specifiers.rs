//! Percent signs in values: which letters may follow one.

use super::code::FindingCode;
use super::flaw::Flaw;
use super::kind::Kind;

/// The letters that systemd has a specifier for, those that it had once and those of newer
/// versions among them, and the percent sign itself.
const LETTERS: &str = "aAbBcCdDEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY%";

/// The first percent sign that begins no specifier, in a value whose specifiers systemd replaces.
///
/// One at the very end stays as it is, and so does one before anything but a letter or digit.
pub(super) fn check(kind: Kind, value: &str) -> Option<Flaw> {
    let code = code(kind)?;
    let (at, letter) = unknown(value)?;
    let flaw = Flaw {
        code,
        at: at..at + 1 + letter.len_utf8(),
        message: format!("\"%{letter}\" is no specifier"),
        help: "write %% for a percent sign".to_owned(),
    };
    Some(flaw)
}

/// What an unknown specifier means for a kind of value; `None` where a percent sign is like any
/// other character.
fn code(kind: Kind) -> Option<FindingCode> {
    match kind {
        Kind::Command | Kind::User | Kind::Users | Kind::RootPath | Kind::WorkingDirectory => {
            Some(FindingCode::FatalSpecifier)
        }
        Kind::Binds
        | Kind::BusName
        | Kind::Calendar
        | Kind::Condition
        | Kind::Environment
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

fn unknown(value: &str) -> Option<(usize, char)> {
    let mut characters = value.char_indices();
    while let Some((at, character)) = characters.next() {
        if character != '%' {
            continue;
        }
        let (_, letter) = characters.next()?;
        if letter.is_ascii_alphanumeric() && !LETTERS.contains(letter) {
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
        ] {
            assert_eq!(unknown(value), expected, "{value}");
        }
    }
}
