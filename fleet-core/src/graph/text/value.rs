//! Values: what stands after the colon of a field, and perhaps goes on in the lines below.

use std::ops::Range;

use fleet_unitfile::Span;

use super::Code;
use super::diagnostic::Problems;

/// A value, whose lines are joined by single blanks.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    text: String,
    /// For each line, where it begins in the text and where in the file.
    pieces: Vec<(usize, usize)>,
}

impl Value {
    /// One that begins at this offset of the file.
    pub(super) fn new(text: &str, at: usize) -> Self {
        Self { text: text.to_owned(), pieces: vec![(0, at)] }
    }

    /// Goes on with another line of the file.
    pub(super) fn fold(&mut self, text: &str, at: usize) {
        if self.text.is_empty() {
            *self = Self::new(text, at);
            return;
        }
        self.text.push(' ');
        self.pieces.push((self.text.len(), at));
        self.text.push_str(text);
    }

    /// What it says.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where all of it stands.
    pub(super) fn span(&self) -> Span {
        self.part(0..self.text.len())
    }

    /// Where a part of it stands. A part that goes over several lines begins in the first and ends
    /// in the last.
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

    /// Says that the whole of it is wrong.
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
