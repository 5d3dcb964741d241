//! Excerpts of a source that show a span in its line.

use std::fmt;

use crate::diagnostic::Span;
use crate::lines::is_line_end;

/// Maximum number of characters of a line that are shown. In a longer line, at most
/// [`MAX_CHARS_BEFORE`] of them are before the mark.
const MAX_CHARS: usize = 120;
const MAX_CHARS_BEFORE: usize = 60;
/// Number of bytes before and after the start of a span that are read. They have more characters
/// than are shown.
const WINDOW: usize = 8 * MAX_CHARS;

/// The line in which a span begins, truncated if it is long, and where to mark the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    line: String,
    blanks: usize,
    marks: usize,
}

impl Excerpt {
    /// Cuts the line out of a part of the source that contains it and begins at offset `base`.
    ///
    /// The mark never extends past the end of the line.
    pub(crate) fn new(part: &[u8], base: usize, span: Span) -> Self {
        let (span_start, span_end) = (span.start - base, span.end.max(span.start) - base);
        let from = span_start.min(part.len());
        let (low, high) = (from.saturating_sub(WINDOW), part.len().min(from + WINDOW));
        let start = part[low..from].iter().rposition(|byte| is_line_end(*byte));
        let end = part[from..high].iter().position(|byte| is_line_end(*byte));
        let (start, end) = (start.map_or(low, |at| low + at + 1), end.map_or(high, |at| from + at));
        let at = |offset: usize| {
            String::from_utf8_lossy(&part[start..offset.clamp(start, end)]).chars().count()
        };
        let (first, last) = (at(span_start), at(span_end));
        let line = String::from_utf8_lossy(&part[start..end]);
        let chars = line.chars().count();
        let skipped = if chars > MAX_CHARS { first.saturating_sub(MAX_CHARS_BEFORE) } else { 0 };
        let mut text = if skipped > 0 { "…".to_owned() } else { String::new() };
        let ellipsis = text.chars().count();
        text.extend(line.chars().skip(skipped + ellipsis).take(MAX_CHARS).map(displayed));
        if chars > skipped + MAX_CHARS {
            text.push('…');
        }
        let blanks = first - skipped;
        let room = text.chars().count().saturating_sub(blanks);
        let marks = (last - first).clamp(1, room.max(1));
        Self { line: text.trim_end().to_owned(), blanks, marks }
    }

    /// Writes the line with its number, and the mark below it. Writes nothing for an empty line.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let Self { line, blanks, marks } = self;
        if line.is_empty() {
            return Ok(());
        }
        let gutter = number.to_string().len();
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{number} | {line}")?;
        writeln!(f, "{:gutter$} | {:blanks$}{}", "", "", "^".repeat(*marks))
    }
}

/// Replaces a character that does not take exactly one column.
fn displayed(character: char) -> char {
    match character {
        '\u{feff}' => ' ',
        _ if character.is_control() => ' ',
        _ => character,
    }
}
