//! Errors of values, with positions relative to the value.

use std::ops::Range;

use super::code::FindingCode;
use crate::spelling::suggest;

/// An error in a part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) code: FindingCode,
    /// The affected bytes of the value. If the range is empty, the error is about the whole value.
    pub(super) at: Range<usize>,
    /// Description, without the name of the option.
    pub(super) message: String,
    pub(super) help: String,
}

impl ValueError {
    /// Makes an error about a whole value.
    pub(super) fn new(
        code: FindingCode,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, at: 0..0, message: message.into(), help: help.into() }
    }

    /// Moves the place of the error by some bytes.
    pub(super) fn shifted(self, by: usize) -> Self {
        let Range { start, end } = self.at;
        let at = if start == end { start..end } else { start + by..end + by };
        Self { at, ..self }
    }

    /// Narrows the error to a word at an offset of the value.
    pub(super) fn at_word(self, (at, word): (usize, &str)) -> Self {
        Self { at: at..at + word.len(), ..self }
    }
}

/// Quotes a string for a message, truncated to forty characters.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 40;
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut head: String = text.chars().take(MOST).map(plain).collect();
    if text.chars().nth(MOST).is_some() {
        head.push('…');
    }
    format!("\"{head}\"")
}

/// Returns a help text that suggests the allowed word nearest to `word`. If none is near enough,
/// the text lists all allowed words, or three examples if there are more than twelve.
pub(super) fn one_of(word: &str, words: &[&str]) -> String {
    match suggest(word, words.iter().copied()) {
        Some(near) => format!("write {near}"),
        None if words.len() <= 12 => format!("write {}", listed(words)),
        None => format!("write a word such as {}", listed(&words[..3])),
    }
}

/// Joins words as `a`, `a or b`, `a, b or c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Splits a value at blanks, and returns each word with its offset. Quotes around a whole word are
/// removed.
///
/// Quotes do not keep blanks together here. So this function is only for values with words that
/// never contain blanks.
pub(super) fn words(value: &str) -> impl Iterator<Item = (usize, &str)> {
    pieces(value).map(|(start, piece)| {
        let quotes = ['"', '\''].into_iter();
        let inner =
            quotes.filter_map(|quote| piece.strip_prefix(quote)?.strip_suffix(quote)).next();
        inner.map_or((start, piece), |inner| (start + 1, inner))
    })
}

/// Splits a value at blanks, with the offset of each piece.
pub(super) fn pieces(value: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let pieces = value.split([' ', '\t', '\n', '\r']).map(move |piece| {
        let start = at;
        at += piece.len() + 1;
        (start, piece)
    });
    pieces.filter(|(_, piece)| !piece.is_empty())
}
