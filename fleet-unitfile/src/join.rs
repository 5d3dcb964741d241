//! Logical lines: physical lines joined where a backslash says so.

use std::borrow::Cow;

use crate::diagnostic::Span;
use crate::lines::{Line, Lines, MAX_LINE, ends_in_open_backslash, is_blank, trim_end, trim_start};

/// A physical line with those that continue it; comments between them are left out.
#[derive(Clone, Debug)]
pub(crate) struct Logical<'a> {
    pub(crate) first: Line<'a>,
    /// The lines after the first; most logical lines have none, and then this allocates nothing.
    /// Those past the length that a line may have are not kept.
    rest: Vec<Line<'a>>,
    last: Line<'a>,
    len: usize,
    /// Whether the source ends where another line was to follow.
    pub(crate) unfinished: bool,
}

impl<'a> Logical<'a> {
    /// Takes the lines that continue `first`.
    pub(crate) fn starting_with(first: Line<'a>, lines: &mut Lines<'a>) -> Self {
        let mut logical =
            Self { first, rest: Vec::new(), last: first, len: first.text.len(), unfinished: false };
        while logical.last.continues() {
            let Some(line) = lines.find(|line| !line.is_comment()) else {
                logical.unfinished = true;
                break;
            };
            logical.last = line;
            logical.len = logical.len.saturating_add(line.text.len());
            if !logical.is_too_long() {
                logical.rest.push(line);
            }
        }
        logical
    }

    pub(crate) fn last(&self) -> &Line<'a> {
        &self.last
    }

    /// The lines after the first.
    pub(crate) fn rest(&self) -> &[Line<'a>] {
        &self.rest
    }

    /// Whether this is one physical line that does not ask for another.
    pub(crate) fn is_single(&self) -> bool {
        self.rest.is_empty() && !self.unfinished
    }

    /// Whether this is longer than a line may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len >= MAX_LINE
    }

    /// Whether the first character that is not a blank would begin a section header.
    pub(crate) fn starts_like_header(&self) -> bool {
        let mut bytes = self.lines().flat_map(|line| {
            let continued = line.continues();
            let text = line.text.strip_suffix(b"\\").filter(|_| continued);
            text.unwrap_or(line.text)
        });
        bytes.find(|&&byte| !is_blank(byte)) == Some(&b'[')
    }

    /// The line as systemd sees it: each backslash that continues it is one space.
    ///
    /// A byte of it has the same place as the byte of the physical line that it comes from,
    /// counted over the physical lines without their ends.
    pub(crate) fn joined(&self) -> Cow<'a, [u8]> {
        if self.is_single() {
            return Cow::Borrowed(self.first.text);
        }
        let mut joined = Vec::with_capacity(self.len);
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
        self.len
    }

    /// The physical line, and the offset in it, of the byte at offset `at` of the joined line.
    pub(crate) fn locate(&self, mut at: usize) -> (usize, usize) {
        for (index, line) in self.lines().enumerate() {
            if at < line.text.len() {
                return (index, at);
            }
            at -= line.text.len();
        }
        let last = self.line(self.rest.len());
        (self.rest.len(), last.text.len())
    }

    /// Where the bytes from offset `start` to `end` of the joined line stand in the source.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        if self.is_single() || self.is_too_long() && end == self.len {
            let end = self.last.start + end - (self.len - self.last.text.len());
            let start = self.first.start + start;
            return Span { start, end };
        }
        let place = |at| {
            let (index, offset) = self.locate(at);
            self.line(index).start + offset
        };
        let last = if end > start { place(end - 1) + 1 } else { place(start) };
        Span { start: place(start), end: last }
    }

    /// The physical line with the given index.
    pub(crate) fn line(&self, index: usize) -> &Line<'a> {
        index.checked_sub(1).map_or(&self.first, |index| &self.rest[index])
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
