//! Command lines: whether systemd can read the commands in them, and which programs they name.

use super::code::FindingCode;
use super::flaw::{Flaw, quoted};
use super::specifiers;
use crate::command::{CommandError, Commands, Refusal};
use crate::words::{Splitter, WordError};

/// What is wrong with a command line, which may hold several commands with semicolons between.
///
/// That is one thing at most: systemd reads no further than the first command that it refuses.
pub(super) fn command(value: &str) -> Option<Flaw> {
    let mut commands = Commands::new(value);
    match commands.find_map(Result::err) {
        Some(refusal) => Some(refused(value, &refusal)),
        None => commands.kept_escape().map(|at| escape(value, at)),
    }
}

/// How many commands systemd takes from a value.
pub(super) fn count(value: &str) -> usize {
    let commands = Commands::new(value).map_while(Result::ok);
    commands.take_while(|it| specifiers::of_command(value, it).is_none()).count()
}

fn refused(value: &str, refusal: &Refusal) -> Flaw {
    let Refusal { error, is_ignored } = refusal;
    let of_command = |message, help| Flaw::whole(FindingCode::Command, message, help);
    let flaw = match *error {
        CommandError::Word(WordError::OpenQuote { at }) => {
            let help = "close each quote, and write \\\" for a quote of the text";
            Flaw { at: at..value.len(), ..of_command("a quote is not closed", help) }
        }
        CommandError::Word(_) => return not_utf8(),
        CommandError::NoPath { .. } => {
            let help = "write the whole path of a program, from / on";
            Flaw { code: FindingCode::Program, ..of_command("a command without a program", help) }
        }
        CommandError::NoName { .. } => {
            let help = "write one after the path, as the @ before it says";
            of_command("the program is not told its name", help)
        }
        CommandError::Directory { at } => {
            let help = "write the program in it, without / at the end";
            of_program(value, at, "is a folder", help)
        }
        CommandError::PathCharacter { at } => {
            let what = "has a quote, a backslash or a control character";
            of_program(value, at, what, "give the program another name")
        }
        CommandError::RelativePath { at } | CommandError::Specifier { at, .. } => {
            let what = "is neither an absolute path nor a plain name";
            of_program(value, at, what, "write the whole path, from / on")
        }
    };
    let code = if *is_ignored { FindingCode::IgnoredCommand } else { flaw.code };
    Flaw { code, ..flaw }
}

/// About the program of the command at an offset, at its path where that is written plainly.
fn of_program(value: &str, at: usize, what: &str, help: &str) -> Flaw {
    // A shell is asked for by a bar in newer versions; older ones take it for a part of the name.
    const PREFIXES: [char; 6] = ['-', '@', ':', '+', '!', '|'];
    let mut words = Splitter::new(&value[at..], true);
    let word = words.next().and_then(Result::ok).unwrap_or_default();
    let written = &value[at..at + words.at()];
    let path = word.trim_start_matches(PREFIXES);
    let flaw = Flaw::whole(FindingCode::Program, format!("{} {what}", quoted(path)), help);
    let before = if word == written { word.len() - path.len() } else { 0 };
    flaw.of_word((at + before, &written[before..]))
}

/// systemd takes what is not UTF-8; hardly anybody means it.
fn not_utf8() -> Flaw {
    let message = "the escapes of a word stand for bytes that are not UTF-8";
    Flaw::whole(FindingCode::Escape, message, "write \\u and four digits for a character")
}

fn escape(value: &str, at: usize) -> Flaw {
    let next = value[at + 1..].chars().next().map_or(0, char::len_utf8);
    let message = format!("{} is no escape", quoted(&value[at..at + 1 + next]));
    let flaw = Flaw::whole(FindingCode::Escape, message, "write \\\\ for a backslash");
    Flaw { at: at..at + 1 + next, ..flaw }
}
