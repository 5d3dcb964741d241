//! Command lines: the programs in them, and whether they can be split at all.

use super::code::FindingCode;
use super::flaw::{Flaw, quoted, words};
use crate::words::{WordError, split_words, split_words_relaxed};

/// What may stand before a program: each changes how it is run.
const PREFIXES: [char; 6] = ['-', '@', ':', '+', '!', '|'];

/// What is wrong with a command line, which may hold several commands with semicolons between.
pub(super) fn command(value: &str) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    match split_words_relaxed(value) {
        Ok(split) => {
            let commands = split.split(|word| word == ";").filter(|command| !command.is_empty());
            flaws.extend(commands.filter_map(|command| program(value, &command[0])));
        }
        Err(error) => flaws.push(unread(value, error)),
    }
    if let Err(WordError::Escape { at }) = split_words(value)
        && flaws.is_empty()
    {
        flaws.push(escape(value, at));
    }
    flaws
}

/// How many commands a value has.
pub(super) fn count(value: &str) -> usize {
    let split = split_words_relaxed(value).unwrap_or_default();
    split.split(|word| word == ";").filter(|command| !command.is_empty()).count()
}

/// What is wrong with the first word of a command.
fn program(value: &str, word: &str) -> Option<Flaw> {
    // A shell is asked for by a bar in newer versions; older ones take it for a part of the name.
    let path = word.trim_start_matches(PREFIXES);
    let may_fail = word[..word.len() - path.len()].contains('-');
    let (message, help) = if path.is_empty() {
        ("a command without a program".to_owned(), "write the whole path of a program, from / on")
    } else if path.ends_with('/') {
        (format!("{} is a folder", quoted(path)), "write the program in it, without / at the end")
    } else if path.starts_with(['/', '%']) || !path.contains('/') {
        return None;
    } else {
        let what = "is neither an absolute path nor a plain name";
        (format!("{} {what}", quoted(path)), "write the whole path, from / on")
    };
    let code = if may_fail { FindingCode::IgnoredCommand } else { FindingCode::Program };
    let flaw = Flaw::whole(code, message, help);
    let written = words(value).find(|(_, written)| *written == word && !path.is_empty());
    Some(match written {
        Some((at, _)) => flaw.of_word((at + word.len() - path.len(), path)),
        None => flaw,
    })
}

fn unread(value: &str, error: WordError) -> Flaw {
    let first = value.split([' ', '\t']).next().unwrap_or_default();
    let path = first.trim_start_matches(PREFIXES);
    let may_fail = first[..first.len() - path.len()].contains('-');
    let code = if may_fail { FindingCode::IgnoredCommand } else { FindingCode::Command };
    let (at, message) = match error {
        WordError::OpenQuote { at } => (at..value.len(), "a quote is not closed".to_owned()),
        _ => (0..0, "a word is not UTF-8 once its escapes are read".to_owned()),
    };
    let help = "close each quote, and write \\\" for a quote of the text";
    Flaw { at, ..Flaw::whole(code, message, help) }
}

fn escape(value: &str, at: usize) -> Flaw {
    let next = value[at + 1..].chars().next().map_or(0, char::len_utf8);
    let message = format!("{} is no escape", quoted(&value[at..at + 1 + next]));
    let flaw = Flaw::whole(FindingCode::Escape, message, "write \\\\ for a backslash");
    Flaw { at: at..at + 1 + next, ..flaw }
}
