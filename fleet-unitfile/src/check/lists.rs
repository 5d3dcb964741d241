//! Values that are lists: what is wrong with each word.

use super::code::FindingCode;
use super::flaw::{Flaw, one_of, quoted, words};
use super::values;
use crate::name::UnitName;
use crate::words::{WordError, split_words_relaxed};

pub(super) fn units(value: &str, own: &UnitName) -> Vec<Flaw> {
    let flaws = words(value).filter_map(|word| Some(values::unit_name(word.1, own)?.of_word(word)));
    flaws.collect()
}

pub(super) fn urls(value: &str) -> Vec<Flaw> {
    let flaws = words(value).filter(|(_, word)| !is_url(word)).map(|word| {
        let message = format!("{} is not the place of a document", quoted(word.1));
        let help = "begin it with https://, http://, file:/, info: or man:";
        Flaw::whole(FindingCode::Url, message, help).of_word(word)
    });
    flaws.collect()
}

fn is_url(word: &str) -> bool {
    let begins = ["http://", "https://", "file:/", "info:", "man:"];
    word.starts_with('%') || begins.iter().any(|start| is_more_than(word, start))
}

fn is_more_than(word: &str, start: &str) -> bool {
    word.len() > start.len() && word.starts_with(start)
}

/// Words out of some; a tilde before the first, or before each, turns the meaning round.
pub(super) fn choices(value: &str, known: &[&str]) -> Vec<Flaw> {
    let flaws = words(value).filter_map(|(at, word)| {
        let bare = word.strip_prefix('~').unwrap_or(word);
        let is_known = known.iter().any(|it| it.eq_ignore_ascii_case(bare));
        let is_number = bare.bytes().all(|byte| byte.is_ascii_digit());
        if is_known || is_number {
            return None;
        }
        let message = format!("{} is none of the words for it", quoted(bare));
        let flaw = Flaw::whole(FindingCode::Choice, message, one_of(bare, known));
        Some(flaw.of_word((at + word.len() - bare.len(), bare)))
    });
    flaws.collect()
}

pub(super) fn exit_statuses(value: &str) -> Vec<Flaw> {
    let flaws = words(value).filter(|(_, word)| !is_exit_status(word)).map(|word| {
        let message = format!("{} is neither an exit status nor a signal", quoted(word.1));
        let help = "write a number from 0 to 255, a name such as TEMPFAIL, or a signal";
        Flaw::whole(FindingCode::ExitStatus, message, help).of_word(word)
    });
    flaws.collect()
}

/// Names of exit statuses are many and differ by version, so anything that looks like one passes.
fn is_exit_status(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    match word.bytes().next() {
        Some(b'0'..=b'9') => word.parse::<u8>().is_ok(),
        _ if word.starts_with("SIG") => values::is_signal(word),
        _ => word.chars().all(is_name),
    }
}

/// Absolute paths, each with signs before it for "may be missing" and "below the root".
pub(super) fn paths(value: &str) -> Vec<Flaw> {
    each_word(value, |word| values::path(word.trim_start_matches(['-', '+'])))
}

/// Paths that do not begin at the root, with names for them after a colon if need be.
pub(super) fn relative_paths(value: &str) -> Vec<Flaw> {
    each_word(value, |word| {
        let path = word.split(':').next().unwrap_or_default();
        let climbs = path.split('/').any(|part| part == "..");
        (path.starts_with('/') || climbs).then(|| {
            let message = format!("{} does not stay below the folder for it", quoted(word));
            Flaw::whole(FindingCode::Path, message, "write a relative path without \"..\"")
        })
    })
}

/// `SOURCE`, `SOURCE:TARGET` or `SOURCE:TARGET:OPTIONS`, with a dash if it may be missing.
pub(super) fn binds(value: &str) -> Vec<Flaw> {
    each_word(value, |word| {
        let word = word.strip_prefix('-').unwrap_or(word);
        // A colon in a path is escaped, which this does not undo.
        let parts = word.split(':').take(if word.contains('\\') { 1 } else { 2 });
        parts.filter(|part| !part.is_empty()).find_map(values::path)
    })
}

pub(super) fn environment(value: &str) -> Vec<Flaw> {
    each_word(value, |word| {
        let (name, assigned) = match word.split_once('=') {
            Some((name, _)) => (name, true),
            None => (word, false),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '%';
        let starts = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        let message = if !assigned {
            format!("{} assigns nothing", quoted(word))
        } else if !starts || (!name.chars().all(is_name) && !name.contains('%')) {
            format!("{} is not the name of a variable", quoted(name))
        } else {
            return None;
        };
        let help = "write NAME=VALUE, in quotes where it has blanks: \"NAME=two words\"";
        Some(Flaw::whole(FindingCode::Environment, message, help))
    })
}

/// The flaws of all words of a list in which quotes and escapes have their meaning.
fn each_word(value: &str, flaw: impl Fn(&str) -> Option<Flaw>) -> Vec<Flaw> {
    let split = match split_words_relaxed(value) {
        Ok(split) => split,
        Err(error) => return vec![unread(value, error)],
    };
    let flaws = split.iter().filter_map(|word| {
        let flaw = flaw(word)?;
        // Without quotes and escapes the word stands in the value as it is.
        let at = words(value).find(|(_, written)| written == word);
        Some(match at {
            Some(word) => flaw.of_word(word),
            None => flaw,
        })
    });
    flaws.collect()
}

fn unread(value: &str, error: WordError) -> Flaw {
    let at = match error {
        WordError::OpenQuote { at } => at..value.len(),
        _ => 0..0,
    };
    let message = format!("{} cannot be split into words", quoted(value));
    let help = "close each quote, and write \\\" for a quote of the text";
    Flaw { at, ..Flaw::whole(FindingCode::Quotes, message, help) }
}
