//! Pure: no I/O, no clock. Command lines: prefixes, words and variables, by systemd's rules.

use std::collections::BTreeMap;

use fleet_unitfile::split_words_relaxed;

use super::compile::{Host, shown};
use super::spec::Command;

/// Adds the commands of one `Exec…=` line; an empty one takes all away that came before.
pub(crate) fn parse_commands(
    list: &mut Vec<Command>,
    value: &str,
    host: &Host,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for line in separate(value) {
        list.push(parse_command(&line, host)?);
    }
    Ok(())
}

fn parse_command(line: &str, host: &Host) -> Result<Command, String> {
    let mut words = split_words_relaxed(line).map_err(shown)?.into_iter();
    let first = words.next().ok_or("has no program: write its path")?;
    let mut command = Command::default();
    let path = first.trim_start_matches(['-', '@', ':', '+', '!']);
    for prefix in first[..first.len() - path.len()].chars() {
        match prefix {
            '-' => command.ignore_failure = true,
            ':' => command.verbatim = true,
            '@' => command.name = Some(String::new()),
            // Full privileges are what a command has anyhow, unless another user is named.
            _ if host.root => command.privileged = true,
            _ => {
                return Err(format!(
                    "cannot be obeyed: the prefix {prefix:?} asks for the rights of root, \
                     which fleet does not have here; take it out"
                ));
            }
        }
    }
    check_program(path)?;
    command.program = path.to_owned();
    if command.name.is_some() {
        command.name = words.next();
        if command.name.is_none() {
            return Err("has the prefix \"@\" but no name after the program: add one".to_owned());
        }
    }
    command.arguments = words.collect();
    Ok(command)
}

fn check_program(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("has no program: write its path".to_owned());
    }
    if path.starts_with('$') {
        return Err(format!(
            "has a variable for its program: write the path itself, or \"/bin/sh -c 'exec {path}'\""
        ));
    }
    if path.contains('/') && !path.starts_with('/') {
        return Err(format!("has the relative path {path:?}: write it from the root on"));
    }
    if path.ends_with('/') {
        return Err(format!("names a directory: {path:?}; write the path of a program"));
    }
    Ok(())
}

/// Parts a line at its semicolons, where each stands alone between blanks and outside quotes.
/// `\;` is an ordinary semicolon.
fn separate(line: &str) -> Vec<String> {
    let mut commands = vec![String::new()];
    let mut quote = None;
    let mut rest = line;
    let mut at_start = true;
    while let Some(first) = rest.chars().next() {
        let current = commands.last_mut().expect("there is always a command to add to");
        let alone = |word: &str| {
            let after = rest.strip_prefix(word)?;
            let ends = after.is_empty() || after.starts_with([' ', '\t']);
            (at_start && quote.is_none() && ends).then_some(after)
        };
        if let Some(after) = alone(";") {
            commands.push(String::new());
            rest = after;
            continue;
        }
        if let Some(after) = alone("\\;") {
            current.push_str("';'");
            rest = after;
            continue;
        }
        let escaped = if first == '\\' { rest[1..].chars().next() } else { None };
        let length = first.len_utf8() + escaped.map_or(0, char::len_utf8);
        match (quote, first) {
            (None, '"' | '\'') => quote = Some(first),
            (Some(open), _) if open == first => quote = None,
            _ => {}
        }
        current.push_str(&rest[..length]);
        at_start = first == ' ' || first == '\t';
        rest = &rest[length..];
    }
    commands.retain(|command| !command.trim().is_empty());
    commands
}

/// The arguments of a command with the variables in them replaced.
///
/// `${NAME}` anywhere becomes the value; `$NAME` as a whole word becomes the words of the value,
/// none if it is not set; `$$` becomes `$`.
pub(crate) fn expand_arguments(
    command: &Command,
    environment: &BTreeMap<String, String>,
) -> Vec<String> {
    if command.verbatim {
        return command.arguments.clone();
    }
    let expand = |word: &String| match word.strip_prefix('$') {
        Some(name) if !name.is_empty() && !name.starts_with(['{', '$']) => {
            let value = environment.get(name).map_or("", String::as_str);
            split_words_relaxed(value).unwrap_or_else(|_| vec![value.to_owned()])
        }
        _ => vec![expand_inside(word, environment)],
    };
    command.arguments.iter().flat_map(expand).collect()
}

fn expand_inside(word: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        rest = if let Some((name, tail)) = braced {
            out.push_str(environment.get(name).map_or("", String::as_str));
            tail
        } else {
            out.push('$');
            after.strip_prefix('$').unwrap_or(after)
        };
    }
    out.push_str(rest);
    out
}
