//! Lines and columns of places in a source.

use crate::diagnostic::Location;
use crate::grammar::{byte_order_mark_len, column};
use crate::lines::{Line, Lines};

/// Finds the lines of offsets that never get smaller, so that a source is read only once for as
/// many of them as there are.
pub(crate) struct Locator<'a> {
    line: Option<Line<'a>>,
    after: Lines<'a>,
}

impl<'a> Locator<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        let mut after = Lines::new(source, byte_order_mark_len(source));
        Self { line: after.next(), after }
    }

    /// The line that an offset stands in: the last one for an offset past the end, none where
    /// there is no line at all.
    pub(crate) fn line(&mut self, offset: usize) -> Option<Line<'a>> {
        loop {
            // Lines are a cursor, so looking ahead is a copy.
            let mut after = self.after.clone();
            match after.next().filter(|next| next.start <= offset) {
                Some(next) => (self.line, self.after) = (Some(next), after),
                None => return self.line,
            }
        }
    }

    /// The line and column of an offset; a byte of a line end belongs to the end of its line.
    pub(crate) fn location(&mut self, offset: usize) -> Location {
        let Some(line) = self.line(offset) else {
            return Location { line: 1, column: 1 };
        };
        let at = offset.saturating_sub(line.start).min(line.text.len());
        Location { line: line.number, column: column(line.text, at) }
    }
}
