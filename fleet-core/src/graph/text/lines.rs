//! Lines of a file and positions in it.

use fleet_unitfile::{Location, Span};

/// Byte order mark that an editor may put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Number of characters shown before and after a position.
const CONTEXT: usize = 60;

/// One line without its line ending (LF or CRLF).
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// The bytes.
    pub(super) text: &'a [u8],
    /// Offset of the first byte.
    pub(super) start: usize,
    /// Line number, counted from 1.
    pub(super) number: usize,
}

/// Returns the lines of a text after its byte order mark.
pub(super) fn lines(source: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let (mut at, mut number) = (start(source), 0);
    std::iter::from_fn(move || {
        let rest = source.get(at..).filter(|rest| !rest.is_empty())?;
        let length = rest.iter().position(|&byte| byte == b'\n');
        let text = &rest[..length.unwrap_or(rest.len())];
        let line = Line { text: without_return(text), start: at, number: number + 1 };
        at += length.map_or(rest.len(), |length| length + 1);
        number += 1;
        Some(line)
    })
}

fn start(source: &[u8]) -> usize {
    if source.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

fn without_return(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\r").unwrap_or(text)
}

/// Converts offsets to lines and columns in a single pass over the text. The offsets must be passed
/// in increasing order.
pub(super) struct Locator<'a> {
    source: &'a [u8],
    at: usize,
    location: Location,
}

impl<'a> Locator<'a> {
    pub(super) fn new(source: &'a [u8]) -> Self {
        Self { source, at: start(source), location: Location { line: 1, column: 1 } }
    }

    /// Returns the line and column of an offset. An offset past the end of the text gets the
    /// location of the end.
    pub(super) fn location(&mut self, offset: usize) -> Location {
        while self.at < offset.min(self.source.len()) {
            match self.source[self.at] {
                b'\n' => {
                    self.location.line += 1;
                    self.location.column = 1;
                }
                // Continuation bytes of a UTF-8 character.
                0x80..=0xbf => {}
                _ => self.location.column += 1,
            }
            self.at += 1;
        }
        self.location
    }
}

/// Returns the part of a line around a span. Also returns the number of characters in this part
/// before the span, and in the span itself (at least one).
pub(super) fn excerpt(source: &[u8], span: Span) -> (String, usize, usize) {
    let at = span.start.min(source.len());
    // Looks back only as far as the excerpt reaches: a long line may have many errors.
    let far = start(source).max(at.saturating_sub(4 * CONTEXT)).min(at);
    let before = &source[far..at];
    let from = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let before = &before[from..];
    let after = &source[at..source.len().min(at + 4 * CONTEXT)];
    let end = after.iter().position(|&byte| byte == b'\n').unwrap_or(after.len());
    let after = without_return(&after[..end]);
    let length = span.end.saturating_sub(span.start).min(after.len());
    let before = decode(before);
    let before: String =
        before.chars().skip(before.chars().count().saturating_sub(CONTEXT)).collect();
    let marked = decode(&after[..length]).chars().take(CONTEXT).count().max(1);
    let after: String = decode(after).chars().take(CONTEXT).collect();
    (format!("{before}{}", after.trim_end()), before.chars().count(), marked)
}

/// Decodes a text as UTF-8. Replaces control characters by blanks, so that each character takes one
/// column.
fn decode(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
