//! What is wrong with a value, before it is known where the value stands.

use std::ops::Range;

use super::code::FindingCode;
use super::near::nearest;

/// What is wrong with a part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) code: FindingCode,
    /// The part of the value, in bytes; all of it where the range is empty.
    pub(super) at: Range<usize>,
    /// What is wrong, without the name of the option.
    pub(super) message: String,
    pub(super) help: String,
}

impl Flaw {
    /// About all of a value.
    pub(super) fn whole(
        code: FindingCode,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, at: 0..0, message: message.into(), help: help.into() }
    }

    /// The same about a word that stands at an offset of the value.
    pub(super) fn of_word(self, (at, word): (usize, &str)) -> Self {
        Self { at: at..at + word.len(), ..self }
    }
}

/// A text in quotes for a message, cut where it is long.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 40;
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut head: String = text.chars().take(MOST).map(plain).collect();
    if text.chars().nth(MOST).is_some() {
        head.push('…');
    }
    format!("\"{head}\"")
}

/// Which of some words to write: the nearest one, or one of all of them.
pub(super) fn one_of(word: &str, words: &[&str]) -> String {
    match nearest(word, words.iter().copied()) {
        Some(near) => format!("write {near}"),
        None if words.len() <= 12 => format!("write {}", listed(words)),
        None => format!("write a word such as {}", listed(&words[..3])),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The words of a list and their offsets. Quotes go around whole words and have no other meaning
/// here: those that hold blanks are for the kinds of value that split words properly.
pub(super) fn words(value: &str) -> impl Iterator<Item = (usize, &str)> {
    pieces(value).map(|(start, piece)| {
        let quotes = ['"', '\''].into_iter();
        let inner =
            quotes.filter_map(|quote| piece.strip_prefix(quote)?.strip_suffix(quote)).next();
        inner.map_or((start, piece), |inner| (start + 1, inner))
    })
}

/// What stands between the blanks of a value, with its offsets.
pub(super) fn pieces(value: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let pieces = value.split([' ', '\t', '\n', '\r']).map(move |piece| {
        let start = at;
        at += piece.len() + 1;
        (start, piece)
    });
    pieces.filter(|(_, piece)| !piece.is_empty())
}
