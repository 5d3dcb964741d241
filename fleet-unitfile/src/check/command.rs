//! Command lines: syntax and program paths.

use crate::check::finding::{FindingCode, ValueError, quoted};
use crate::check::specifiers;
use crate::command::{
    CommandError, CommandLine, Commands, RefusedCommand, check_path, has_shell_prefix,
};
use crate::name::UnitName;
use crate::values::words::{Splitter, WordError};

/// Checks a command line, which may contain several commands separated by semicolons.
///
/// Returns only the first error, because systemd does not read the commands after a command that it
/// refuses.
pub(super) fn command(value: &str, unit: &UnitName) -> Option<ValueError> {
    let mut commands = Commands::newest(value);
    let refusal = |command: Result<CommandLine, _>| match command {
        Ok(command) => refused_program(&command, unit),
        Err(refusal) => Some(refusal),
    };
    match commands.find_map(refusal) {
        Some(refusal) => Some(refused(value, &refusal)),
        None => commands.unknown_escape().map(|at| escape(value, at)),
    }
}

/// Returns the number of commands that systemd accepts from a value.
pub(super) fn count(value: &str, unit: &UnitName) -> usize {
    let commands = Commands::newest(value).map_while(Result::ok);
    let is_accepted = |command: &CommandLine| {
        specifiers::in_command(value, command).is_none() && refused_program(command, unit).is_none()
    };
    commands.take_while(is_accepted).count()
}

/// Returns the offset of the first prefix `|` of a command.
pub(super) fn shell_prefix(value: &str) -> Option<usize> {
    Commands::newest(value).map_while(Result::ok).find_map(|command| {
        let (_, span) = command.words().next().filter(|(path, _)| has_shell_prefix(path))?;
        value[span.start..span.end].find('|').map(|at| span.start + at)
    })
}

/// Returns the code of the error that versions without the prefix `|` find in a value.
pub(super) fn code_without_shell(value: &str) -> Option<FindingCode> {
    let refusal = Commands::new(value).find_map(Result::err)?;
    Some(if refusal.is_ignored { FindingCode::IgnoredCommand } else { FindingCode::Program })
}

/// Checks a program whose path has specifiers, as it is after they are expanded.
fn refused_program(command: &CommandLine, unit: &UnitName) -> Option<RefusedCommand> {
    let (path, span) = command.words().next().filter(|(path, _)| path.contains('%'))?;
    if has_shell_prefix(path) {
        return None;
    }
    let error = check_path(&specifiers::path_form(path, unit), span.start).err()?;
    Some(RefusedCommand { error, is_ignored: command.ignores_failure() })
}

fn refused(value: &str, refusal: &RefusedCommand) -> ValueError {
    let RefusedCommand { error, is_ignored } = refusal;
    let of_command = |message, help| ValueError::new(FindingCode::Command, message, help);
    let error = match *error {
        CommandError::Word(WordError::OpenQuote { at }) => {
            let help = "close each quote, and write \\\" for a quote in the text";
            ValueError { at: at..value.len(), ..of_command("a quote is not closed", help) }
        }
        CommandError::Word(_) => return not_utf8(),
        CommandError::NoPath { .. } => {
            let help = "write the absolute path of a program";
            ValueError {
                code: FindingCode::Program,
                ..of_command("a command without a program", help)
            }
        }
        CommandError::NoName { .. } => {
            let help = "write argv[0] after the path, or remove the @";
            of_command("the prefix @ requires a word for argv[0]", help)
        }
        CommandError::Directory { at } => {
            let help = "write the path of a program, without / at the end";
            of_program(value, at, "is a directory", help)
        }
        CommandError::PathCharacter { at } => {
            let what = "has a quote, a backslash or a control character";
            of_program(value, at, what, "give the program another name")
        }
        CommandError::RelativePath { at } | CommandError::Specifier { at, .. } => {
            let what = "is neither an absolute path nor a plain name";
            of_program(value, at, what, "write an absolute path")
        }
    };
    let code = if *is_ignored { FindingCode::IgnoredCommand } else { error.code };
    ValueError { code, ..error }
}

/// Creates an error about the program of the command at offset `at`.
///
/// If the program's word contains neither quotes nor escapes, the error marks the path without its
/// prefixes. Otherwise, it marks the whole word.
fn of_program(value: &str, at: usize, what: &str, help: &str) -> ValueError {
    // In newer versions the bar selects a shell; older ones take it as part of the name.
    const PREFIXES: [char; 6] = ['-', '@', ':', '+', '!', '|'];
    let mut words = Splitter::new(&value[at..], true);
    let word = words.next().and_then(Result::ok).unwrap_or_default();
    let written = &value[at..at + words.at()];
    let path = word.trim_start_matches(PREFIXES);
    let error = ValueError::new(FindingCode::Program, format!("{} {what}", quoted(path)), help);
    let before = if word == written { word.len() - path.len() } else { 0 };
    error.at_word((at + before, &written[before..]))
}

/// Creates the warning about escapes that produce invalid UTF-8, such as `\xff`. systemd accepts
/// these bytes, but they are rarely intended.
fn not_utf8() -> ValueError {
    let message = "the escapes of a word stand for bytes that are not UTF-8";
    ValueError::new(FindingCode::Escape, message, "write \\u and four digits for a character")
}

fn escape(value: &str, at: usize) -> ValueError {
    let next = value[at + 1..].chars().next().map_or(0, char::len_utf8);
    let message = format!("{} is not an escape", quoted(&value[at..at + 1 + next]));
    let error = ValueError::new(FindingCode::Escape, message, "write \\\\ for a backslash");
    ValueError { at: at..at + 1 + next, ..error }
}
