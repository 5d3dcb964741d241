//! Lines and columns of offsets in a source.

use crate::diagnostic::Location;
use crate::grammar::column;
use crate::lines::{Line, Lines, MarkedSource};

/// A cursor that resolves offsets to lines in one pass over the source. The offsets must therefore
/// be passed in ascending order.
pub(crate) struct Locator<'a> {
    line: Option<Line<'a>>,
    after: Lines<'a>,
}

impl<'a> Locator<'a> {
    pub(crate) fn new(source: MarkedSource<'a>) -> Self {
        let mut after = source.lines(0);
        Self { line: after.next(), after }
    }

    /// Returns the line that contains an offset. An offset past the end belongs to the last line.
    /// Returns `None` if the source contains no lines.
    pub(crate) fn line(&mut self, offset: usize) -> Option<Line<'a>> {
        loop {
            // `Lines` is a cursor, so a clone looks ahead.
            let mut after = self.after.clone();
            match after.next().filter(|next| next.start <= offset) {
                Some(next) => (self.line, self.after) = (Some(next), after),
                None => return self.line,
            }
        }
    }

    /// Returns the line and column of an offset. For a byte of a line end, the column is the one
    /// after the last character of the line.
    pub(crate) fn location(&mut self, offset: usize) -> Location {
        let Some(line) = self.line(offset) else {
            return Location { line: 1, column: 1 };
        };
        let at = offset.saturating_sub(line.start).min(line.text.len());
        Location { line: line.number, column: column(line.text, at) }
    }
}
