//! Edited copies of a source. The options to write were checked by the caller.

use std::borrow::Cow;
use std::ops::Range;

use crate::file::option::{OptionView, UnitOption};
use crate::file::options::Options;
use crate::syntax::assignment::LogicalLine;
use crate::syntax::diagnostic::Span;
use crate::syntax::grammar::{SyntaxItem, SyntaxItems};
use crate::syntax::lines::{
    BYTE_ORDER_MARK, Lines, MarkedSource, ends_in_open_backslash, is_line_end, line_end_length,
    line_length, trim_end,
};

/// Removes options of the source, which are given in source order.
pub(super) fn removed<'a>(
    source: MarkedSource<'_>,
    options: impl Iterator<Item = OptionView<'a>>,
) -> Vec<u8> {
    let mut copy = Copy::new(source);
    for option in options {
        let (start, end) = whole_lines(source, option);
        copy.skip(start, end);
    }
    copy.finish()
}

/// Adds `option` after the last option of its section, or below the section's header if the section
/// has no options.
pub(super) fn added(
    source: MarkedSource<'_>,
    options: Options<'_>,
    option: &UnitOption,
) -> Vec<u8> {
    match options.rev().find(|it| it.section() == option.section()) {
        Some(last) => below(source, last.span().start, option),
        None => into_empty(source, option),
    }
}

/// Adds `option` to a section without options, below the section's last header. If the section does
/// not exist, adds it at the end of the source.
fn into_empty(source: MarkedSource<'_>, option: &UnitOption) -> Vec<u8> {
    let headers = Headers::new(source).filter(|(name, _)| name == option.section());
    match headers.last() {
        Some((_, span)) => below(source, span.start, option),
        None => appended(source, option.section(), &(line(option) + "\n")),
    }
}

/// Renames options, which are given in source order with the new options.
pub(super) fn renamed<'a>(
    source: MarkedSource<'_>,
    changes: impl IntoIterator<Item = (OptionView<'a>, UnitOption)>,
) -> Vec<u8> {
    let mut copy = Copy::new(source);
    for (old, new) in changes {
        let start = old.span().start;
        let after = source.bytes[start..].strip_prefix(old.name().as_bytes());
        // A backslash at the end of the old name joins nothing, since "=" follows on the same line.
        match after.filter(|after| after.trim_ascii_start().starts_with(b"=")) {
            Some(_) => copy.splice(start..start + old.name().len(), new.name()),
            // The name continues on another line, so the whole option is rewritten on one line.
            None => copy.splice(start..logical_line_end(source, start).0, &line(&new)),
        }
    }
    copy.finish()
}

/// Renames a section in each of its headers.
pub(super) fn section_renamed(source: MarkedSource<'_>, old: &str, new: &str) -> Vec<u8> {
    let mut copy = Copy::new(source);
    for (_, span) in Headers::new(source).filter(|(name, _)| name == old) {
        copy.skip(span.start, span.end);
        copy.output.extend_from_slice(format!("[{new}]").as_bytes());
    }
    copy.finish()
}

/// Removes a section: each header with everything up to its last option.
pub(super) fn section_removed(source: MarkedSource<'_>, section: &str) -> Vec<u8> {
    let mut copy = Copy::new(source);
    let mut items = SyntaxItems::new(source.bytes).peekable();
    while let Some(item) = items.next() {
        let (start, mut last) = match item {
            SyntaxItem::Section(name, span) if name == section => (span.start, span.start),
            _ => continue,
        };
        while let Some(item) = items.next_if(|it| !matches!(it, SyntaxItem::Section(..))) {
            if let SyntaxItem::Assignment(assignment) = item {
                last = assignment.span().start;
            }
        }
        let (from, to) = whole_lines_between(source, start, separator(source, last).end);
        copy.skip(from, to);
        // Otherwise the empty lines below would add to those above.
        let stands_apart =
            ["\n\n", "\r\n\r\n"].iter().any(|it| copy.output.ends_with(it.as_bytes()));
        if stands_apart || from == 0 || is_after_leading_mark(source, from, to) {
            copy.skip(to, to + blank_lines(&source.bytes[to..]));
        }
    }
    copy.finish()
}

/// Adds a header at the end.
pub(super) fn section_added(source: MarkedSource<'_>, section: &str) -> Vec<u8> {
    appended(source, section, "")
}

/// The valid headers of a source.
struct Headers<'a>(SyntaxItems<'a>);

impl<'a> Headers<'a> {
    fn new(source: MarkedSource<'a>) -> Self {
        Self(SyntaxItems::new(source.bytes))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (Cow<'a, str>, Span);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(|item| match item {
            SyntaxItem::Section(name, span) => Some((name, span)),
            _ => None,
        })
    }
}

/// Replaces the values of options, which are given in source order with the new options.
pub(super) fn replaced<'a>(
    source: MarkedSource<'_>,
    changes: impl IntoIterator<Item = (OptionView<'a>, UnitOption)>,
) -> Vec<u8> {
    let mut copy = Copy::new(source);
    for (old, new) in changes {
        let (range, text) = replacement(source, old, &new);
        copy.splice(range, &text);
    }
    copy.finish()
}

/// Returns the part of the source that changes with the value of an option, and its new text.
fn replacement(
    source: MarkedSource<'_>,
    old: OptionView<'_>,
    new: &UnitOption,
) -> (Range<usize>, String) {
    let (span, value) = (old.span(), old.value_span());
    let (end, _) = logical_line_end(source, span.start);
    // Within one line the spacing around "=" can stay. A value that begins on a later line cannot
    // be replaced alone: a new one that starts with "#" would be a comment there.
    let one_line = !source.bytes[span.start..end].iter().any(|&byte| is_line_end(byte));
    if one_line && value.start < value.end {
        (value.start..end, new.verbatim().to_owned())
    } else {
        (span.start..end, line(new))
    }
}

/// Adds an option below the logical line that begins at `start`.
fn below(source: MarkedSource<'_>, start: usize, option: &UnitOption) -> Vec<u8> {
    let mut copy = Copy::new(source);
    let separator = separator(source, start);
    let text = separator.text + &line(option);
    copy.splice(separator.end..separator.end, &text);
    copy.finish()
}

/// The end of a logical line, and the text that must be inserted there before another line is
/// added.
struct Separator {
    end: usize,
    text: String,
}

/// Returns the end of the logical line that begins at `start`, and the separator for a line that is
/// added below it.
fn separator(source: MarkedSource<'_>, start: usize) -> Separator {
    let (end, unfinished) = logical_line_end(source, start);
    let text = match &source.bytes[end..] {
        // An empty line ends a value whose last backslash would swallow the new option.
        _ if unfinished => "\n\n",
        [b'\r', b'\n', ..] => "\r\n",
        // The empty line that ended a value must not merge with the line end that is added.
        _ if source.bytes[..end].ends_with(b"\r") => "\r",
        _ => "\n",
    };
    Separator { end, text: text.to_owned() }
}

/// A copy of a source without some ranges.
struct Copy<'a> {
    source: MarkedSource<'a>,
    /// End of the part that was copied or left out.
    copied: usize,
    output: Vec<u8>,
    loses_mark: bool,
}

impl<'a> Copy<'a> {
    fn new(source: MarkedSource<'a>) -> Self {
        let output = Vec::with_capacity(source.bytes.len());
        Self { source, copied: 0, output, loses_mark: false }
    }

    /// Copies the source up to `start`, and leaves out the part before `end`.
    fn skip(&mut self, start: usize, end: usize) {
        self.output.extend_from_slice(&self.source.bytes[self.copied..start]);
        self.copied = end;
        self.loses_mark |= self.source.mark.is_some_and(|mark| (start..end).contains(&mark));
    }

    /// Copies the source up to a range, and writes `text` in place of the range.
    ///
    /// If `text` ends in a line feed and another kind of line end follows, adds a line feed between
    /// them. Otherwise, the two line ends would merge into one.
    fn splice(&mut self, range: Range<usize>, text: &str) {
        let after = &self.source.bytes[range.end..];
        // A carriage return would merge with the line feed before it, and leave no empty line to
        // end the value.
        let open = text.ends_with('\n') && !after.is_empty() && !after.starts_with(b"\n");
        self.skip(range.start, range.end);
        self.output.extend_from_slice(text.as_bytes());
        self.output.extend_from_slice(if open { b"\n" } else { b"" });
    }

    /// Copies the rest.
    fn finish(mut self) -> Vec<u8> {
        self.output.extend_from_slice(&self.source.bytes[self.copied..]);
        if self.loses_mark && self.source.has_mark_as_text() {
            // Otherwise the next mark would not be text any more.
            return [BYTE_ORDER_MARK, b"\n", &self.output].concat();
        }
        self.output
    }
}

/// Appends a section with this name and content, using the kind of line end that the source uses.
fn appended(source: MarkedSource<'_>, section: &str, content: &str) -> Vec<u8> {
    let source = source.bytes;
    let separator = match source.last() {
        _ if source == BYTE_ORDER_MARK => "",
        None => "",
        Some(b'\n') => "\n",
        Some(_) => "\n\n",
    };
    let text = format!("{separator}[{section}]\n{content}");
    let first_end = &source[line_length(source)..];
    let text = if first_end.starts_with(b"\r\n") { text.replace('\n', "\r\n") } else { text };
    [source, text.as_bytes()].concat()
}

fn line(option: &UnitOption) -> String {
    format!("{}={}", option.name(), option.verbatim())
}

/// Returns the end of the logical line that begins at `start`, before its line end. Also returns
/// `true` if that line ends in a continuation backslash with no further line below it.
fn logical_line_end(source: MarkedSource<'_>, start: usize) -> (usize, bool) {
    let mut lines = source.lines(start);
    let first = lines.next().expect("what stands in the source has a line in it");
    let logical = LogicalLine::starting_with(first, &mut lines);
    (logical.last().start + logical.last().text.len(), logical.unfinished)
}

/// Returns the lines of an option; see [`whole_lines_between`].
fn whole_lines(source: MarkedSource<'_>, option: OptionView<'_>) -> (usize, usize) {
    let start = option.span().start;
    whole_lines_between(source, start, logical_line_end(source, start).0)
}

/// Extends `start..end` to whole lines: back over the blanks before it, and forward over the line
/// end after it. Returns the range unchanged if its logical line begins on an earlier line, or
/// behind a byte order mark that cannot stand before the next line.
fn whole_lines_between(source: MarkedSource<'_>, start: usize, end: usize) -> (usize, usize) {
    let before = trim_end(&source.bytes[..start]);
    let after = end + line_end_length(&source.bytes[end..]);
    let ends = trailing_line_end_len(before);
    let is_first = before.is_empty() || is_after_leading_mark(source, before.len(), after);
    let is_alone = is_first || ends > 0 && !ends_in_open_backslash(&before[..before.len() - ends]);
    if is_alone { (before.len(), after) } else { (start, end) }
}

/// Returns `true` if `at` is the end of a byte order mark at the start of the source, and the text
/// from `next` on may follow the mark. A comment may not: behind a mark it would be text.
fn is_after_leading_mark(source: MarkedSource<'_>, at: usize, next: usize) -> bool {
    let mut following = Lines::new(source.bytes, next).skip_while(|line| line.text.is_empty());
    source.mark == Some(0)
        && source.after_mark() == Some(at)
        && !following.next().is_some_and(|line| line.starts_like_comment())
}

/// Returns the total length in bytes of the blank lines at the start of `text`.
fn blank_lines(text: &[u8]) -> usize {
    let blank = Lines::new(text, 0).take_while(|line| trim_end(line.text).is_empty());
    let last = blank.last().map_or(0, |line| line.start + line.text.len());
    last + line_end_length(&text[last..])
}

/// Returns the length in bytes of the line end at the end of `text`.
fn trailing_line_end_len(text: &[u8]) -> usize {
    let mut run = 0;
    for &byte in text.iter().rev() {
        if !is_line_end(byte) || text[text.len() - run..].contains(&byte) {
            break;
        }
        run += 1;
    }
    run
}
