//! The normal form of a source: uniform spacing, with all comments kept.

use crate::continuation::{LogicalLine, trimmed_end};
use crate::lines::{BYTE_ORDER_MARK, Line, MarkedSource, trim_end, trim_start};

/// Returns the source in normal form.
///
/// The byte order mark stays if another one is the start of the text behind it or of a later line,
/// or if the text behind it looks like a comment. Without it, the source would have another
/// meaning.
pub(super) fn formatted(source: MarkedSource<'_>) -> Vec<u8> {
    let mut lines = source.lines(0);
    let mut formatter = Formatter::default();
    let has_mark_as_text = source.has_mark_as_text();
    let keeps_mark = |line: &Line<'_>| {
        let is_followed_by_mark = trim_start(line.text).starts_with(BYTE_ORDER_MARK);
        line.is_marked && (has_mark_as_text || is_followed_by_mark || line.starts_like_comment())
    };
    while let Some(first) = lines.next() {
        if first.is_comment() {
            formatter.put(LineKind::Comment, trim_end(trim_start(first.text)));
            continue;
        }
        let logical = LogicalLine::starting_with(first, &mut lines);
        let text = trim_start(&first.text[..trimmed_end(first.text)]);
        formatter.prefix = match () {
            () if keeps_mark(&first) => BYTE_ORDER_MARK,
            // At the start of a line this text would be read as a byte order mark.
            () if text.starts_with(BYTE_ORDER_MARK) && !first.text.starts_with(BYTE_ORDER_MARK) => {
                b" "
            }
            () => b"",
        };
        if !logical.is_single() {
            formatter.put(LineKind::Other, &continued_lines(source, &logical, keeps_mark));
        } else if trim_end(text).is_empty() && formatter.prefix.is_empty() {
            formatter.pending_blank = true;
        } else if text.starts_with(b"[") {
            formatter.put(LineKind::Header, text);
        } else {
            formatter.put(LineKind::Other, &assignment(trim_start(first.text)));
        }
    }
    formatter.text
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LineKind {
    #[default]
    Start,
    Comment,
    Header,
    Other,
}

/// The output, with the state that decides about empty lines.
#[derive(Default)]
struct Formatter {
    text: Vec<u8>,
    /// Bytes to write before the next line that is no comment.
    prefix: &'static [u8],
    last: LineKind,
    pending_blank: bool,
}

impl Formatter {
    /// Writes one or several lines, with the proper number of empty lines above.
    fn put(&mut self, kind: LineKind, text: &[u8]) {
        let has_blank = match (self.last, kind) {
            (LineKind::Start, _) => false,
            (LineKind::Header, LineKind::Comment | LineKind::Other) => false,
            (LineKind::Header | LineKind::Other, LineKind::Header) => true,
            _ => self.pending_blank,
        };
        if has_blank {
            self.text.push(b'\n');
        }
        if kind != LineKind::Comment {
            self.text.extend_from_slice(std::mem::take(&mut self.prefix));
        }
        self.text.extend_from_slice(text);
        self.text.push(b'\n');
        (self.last, self.pending_blank) = (kind, false);
    }
}

/// Removes the blanks around the first `=` and at the end of a line. One blank at the end stays if
/// it keeps a backslash from continuing the line.
fn assignment(line: &[u8]) -> Vec<u8> {
    let line = &line[..trimmed_end(line)];
    let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
        return line.to_vec();
    };
    let (name, value) = (trim_end(&line[..equals]), trim_start(&line[equals + 1..]));
    [name, b"=", value].concat()
}

/// Formats a continued line, keeping the comments between its parts.
fn continued_lines(
    source: MarkedSource<'_>,
    logical: &LogicalLine<'_>,
    keeps_mark: impl Fn(&Line<'_>) -> bool,
) -> Vec<u8> {
    let end = if logical.unfinished { source.bytes.len() } else { logical.last().start };
    let is_part = |line: &Line<'_>| line.start <= end;
    let mut lines = source.lines(logical.first.start).take_while(is_part);
    let first = lines.next().map_or(&b""[..], |line| line.text);
    let start = trim_start(first);
    // A name that does not end on the first line cannot be recognized here.
    let mut text = match start.first() {
        Some(b'[' | b'=') | None => start.to_vec(),
        Some(_) => assignment(start),
    };
    for line in lines {
        text.push(b'\n');
        if keeps_mark(&line) {
            text.extend_from_slice(BYTE_ORDER_MARK);
        }
        text.extend_from_slice(line.text);
    }
    let end = trimmed_end(&text);
    text.truncate(end);
    text
}
