//! Value of a field: the text after the colon, with its continuation lines.

use std::ops::Range;

use fleet_unitfile::Span;

use super::Code;
use super::diagnostic::Problems;

/// A value, with its lines joined by single blanks.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    text: String,
    /// Start of each line of the value, as an offset in `text` and an offset in the file.
    pieces: Vec<(usize, usize)>,
}

impl Value {
    /// Creates a value that begins at this offset of the file.
    pub(super) fn new(text: &str, at: usize) -> Self {
        Self { text: text.to_owned(), pieces: vec![(0, at)] }
    }

    /// Appends a continuation line.
    pub(super) fn fold(&mut self, text: &str, at: usize) {
        if self.text.is_empty() {
            *self = Self::new(text, at);
            return;
        }
        self.text.push(' ');
        self.pieces.push((self.text.len(), at));
        self.text.push_str(text);
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of the whole value.
    pub(super) fn span(&self) -> Span {
        self.part(0..self.text.len())
    }

    /// Returns the position in the file of a part of the value. If the part spans several lines,
    /// the position reaches from the first line to the last.
    pub(super) fn part(&self, range: Range<usize>) -> Span {
        let start = self.offset(range.start);
        let last = range.end.max(range.start + 1) - 1;
        let end = if range.is_empty() { start } else { self.offset(last) + 1 };
        Span { start, end }
    }

    fn offset(&self, at: usize) -> usize {
        let index = self.pieces.partition_point(|(text, _)| *text <= at);
        let (text, file) = self.pieces.get(index.saturating_sub(1)).copied().unwrap_or_default();
        file + at.saturating_sub(text)
    }

    /// Reports an error for the whole value.
    pub(super) fn refuse(
        &self,
        problems: &mut Problems,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        problems.add(code, self.span(), message, help);
    }
}
