//! The lines of a file, and the places in it.

use fleet_unitfile::{Location, Span};

/// What an editor may put before a text that is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How many characters of a line are shown before and after a place.
const AROUND: usize = 60;

/// One line, without its end: a line feed, perhaps with a carriage return before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Its bytes.
    pub(super) text: &'a [u8],
    /// The offset of the first one.
    pub(super) start: usize,
    /// Its number, counted from 1.
    pub(super) number: usize,
}

/// The lines of a text, from behind its byte order mark on.
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

/// Finds the lines and columns of offsets that never get smaller, in one walk over the text.
pub(super) struct Locator<'a> {
    source: &'a [u8],
    at: usize,
    location: Location,
}

impl<'a> Locator<'a> {
    pub(super) fn new(source: &'a [u8]) -> Self {
        Self { source, at: start(source), location: Location { line: 1, column: 1 } }
    }

    /// The place of an offset; one past the end has that of the end.
    pub(super) fn location(&mut self, offset: usize) -> Location {
        while self.at < offset.min(self.source.len()) {
            match self.source[self.at] {
                b'\n' => {
                    self.location.line += 1;
                    self.location.column = 1;
                }
                // The bytes of a character after its first one.
                0x80..=0xbf => {}
                _ => self.location.column += 1,
            }
            self.at += 1;
        }
        self.location
    }
}

/// What is near a place in its line, how many characters of that come before the place, and how
/// many are of it: at least one.
pub(super) fn around(source: &[u8], span: Span) -> (String, usize, usize) {
    let at = span.start.min(source.len());
    // No further back than is shown: a long line may be wrong in many places.
    let far = start(source).max(at.saturating_sub(4 * AROUND)).min(at);
    let before = &source[far..at];
    let from = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let before = &before[from..];
    let after = &source[at..source.len().min(at + 4 * AROUND)];
    let end = after.iter().position(|&byte| byte == b'\n').unwrap_or(after.len());
    let after = without_return(&after[..end]);
    let length = span.end.saturating_sub(span.start).min(after.len());
    let before = shown(before);
    let before: String =
        before.chars().skip(before.chars().count().saturating_sub(AROUND)).collect();
    let marked = shown(&after[..length]).chars().take(AROUND).count().max(1);
    let after: String = shown(after).chars().take(AROUND).collect();
    (format!("{before}{}", after.trim_end()), before.chars().count(), marked)
}

/// A text in which each character takes one column.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
