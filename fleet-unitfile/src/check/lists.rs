//! Values that are lists: what is wrong with each word.

use super::code::FindingCode;
use super::flaw::{Flaw, one_of, quoted, words};
use super::values;
use crate::name::UnitName;
use crate::unit_type::UnitType;
use crate::words::{WordError, split_words_relaxed};

/// Names of units, of one type if there is one.
pub(super) fn units(value: &str, unit_type: Option<UnitType>, own: &UnitName) -> Vec<Flaw> {
    let flaws =
        words(value).filter_map(|word| Some(values::unit(word.1, unit_type, own)?.of_word(word)));
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
        if is_known {
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

/// Absolute paths.
pub(super) fn paths_only(value: &str) -> Vec<Flaw> {
    each_word(value, values::path)
}

/// Absolute paths, each with more after a colon, which is not checked.
pub(super) fn sources(value: &str) -> Vec<Flaw> {
    each_word(value, |word| {
        let path = word.strip_prefix('-').unwrap_or(word);
        values::path(path.split(':').next().unwrap_or_default())
    })
}

pub(super) fn users(value: &str) -> Vec<Flaw> {
    each_word(value, values::user)
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
        let message = if !assigned {
            format!("{} assigns nothing", quoted(word))
        } else if !is_variable(name) {
            format!("{} is not the name of a variable", quoted(name))
        } else {
            return None;
        };
        let help = "write NAME=VALUE, in quotes where it has blanks: \"NAME=two words\"";
        Some(Flaw::whole(FindingCode::Environment, message, help))
    })
}

/// Names of variables, for some options with a value after them.
pub(super) fn variables(value: &str, may_assign: bool) -> Vec<Flaw> {
    each_word(value, |word| {
        let name = if may_assign { word.split('=').next().unwrap_or_default() } else { word };
        (!is_variable(name)).then(|| {
            let message = format!("{} is not the name of a variable", quoted(name));
            let help = "use letters, digits and underscores, and begin with no digit";
            Flaw::whole(FindingCode::Environment, message, help)
        })
    })
}

/// Whether this may be a variable's name; one with a specifier in it may.
fn is_variable(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    name.contains('%') || (starts_well && name.chars().all(is_letter))
}

/// Numbers and ranges of numbers, with commas or blanks between them; `numa` stands for the
/// processors of the memory nodes.
pub(super) fn cpu_set(value: &str) -> Vec<Flaw> {
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_range = |text: &str| match text.split_once('-') {
        Some((first, last)) => is_number(first) && is_number(last),
        None => is_number(text) || text == "numa",
    };
    let is_fine = |word: &str| word.split(',').all(|range| range.is_empty() || is_range(range));
    let flaws =
        words(value).filter(|(_, word)| !word.contains('%') && !is_fine(word)).map(|word| {
            let message = format!("{} is not a set of numbers", quoted(word.1));
            Flaw::whole(FindingCode::Number, message, "write numbers and ranges, such as 0-3,8")
                .of_word(word)
        });
    flaws.collect()
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
    let (at, message) = match error {
        WordError::OpenQuote { at } => (at..value.len(), "a quote is not closed"),
        _ => (0..0, "a word is not UTF-8 once its escapes are read"),
    };
    let help = "close each quote, and write \\\" for a quote of the text";
    Flaw { at, ..Flaw::whole(FindingCode::Quotes, message, help) }
}
