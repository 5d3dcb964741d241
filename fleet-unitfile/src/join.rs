//! Logical lines: physical lines joined where a backslash says so.

use std::borrow::Cow;

use crate::diagnostic::Span;
use crate::lines::{Line, Lines, ends_in_open_backslash, trim_end, trim_start};

/// A physical line with those that continue it; comments between them are left out.
#[derive(Debug)]
pub(crate) struct Logical<'a> {
    pub(crate) first: Line<'a>,
    /// The lines after the first; most logical lines have none, and then this allocates nothing.
    pub(crate) rest: Vec<Line<'a>>,
    /// Whether the source ends where another line was to follow.
    pub(crate) unfinished: bool,
}

impl<'a> Logical<'a> {
    /// Takes the next logical line; comment lines are skipped.
    pub(crate) fn next(lines: &mut Lines<'a>) -> Option<Self> {
        let first = lines.find(|line| !line.is_comment())?;
        Some(Self::starting_with(first, lines))
    }

    /// Takes the lines that continue `first`.
    pub(crate) fn starting_with(first: Line<'a>, lines: &mut Lines<'a>) -> Self {
        let mut logical = Self {
            first,
            rest: Vec::new(),
            unfinished: false,
        };
        while logical.last().continues() {
            let Some(line) = lines.find(|line| !line.is_comment()) else {
                logical.unfinished = true;
                break;
            };
            logical.rest.push(line);
        }
        logical
    }

    pub(crate) fn last(&self) -> &Line<'a> {
        self.rest.last().unwrap_or(&self.first)
    }

    /// The line as systemd sees it: each backslash that continues it is one space.
    ///
    /// A byte of it has the same place as the byte of the physical line that it comes from,
    /// counted over the physical lines without their ends.
    pub(crate) fn joined(&self) -> Cow<'a, [u8]> {
        if self.rest.is_empty() && !self.unfinished {
            return Cow::Borrowed(self.first.text);
        }
        let mut joined = Vec::new();
        for line in self.lines() {
            joined.extend_from_slice(line.text);
            if line.continues() {
                joined.pop();
                joined.push(b' ');
            }
        }
        Cow::Owned(joined)
    }

    /// The length of the joined line.
    pub(crate) fn len(&self) -> usize {
        self.lines().map(|line| line.text.len()).sum()
    }

    /// The physical line, and the offset in it, of the byte at offset `at` of the joined line.
    pub(crate) fn locate(&self, mut at: usize) -> (usize, usize) {
        for (index, line) in self.lines().enumerate() {
            if at < line.text.len() {
                return (index, at);
            }
            at -= line.text.len();
        }
        (self.rest.len(), self.last().text.len())
    }

    /// Where the bytes from offset `start` to `end` of the joined line stand in the source.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        let place = |at| {
            let (index, offset) = self.locate(at);
            self.line(index).start + offset
        };
        let last = if end > start {
            place(end - 1) + 1
        } else {
            place(start)
        };
        Span {
            start: place(start),
            end: last,
        }
    }

    /// The physical line with the given index.
    pub(crate) fn line(&self, index: usize) -> &Line<'a> {
        index
            .checked_sub(1)
            .map_or(&self.first, |index| &self.rest[index])
    }

    /// The text from offset `at` of the joined line on, with backslashes and line ends kept.
    ///
    /// Blanks are trimmed at both ends. Where an empty line, or nothing at all, follows the last
    /// backslash, the line end stays: without it the backslash would take in what follows. For
    /// the same reason one blank stays after a backslash that it keeps from continuing the line.
    pub(crate) fn verbatim(&self, at: usize) -> Vec<u8> {
        let (index, offset) = self.locate(at);
        let mut text = trim_start(&self.line(index).text[offset..]).to_vec();
        for line in self.lines().skip(index + 1) {
            text.push(b'\n');
            text.extend_from_slice(line.text);
        }
        if self.unfinished {
            text.push(b'\n');
        }
        let end = trimmed_end(&text);
        text.truncate(end);
        text
    }

    fn lines(&self) -> impl Iterator<Item = &Line<'a>> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

/// Where a text ends once the blanks at its end are gone that mean nothing.
pub(crate) fn trimmed_end(text: &[u8]) -> usize {
    let end = trim_end(text).len();
    let guarded = end < text.len() && ends_in_open_backslash(&text[..end]);
    end + usize::from(guarded)
}
