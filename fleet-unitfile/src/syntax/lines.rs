//! Physical lines, split at the same places as in systemd.
//!
//! Here and in the modules that use this one, functions that are called for every line are marked
//! `#[inline]`. Their bodies are so small that a call would cost as much as the work. Without the
//! attribute, the compiler often would not inline them into other crates.

/// Length limit in bytes. Every physical line must be shorter than this, and a joined line not
/// longer.
pub(crate) const MAX_LINE: usize = 1024 * 1024;

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Stands for the offset of a byte order mark in sources without one.
const NO_MARK: usize = usize::MAX;

/// A source, and the place of its byte order mark.
///
/// systemd removes the mark from the first line that begins with one, wherever that line is. In
/// later lines it is text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkedSource<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) mark: Option<usize>,
}

impl<'a> MarkedSource<'a> {
    /// Looks for the byte order mark. The time is proportional to the length of the source.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, mark: line_with_mark(bytes, 0) }
    }

    /// Returns the lines from offset `at`, which must be the beginning of a line, or of the text
    /// after the mark.
    #[inline]
    pub(crate) fn lines(self, at: usize) -> Lines<'a> {
        Lines { source: self.bytes, mark: self.mark.unwrap_or(NO_MARK), at, number: 0 }
    }

    /// Returns the offset after the byte order mark.
    pub(crate) fn after_mark(self) -> Option<usize> {
        self.mark.map(|mark| mark + BYTE_ORDER_MARK.len())
    }

    /// Returns `true` if a line after the one with the mark begins with another mark. That one is
    /// text only because of the first.
    pub(crate) fn has_mark_as_text(self) -> bool {
        self.after_mark().is_some_and(|after| line_with_mark(self.bytes, after).is_some())
    }
}

/// Returns the offset of the first line that begins with a byte order mark. The search begins at
/// `from`.
fn line_with_mark(source: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += source[at..].iter().position(|&byte| byte == BYTE_ORDER_MARK[0])?;
        let starts_line = at == 0 || is_line_end(source[at - 1]);
        if starts_line && source[at..].starts_with(BYTE_ORDER_MARK) {
            return Some(at);
        }
        at += 1;
    }
}

/// One physical line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// The bytes before the line end.
    pub(crate) text: &'a [u8],
    /// Offset of the first byte.
    pub(crate) start: usize,
    /// Line number, counted from 1.
    pub(crate) number: usize,
    /// Whether the byte order mark of the source precedes the text.
    pub(crate) is_marked: bool,
}

impl Line<'_> {
    /// Returns `true` if the first non-blank character starts a comment.
    ///
    /// A line that reaches the length limit never counts as a comment. The parser therefore refuses
    /// it like any other overlong line. The line with the byte order mark is no comment either:
    /// systemd looks for comments before it removes the mark.
    #[inline]
    pub(crate) fn is_comment(&self) -> bool {
        self.starts_like_comment() && !self.is_marked && self.text.len() < MAX_LINE
    }

    /// Returns `true` if the first non-blank character is `#` or `;`.
    #[inline]
    pub(crate) fn starts_like_comment(&self) -> bool {
        matches!(trim_start(self.text).first(), Some(b'#' | b';'))
    }

    /// Returns `true` if the line ends in an unescaped backslash.
    pub(crate) fn continues(&self) -> bool {
        ends_in_open_backslash(self.text)
    }
}

/// An iterator over the lines of a text.
///
/// A line ends at a line feed, a carriage return or a zero byte. Different ones in a row form a
/// single line end, so `\r\n` and `\n\r` each end one line. The same one again begins a new line
/// end, so `\n\n` ends two lines. A zero byte is always the last of its line end.
///
/// The byte order mark of a [`MarkedSource`] is not part of the text of its line.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    source: &'a [u8],
    /// Offset of the byte order mark; [`NO_MARK`] if there is none.
    mark: usize,
    at: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    /// Starts at offset `at`, which is the beginning of line 1. The source has no byte order mark.
    pub(crate) fn new(source: &'a [u8], at: usize) -> Self {
        Self { source, mark: NO_MARK, at, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    #[inline]
    fn next(&mut self) -> Option<Line<'a>> {
        let is_marked = self.at == self.mark;
        let start = if is_marked { self.at + BYTE_ORDER_MARK.len() } else { self.at };
        let rest = self.source.get(start..).filter(|rest| !rest.is_empty())?;
        let length = line_length(rest);
        self.at = start + length + line_end_length(&rest[length..]);
        self.number += 1;
        Some(Line { text: &rest[..length], start, number: self.number, is_marked })
    }
}

/// Returns the number of bytes before the first line end, or the length of the text if it has no
/// line end.
#[inline]
pub(crate) fn line_length(text: &[u8]) -> usize {
    // Tests eight bytes at a time: a byte becomes zero if it is the wanted one, and only a zero, or
    // a byte after one, borrows from its highest bit. So the first mark is always right.
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x8080_8080_8080_8080;
    let marks = |word: u64| word.wrapping_sub(ONES) & !word & HIGHEST;
    let (words, _) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = marks(word)
            | marks(word ^ (ONES * u64::from(b'\n')))
            | marks(word ^ (ONES * u64::from(b'\r')));
        if found != 0 {
            let before = usize::try_from(found.trailing_zeros() / 8);
            return index * 8 + before.expect("a number below eight");
        }
    }
    let tail = &text[words.len() * 8..];
    let end = tail.iter().position(|&byte| is_line_end(byte));
    end.map_or(text.len(), |end| words.len() * 8 + end)
}

/// Returns `true` if the text ends in a backslash that is not itself escaped by another backslash.
pub(crate) fn ends_in_open_backslash(text: &[u8]) -> bool {
    text.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Returns `true` if a byte ends a line.
#[inline]
pub(crate) fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0)
}

/// Strips the blanks at the start.
#[inline]
pub(crate) fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&byte| is_blank(byte)).count();
    &text[blanks..]
}

/// Strips the blanks at the end.
#[inline]
pub(crate) fn trim_end(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|&&byte| is_blank(byte)).count();
    &text[..text.len() - blanks]
}

/// Returns `true` if a byte is a space or a tab.
#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns the number of bytes at the start of `text` that form one line end.
#[inline]
pub(crate) fn line_end_length(text: &[u8]) -> usize {
    // Nearly every line end is a single line feed.
    if let [b'\n', next, ..] = text
        && !matches!(next, b'\r' | 0)
    {
        return 1;
    }
    let mut length = 0;
    for &byte in text {
        let run = &text[..length];
        if !is_line_end(byte) || run.contains(&byte) || run.contains(&0) {
            break;
        }
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        let texts = Lines::new(text.as_bytes(), 0).map(|line| line.text);
        texts.map(|text| str::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn run_of_different_line_ends_is_one_line_end() {
        for (text, expected) in [
            ("", &[][..]),
            ("a", &["a"]),
            ("a\n", &["a"]),
            ("a\nb", &["a", "b"]),
            ("a\n\nb", &["a", "", "b"]),
            ("a\r\nb\r\n", &["a", "b"]),
            ("a\r\n\r\nb", &["a", "", "b"]),
            ("a\n\rb", &["a", "b"]),
            ("a\rb", &["a", "b"]),
            ("a\r\rb", &["a", "", "b"]),
            ("a\0b", &["a", "b"]),
            ("a\0\nb", &["a", "", "b"]),
            ("a\n\0b", &["a", "b"]),
            ("a\n\r\0\nb", &["a", "", "b"]),
            ("\n", &[""]),
        ] {
            assert_eq!(lines(text), expected, "{text:?}");
        }
    }

    #[test]
    fn line_has_offset_and_number() {
        let line = Lines::new(b"..ab\r\ncd", 2).nth(1).unwrap();
        assert_eq!((line.start, line.number, line.text), (6, 2, &b"cd"[..]));
    }

    #[test]
    fn backslashes_escape_each_other_in_pairs() {
        for (text, open) in [
            ("", false),
            ("a", false),
            ("\\", true),
            ("a\\\\", false),
            ("\\\\\\", true),
            ("\\a", false),
        ] {
            assert_eq!(ends_in_open_backslash(text.as_bytes()), open, "{text}");
        }
    }
}
