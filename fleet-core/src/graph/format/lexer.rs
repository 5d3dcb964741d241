//! Splits a file into lines and fields, with the position of each.

use std::borrow::Cow;
use std::ops::Range;

use fleet_unitfile::{Location, Span};

use super::diagnostic::{Code, Problems, short};
use super::keys::of_systemd;

/// Maximum size of a file, in bytes.
pub const MAX_FILE_SIZE: usize = 1024 * 1024;

/// A key with its value.
#[derive(Debug)]
pub(super) struct Field {
    /// The key as written. For a broken line it is the key that was probably meant.
    pub(super) key: String,
    /// Position of the key.
    pub(super) key_span: Span,
    /// Line, counted from 1.
    pub(super) line: usize,
    /// The value.
    pub(super) value: Value,
    /// Whether all lines of the field could be read. If not, an error has already been reported.
    pub(super) valid: bool,
}

/// Handling of indented lines after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folding {
    /// Indented lines continue the value.
    Allowed,
    /// Indented lines are errors.
    Refused,
    /// Indented lines are ignored, because the key is unknown.
    Ignored,
}

/// Reads all fields of a file. Reports each line that is not a field, and continues with the next
/// line.
pub(super) fn read(
    source: &[u8],
    folding: fn(&str) -> Folding,
    problems: &mut Problems,
) -> Vec<Field> {
    if source.len() > MAX_FILE_SIZE {
        // The caller may have stopped reading at this size, so the actual size is unknown.
        let message = format!("the file has more than {MAX_FILE_SIZE} bytes");
        let span = Span { start: MAX_FILE_SIZE, end: MAX_FILE_SIZE + 1 };
        problems.add(Code::TooLarge, span, message, "split it into several files");
        return Vec::new();
    }
    let mut reader = Reader { folding, fields: Vec::new(), open: false, problems };
    lines(source).for_each(|line| reader.line(line));
    reader.fields
}

struct Reader<'a> {
    folding: fn(&str) -> Folding,
    fields: Vec<Field>,
    /// Whether the next line may continue the last field.
    open: bool,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn line(&mut self, line: Line<'_>) {
        let text = text_of(line);
        let valid = self.characters(line);
        let trimmed = text.trim_start_matches(BLANKS);
        if trimmed.is_empty() {
            self.open = false;
        } else if trimmed.starts_with('#') {
            // A comment does not end a value.
        } else if trimmed.len() < text.len() {
            self.indented(line, &text, valid);
        } else {
            self.field(line, &text, valid);
            self.open = true;
        }
    }

    /// Returns whether all characters of a line are allowed. If not, reports the first character
    /// that is not allowed.
    fn characters(&mut self, line: Line<'_>) -> bool {
        let bad = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
        let control = line.text.iter().position(bad);
        let invalid = str::from_utf8(line.text).err().map(|error| error.valid_up_to());
        let Some(at) = control.into_iter().chain(invalid).min() else { return true };
        let (message, help) = if Some(at) == invalid {
            ("this is not UTF-8".to_owned(), "save the file as UTF-8")
        } else {
            (format!("a control character, 0x{:02x}", line.text[at]), "remove it")
        };
        let start = line.start + at;
        self.problems.add(Code::BadCharacter, Span { start, end: start + 1 }, message, help);
        false
    }

    /// Handles an indented line.
    fn indented(&mut self, line: Line<'_>, text: &str, valid: bool) {
        let (at, trimmed) = trim(text, 0);
        let last = self.fields.last_mut().filter(|_| self.open);
        let folding = last.as_ref().map(|field| (self.folding)(&field.key));
        match (last, folding) {
            (Some(last), Some(Folding::Allowed)) => {
                last.value.fold(trimmed, line.start + at);
                last.valid &= valid;
            }
            (Some(last), Some(Folding::Ignored)) => last.valid &= valid,
            (last, _) => {
                let message = match last {
                    Some(last) => {
                        let key = short(&last.key);
                        format!("this line is indented, but the value of {key} is a single line")
                    }
                    None => "this line is indented, but it follows no value".to_owned(),
                };
                let help = "if the line is a field of its own, remove the blanks at its start";
                let span = span(line, at, trimmed.len());
                self.problems.add(Code::StrayFold, span, message, help);
                self.broken(line, trimmed, at);
            }
        }
    }

    fn field(&mut self, line: Line<'_>, text: &str, valid: bool) {
        let Some((before, after)) = text.split_once(':') else {
            let message = format!("there is no colon in `{}`", short(text));
            let value =
                text.split_once('=').map_or("value", |(_, value)| value.trim_matches(BLANKS));
            let key = match meant_key(text) {
                "" => "key",
                key => key,
            };
            let help = format!("write `{key}: {}`, or # before a comment", short(value));
            self.problems.add(Code::NoColon, span(line, 0, text.len()), message, help);
            return self.broken(line, text, 0);
        };
        let key = before.trim_end_matches(BLANKS);
        let key_span = span(line, 0, key.len());
        if !is_key(key) {
            let message = format!("`{}` is not a key", short(key));
            let help = match (first_word(key), key.to_ascii_lowercase()) {
                (word, _) if !word.is_empty() => format!("write `{word}: value`"),
                _ if of_systemd(key).is_some() => {
                    format!("write `{}`", of_systemd(key).unwrap_or_default())
                }
                (_, lower) if is_key(&lower) => format!("write `{}`", short(&lower)),
                _ => "use small letters, digits and -, and a letter at the start".to_owned(),
            };
            self.problems.add(Code::UnknownKey, key_span, message, help);
            return self.broken(line, text, 0);
        }
        let (at, trimmed) = trim(after, before.len() + 1);
        let value = Value::new(trimmed, line.start + at);
        let key = key.to_owned();
        self.fields.push(Field { key, key_span, line: line.number, value, valid });
    }

    /// Adds an invalid field for a broken line, with the key that was probably meant.
    fn broken(&mut self, line: Line<'_>, text: &str, at: usize) {
        let key = meant_key(text).to_owned();
        let length = text.find([' ', '\t', ':', '=']).unwrap_or(text.len());
        let key_span = span(line, at, length);
        let value = Value::new("", line.start + at);
        self.fields.push(Field { key, key_span, line: line.number, value, valid: false });
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Removes blanks from both ends of a text that begins at offset `at`. Returns the offset of the
/// remaining text, and that text.
fn trim(text: &str, at: usize) -> (usize, &str) {
    let start = text.trim_start_matches(BLANKS);
    (at + text.len() - start.len(), start.trim_end_matches(BLANKS))
}

/// Returns the position of a part of a line.
fn span(line: Line<'_>, at: usize, length: usize) -> Span {
    let start = line.start + at;
    Span { start, end: start + length }
}

/// Returns the text of a line. If the line is not UTF-8, each non-ASCII byte is replaced by an
/// ASCII character, so that offsets stay valid.
fn text_of(line: Line<'_>) -> Cow<'_, str> {
    let replaced = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
    match str::from_utf8(line.text) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => line.text.iter().map(replaced).collect(),
    }
}

/// Returns the key that a broken line probably means, or an empty string. Also recognizes keys of
/// systemd.
fn meant_key(text: &str) -> &str {
    let end = text.find([' ', '\t', ':', '=']).unwrap_or(text.len());
    let first = first_word(text);
    if first.is_empty() { of_systemd(&text[..end]).unwrap_or_default() } else { first }
}

/// Returns the key at the start of a text, or an empty string.
fn first_word(text: &str) -> &str {
    let end = text.find([' ', '\t', ':', '=']).unwrap_or(text.len());
    if is_key(&text[..end]) { &text[..end] } else { "" }
}

fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

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

/// A value, with its lines joined by single blanks.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    text: String,
    /// Start of each line of the value, as an offset in `text` and an offset in the file.
    pieces: Vec<(usize, usize)>,
}

impl Value {
    /// Creates a value that begins at this offset of the file.
    pub(super) fn new(text: &str, at: usize) -> Self {
        Self { text: text.to_owned(), pieces: vec![(0, at)] }
    }

    /// Appends a continuation line.
    pub(super) fn fold(&mut self, text: &str, at: usize) {
        if self.text.is_empty() {
            *self = Self::new(text, at);
            return;
        }
        self.text.push(' ');
        self.pieces.push((self.text.len(), at));
        self.text.push_str(text);
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of the whole value.
    pub(super) fn span(&self) -> Span {
        self.part(0..self.text.len())
    }

    /// Returns the position in the file of a part of the value. If the part spans several lines,
    /// the position reaches from the first line to the last.
    pub(super) fn part(&self, range: Range<usize>) -> Span {
        let start = self.offset(range.start);
        let last = range.end.max(range.start + 1) - 1;
        let end = if range.is_empty() { start } else { self.offset(last) + 1 };
        Span { start, end }
    }

    fn offset(&self, at: usize) -> usize {
        let index = self.pieces.partition_point(|(text, _)| *text <= at);
        let (text, file) = self.pieces.get(index.saturating_sub(1)).copied().unwrap_or_default();
        file + at.saturating_sub(text)
    }

    /// Reports an error for the whole value.
    pub(super) fn refuse(
        &self,
        problems: &mut Problems,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        problems.add(code, self.span(), message, help);
    }
}
