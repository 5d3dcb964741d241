//! Reads and writes commands.
//!
//! Words, quotes, escapes and prefixes have the syntax of systemd. A command may use only variables
//! that its stanza sets or may set, and no operators of a shell outside quotes. These rules catch
//! commands that were written for a shell, because no shell runs them.

use std::fmt;

use fleet_unitfile::command::{CommandError, Privileges};
use fleet_unitfile::values::{WordError, cescape, quote_word, split_words};
use fleet_unitfile::{CommandLine, Span};

use super::diagnostic::{Code, Problems, short};
use super::keys::is_variable;
use super::lexer::Value;
use super::stanza::{Draft, HostResource};
use crate::graph::model::Command;

/// Reads a command and records its program and variables in the draft.
pub(super) fn read(value: &Value, draft: &mut Draft, problems: &mut Problems) -> Option<Command> {
    let line = line(value, problems)?;
    check_operators(&line, value, problems);
    let verbatim = !line.expands_variables();
    let mut words: Vec<String> = line.argv().map(str::to_owned).collect();
    if !verbatim {
        let dollars = Dollars::new(value);
        let mut at = 0;
        for (index, word) in words.iter_mut().enumerate() {
            let mut variables = Variables { value, dollars: &dollars, at: &mut at, problems };
            *word = variables.read(word, index == 0, draft);
        }
    }
    let mut words = words.into_iter();
    let first = words.next().unwrap_or_default();
    let length = value.text().find([' ', '\t']).unwrap_or(value.text().len());
    let program = HostResource::Program(line.path().to_owned());
    draft.host_resources.push((program, value.part(0..length)));
    Some(Command {
        program: line.path().to_owned(),
        name: line.sets_argv0().then_some(first),
        arguments: words.collect(),
        ignore_failure: line.ignores_failure(),
        verbatim,
        privileged: matches!(line.privileges(), Privileges::Full | Privileges::KeepUser),
        unconfined: line.privileges() == Privileges::Full,
    })
}

/// Parses a value that must be exactly one command.
fn line(value: &Value, problems: &mut Problems) -> Option<CommandLine> {
    if let Err(error) = split_words(value.text()) {
        return refuse_word(value, error, problems);
    }
    let mut lines = match CommandLine::parse(value.text()) {
        Ok(lines) => lines.into_iter(),
        Err(CommandError::Word(error)) => return refuse_word(value, error, problems),
        Err(error) => return refuse_program(value, why(&error), problems),
    };
    let line = lines.next();
    let Some(line) = line.filter(|line| line.path().starts_with('/')) else {
        return refuse_program(value, "it is not an absolute path", problems);
    };
    if lines.next().is_some() {
        let message = "this line has two commands, separated by `;`";
        let help = "write each command in a line with its own key, or \";\" for an argument";
        value.refuse(problems, Code::BadValue, message, help);
        return None;
    }
    Some(line)
}

/// Reports the first operator of a shell in a command.
fn check_operators(line: &CommandLine, value: &Value, problems: &mut Problems) {
    let word = |span: Span| &value.text()[span.start..span.end];
    let mut spans = std::iter::once(line.path_span()).chain(line.argument_spans());
    let Some(span) = spans.find(|span| is_operator(word(*span))) else { return };
    let operator = short(word(span));
    let message = format!("`{operator}` is for a shell, but no shell runs this command");
    let help = format!("write `/bin/sh -c '…'`, or \"{operator}\" in quotes for an argument");
    problems.add(Code::ShellOperator, value.part(span.start..span.end), message, help);
}

/// Returns whether an unquoted word would be an operator, or end with one, in a shell.
fn is_operator(word: &str) -> bool {
    let redirected = word.trim_start_matches(|c: char| c.is_ascii_digit());
    matches!(word, "&" | "&&" | "|" | "|&" | "||")
        || word.ends_with(';')
        || word.starts_with("&>")
        || redirected.starts_with('>')
        || (redirected.starts_with('<') && !redirected[1..].starts_with(char::is_alphanumeric))
}

fn why(error: &CommandError) -> &'static str {
    match error {
        CommandError::NoName { .. } => "its `@` requires a name after the path",
        CommandError::NoPath { .. } => "nothing follows its prefixes",
        CommandError::Directory { .. } => "it is a directory",
        CommandError::PathCharacter { .. } => "it has a quote, a backslash or a control character",
        _ => "it is not an absolute path",
    }
}

fn refuse_word<T>(value: &Value, error: WordError, problems: &mut Problems) -> Option<T> {
    let (message, at) = match error {
        WordError::OpenQuote { at } => ("this quote is not closed", at),
        WordError::Escape { at } => ("this backslash begins no escape", at),
        _ => ("the escapes of this command do not form valid text", 0),
    };
    let help = match error {
        WordError::Escape { .. } if value.text()[at..].starts_with("\\;") => {
            "write \";\" in quotes for a semicolon as an argument"
        }
        _ => "close it, or write \\\\ for a backslash and \\\" for a quote",
    };
    problems.add(Code::BadQuoting, value.part(at..at + 1), message, help);
    None
}

fn refuse_program<T>(value: &Value, why: &str, problems: &mut Problems) -> Option<T> {
    let first = value.text().split([' ', '\t']).next().unwrap_or_default();
    let message = format!("`{}` cannot be executed: {why}", short(first));
    let help = "write the absolute path of the program";
    problems.add(Code::BadProgram, value.part(0..first.len()), message, help);
    None
}

/// Offsets of the dollar signs in a value.
struct Dollars(Vec<usize>);

impl Dollars {
    fn new(value: &Value) -> Self {
        Self(value.text().match_indices('$').map(|(at, _)| at).collect())
    }
}

/// Reads the variables of consecutive words.
struct Variables<'a> {
    value: &'a Value,
    dollars: &'a Dollars,
    /// Number of dollar signs read so far.
    at: &'a mut usize,
    problems: &'a mut Problems,
}

impl Variables<'_> {
    /// Converts the variables in a word to systemd's syntax. In systemd, `$NAME` is a variable only
    /// if it is the whole word, so within a longer word it becomes `${NAME}`.
    fn read(&mut self, word: &str, is_program: bool, draft: &mut Draft) -> String {
        let whole = word.strip_prefix('$').is_some_and(is_variable);
        let mut written = String::with_capacity(word.len());
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('$') {
            written.push_str(before);
            let (name, length) = match name(after) {
                Some(found) if !is_program => found,
                _ => {
                    // `argv[0]` cannot contain a literal `$`.
                    rest = self.dollar(after, &mut written, is_program);
                    continue;
                }
            };
            let span = self.next(length + 1);
            draft.variables.push((name.to_owned(), span));
            written.push_str(&if whole { format!("${name}") } else { format!("${{{name}}}") });
            rest = &after[length..];
        }
        written.push_str(rest);
        written
    }

    /// Handles a dollar sign that begins no variable.
    fn dollar<'w>(&mut self, after: &'w str, written: &mut String, is_program: bool) -> &'w str {
        let span = self.next(1);
        if let Some(after) = after.strip_prefix('$').filter(|_| !is_program) {
            self.next(1);
            written.push_str("$$");
            return after;
        }
        let (message, help) = if is_program {
            ("the program path must not contain a variable", "write its path as it is")
        } else {
            ("this dollar sign begins no variable", "write $$ for a dollar sign, or ${NAME}")
        };
        self.problems.add(Code::UnknownVariable, span, message, help);
        after
    }

    /// Returns the position of the next dollar sign and the name after it, which together are
    /// `length` bytes long. The position is imprecise if the word also contains dollar signs
    /// written as escapes (such as `\x24`).
    fn next(&mut self, length: usize) -> Span {
        let at = self.dollars.0.get(*self.at).copied();
        *self.at += 1;
        at.map_or(self.value.span(), |at| {
            self.value.part(at..(at + length).min(self.value.text().len()))
        })
    }
}

/// Returns the variable name after a dollar sign, and the number of bytes that the name occupies,
/// including braces. Returns `None` if no valid name follows.
fn name(after: &str) -> Option<(&str, usize)> {
    if let Some(braced) = after.strip_prefix('{') {
        let (name, _) = braced.split_once('}')?;
        return is_variable(name).then_some((name, name.len() + 2));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let length = after.find(|c| !is_part(c)).unwrap_or(after.len());
    is_variable(&after[..length]).then_some((&after[..length], length))
}

/// Writes a command so that reading it gives the same command.
pub(super) fn write(command: &Command) -> String {
    let marks = [
        (command.ignore_failure, '-'),
        (command.name.is_some(), '@'),
        (command.verbatim, ':'),
        (command.unconfined, '+'),
        (command.privileged && !command.unconfined, '!'),
    ];
    let prefixes: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| mark).collect();
    let first = format!("{prefixes}{}", command.program);
    let words = command.name.iter().cloned().chain(arguments(command));
    [first].into_iter().chain(words).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Command {
    /// Writes the command as the value of a key such as `exec-start` in a stanza.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&write(self))
    }
}

/// Quotes a word if reading it without quotes would give another word, or an error.
fn quoted(word: &str) -> String {
    let quoted = quote_word(word);
    if is_operator(&quoted) { format!("\"{}\"", cescape(word)) } else { quoted.into_owned() }
}

/// Returns the arguments in the form that stanzas require: each dollar sign that begins no variable
/// is written as `$$`.
fn arguments(command: &Command) -> impl Iterator<Item = String> {
    let verbatim = command.verbatim;
    let kept = command.arguments.iter().filter(move |word| verbatim || !is_invalid_variable(word));
    kept.map(move |word| if verbatim { word.clone() } else { plain(word) })
}

/// Returns whether the word is a dollar sign with an invalid variable name (such as `$1`). systemd
/// expands such a word to nothing, so a stanza omits it.
fn is_invalid_variable(word: &str) -> bool {
    let name = word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$']));
    name.is_some_and(|name| !is_variable(name))
}

fn plain(word: &str) -> String {
    if word.strip_prefix('$').is_some_and(is_variable) {
        return word.to_owned();
    }
    let (mut written, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        let braced = after.strip_prefix('{').and_then(|braced| braced.split_once('}'));
        (rest, _) = match (after.strip_prefix('$'), braced) {
            (Some(after), _) => (after, written.push_str("$$")),
            (None, Some((name, after))) if !name.contains(':') => {
                (after, written.push_str(&format!("${{{name}}}")))
            }
            _ => (after, written.push_str("$$")),
        };
    }
    written + rest
}
