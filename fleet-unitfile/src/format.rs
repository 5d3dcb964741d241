//! The normal form of a source: one way of spacing, and every comment.

use crate::grammar::byte_order_mark_len;
use crate::join::{Logical, trimmed_end};
use crate::lines::{Line, Lines, trim_end, trim_start};

/// The source in its normal form.
pub(crate) fn formatted(source: &[u8]) -> Vec<u8> {
    let mut lines = Lines::new(source, byte_order_mark_len(source));
    let mut page = Page::default();
    while let Some(first) = lines.next() {
        if first.is_comment() {
            page.put(Kind::Comment, trim_end(trim_start(first.text)));
            continue;
        }
        let logical = Logical::starting_with(first, &mut lines);
        let text = trim_start(&first.text[..trimmed_end(first.text)]);
        if !logical.is_single() {
            page.put(Kind::Other, &several_lines(source, &logical));
        } else if trim_end(text).is_empty() {
            page.wants_blank = true;
        } else if text.starts_with(b"[") {
            page.put(Kind::Header, text);
        } else {
            page.put(Kind::Other, &assignment(trim_start(first.text)));
        }
    }
    page.text
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Start,
    Comment,
    Header,
    Other,
}

/// What was written so far.
#[derive(Default)]
struct Page {
    text: Vec<u8>,
    last: Kind,
    wants_blank: bool,
}

impl Page {
    /// Writes a line, or several of them, with as many empty lines above it as there should be.
    fn put(&mut self, kind: Kind, text: &[u8]) {
        let has_blank = match (self.last, kind) {
            (Kind::Start, _) => false,
            (Kind::Header, Kind::Comment | Kind::Other) => false,
            (Kind::Header | Kind::Other, Kind::Header) => true,
            _ => self.wants_blank,
        };
        if has_blank {
            self.text.push(b'\n');
        }
        if self.text.is_empty() && byte_order_mark_len(text) > 0 {
            // At the very start this would be a byte order mark, and no part of the text.
            self.text.push(b' ');
        }
        self.text.extend_from_slice(text);
        self.text.push(b'\n');
        (self.last, self.wants_blank) = (kind, false);
    }
}

/// A line without blanks around its first `=` and at its end, but for one that keeps a backslash
/// from continuing the line.
fn assignment(line: &[u8]) -> Vec<u8> {
    let line = &line[..trimmed_end(line)];
    let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
        return line.to_vec();
    };
    let (name, value) = (trim_end(&line[..equals]), trim_start(&line[equals + 1..]));
    [name, b"=", value].concat()
}

/// A logical line of several lines, with the comments between them.
fn several_lines(source: &[u8], logical: &Logical<'_>) -> Vec<u8> {
    let end = if logical.unfinished { source.len() } else { logical.last().start };
    let is_part = |line: &Line<'_>| line.start <= end;
    let mut lines = Lines::new(source, logical.first.start).take_while(is_part);
    let first = lines.next().map_or(&b""[..], |line| line.text);
    let start = trim_start(first);
    // The name ends in the first line, or else nothing is known about this one.
    let mut text = match start.first() {
        Some(b'[' | b'=') | None => start.to_vec(),
        Some(_) => assignment(start),
    };
    for line in lines {
        text.push(b'\n');
        text.extend_from_slice(line.text);
    }
    let end = trimmed_end(&text);
    text.truncate(end);
    text
}
