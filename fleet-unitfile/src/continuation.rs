//! Logical lines: physical lines joined by trailing backslashes.

use crate::diagnostic::Span;
use crate::lines::{
    Line, Lines, MAX_LINE, MarkedSource, ends_in_open_backslash, is_blank, trim_end, trim_start,
};

/// A physical line together with the lines that continue it. Comments between these lines are left
/// out.
///
/// The lines after the first are read from the source on each access. They are not stored, because
/// there can be a million of them.
#[derive(Clone, Debug)]
pub(crate) struct LogicalLine<'a> {
    pub(crate) first: Line<'a>,
    last: Line<'a>,
    after_first: Lines<'a>,
    len: usize,
    /// Whether the last line ends in a continuation backslash, but no further line follows
    /// (comments do not count).
    pub(crate) unfinished: bool,
}

impl<'a> LogicalLine<'a> {
    /// Reads the lines that continue `first`.
    pub(crate) fn starting_with(first: Line<'a>, lines: &mut Lines<'a>) -> Self {
        let (after_first, len) = (lines.clone(), first.text.len());
        let mut logical = Self { first, last: first, after_first, len, unfinished: false };
        while logical.last.continues() {
            let Some(line) = lines.find(|line| !line.is_comment()) else {
                logical.unfinished = true;
                break;
            };
            logical.last = line;
            logical.len = logical.len.saturating_add(line.text.len());
        }
        logical
    }

    /// Returns the logical line that begins at an offset of the source.
    pub(crate) fn at(source: MarkedSource<'a>, start: usize) -> Option<Self> {
        let mut lines = source.lines(start);
        lines.next().map(|first| Self::starting_with(first, &mut lines))
    }

    /// Makes a logical line of one physical line that does not continue.
    pub(crate) fn single(line: Line<'a>) -> Self {
        let (after_first, len) = (Lines::new(&[], 0), line.text.len());
        Self { first: line, last: line, after_first, len, unfinished: false }
    }

    pub(crate) fn last(&self) -> &Line<'a> {
        &self.last
    }

    /// Returns the lines after the first.
    pub(crate) fn rest(&self) -> ContinuationLines<'a> {
        let is_empty = self.last.start == self.first.start;
        ContinuationLines {
            lines: self.after_first.clone(),
            last: (!is_empty).then_some(self.last.start),
        }
    }

    /// Returns `true` if this is one physical line without a trailing backslash.
    pub(crate) fn is_single(&self) -> bool {
        self.last.start == self.first.start && !self.unfinished
    }

    /// Returns `true` if systemd refuses the line for its length. A joined line may have exactly
    /// the limit, but each physical line must be shorter.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > MAX_LINE
            || self.len == MAX_LINE && self.lines().any(|line| line.text.len() == MAX_LINE)
    }

    /// Returns `true` if the first non-blank character is the `[` of a section header.
    pub(crate) fn starts_like_header(&self) -> bool {
        let mut bytes = self.lines().flat_map(|line| {
            let continued = line.continues();
            let text = line.text.strip_suffix(b"\\").filter(|_| continued);
            text.unwrap_or(line.text)
        });
        bytes.find(|&&byte| !is_blank(byte)) == Some(&b'[')
    }

    /// Returns the line in the form in which systemd reads it: each continuing backslash is
    /// replaced by a space.
    ///
    /// Each physical line keeps its length. Therefore an offset in the result is also an offset in
    /// the concatenation of the physical lines, without their line ends.
    pub(crate) fn joined(&self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.len);
        for line in self.lines() {
            joined.extend_from_slice(line.text);
            if line.continues() {
                joined.pop();
                joined.push(b' ');
            }
        }
        joined
    }

    /// Returns the length of the joined line.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Finds the byte at offset `at` of the joined line. Returns the physical line that contains
    /// the byte, and the offset of the byte in that line.
    pub(crate) fn locate(&self, mut at: usize) -> (Line<'a>, usize) {
        for line in self.lines() {
            if at < line.text.len() {
                return (line, at);
            }
            at -= line.text.len();
        }
        (self.last, self.last.text.len())
    }

    /// Returns the source span of the bytes `start..end` of the joined line.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        if self.is_single() || self.is_too_long() && end == self.len {
            let end = self.last.start + end - (self.len - self.last.text.len());
            let start = self.first.start + start;
            return Span { start, end };
        }
        let place = |at| {
            let (line, offset) = self.locate(at);
            line.start + offset
        };
        let last = if end > start { place(end - 1) + 1 } else { place(start) };
        Span { start: place(start), end: last }
    }

    /// Returns the text from offset `at` of the joined line as it is written, with its backslashes
    /// and line ends.
    ///
    /// Blanks at both ends are removed, except for one after a final backslash (`a\ `). Without
    /// that blank, the backslash would continue the line.
    ///
    /// If no text follows the last continuation backslash, the result ends in a line feed. Without
    /// it, the backslash would join the value with the line below it in any file to which the value
    /// is written.
    ///
    /// A line that only the byte order mark keeps from being a comment is joined with the one
    /// above.
    pub(crate) fn verbatim(&self, at: usize) -> Vec<u8> {
        let (first, offset) = self.locate(at);
        let mut text = trim_start(&first.text[offset..]).to_vec();
        for line in self.lines().skip_while(|line| line.start <= first.start) {
            if line.is_marked && line.starts_like_comment() {
                text.pop();
                text.push(b' ');
            } else {
                text.push(b'\n');
            }
            text.extend_from_slice(line.text);
        }
        text.drain(..text.len() - trim_start(&text).len());
        if self.unfinished {
            text.push(b'\n');
        }
        let end = trimmed_end(&text);
        text.truncate(end);
        text
    }

    fn lines(&self) -> impl Iterator<Item = Line<'a>> {
        std::iter::once(self.first).chain(self.rest())
    }
}

/// The lines of a logical line after its first.
#[derive(Clone)]
pub(crate) struct ContinuationLines<'a> {
    lines: Lines<'a>,
    /// Offset of the last line; `None` once that line was returned.
    last: Option<usize>,
}

impl<'a> Iterator for ContinuationLines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let last = self.last?;
        let line = self.lines.find(|line| !line.is_comment())?;
        self.last = (line.start < last).then_some(last);
        Some(line)
    }
}

/// Returns the length of `text` without the insignificant blanks at its end.
pub(crate) fn trimmed_end(text: &[u8]) -> usize {
    let end = trim_end(text).len();
    let guarded = end < text.len() && ends_in_open_backslash(&text[..end]);
    end + usize::from(guarded)
}
