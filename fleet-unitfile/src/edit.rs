//! Edits that leave every other byte of the source unchanged.

use std::borrow::Cow;

use crate::continuation::LogicalLine;
use crate::diagnostic::Span;
use crate::grammar::{SyntaxItem, SyntaxItems, byte_order_mark_len};
use crate::lines::{
    Lines, ends_in_open_backslash, is_line_end, line_end_length, line_length, trim_end,
};
use crate::option::{OptionView, UnitOption};
use crate::options::Options;

/// Replaces the last option that has the same section and name as `option`. If there is no such
/// option, adds `option`.
///
/// The caller has checked that `option` can be written. `options` are the options of `source`.
pub(crate) fn with(source: &[u8], options: Options<'_>, option: &UnitOption) -> Vec<u8> {
    let (section, name) = (option.section(), option.name());
    match options.clone().named(section, [name]).next_back() {
        Some(old) => replaced(source, old, option),
        None => with_added(source, options, option),
    }
}

/// Removes options of the source, which are given in source order.
pub(crate) fn without<'a>(source: &[u8], options: impl Iterator<Item = OptionView<'a>>) -> Vec<u8> {
    let mut output = Vec::with_capacity(source.len());
    let mut copied = 0;
    for option in options {
        let (start, end) = whole_lines(source, option);
        output.extend_from_slice(&source[copied..start]);
        copied = end;
    }
    output.extend_from_slice(&source[copied..]);
    output
}

/// Adds `option` after the last option of its section, or below the section's header if the section
/// has no options.
pub(crate) fn with_added(source: &[u8], options: Options<'_>, option: &UnitOption) -> Vec<u8> {
    match options.rev().find(|it| it.section() == option.section()) {
        Some(last) => inserted(source, last, option),
        None => into_empty(source, option),
    }
}

/// Adds `option` to a section without options, below the section's last header. If the section does
/// not exist, adds it at the end of the source.
fn into_empty(source: &[u8], option: &UnitOption) -> Vec<u8> {
    let headers = Headers::new(source).filter(|(name, _)| name == option.section());
    match headers.last() {
        Some((_, span)) => {
            let separator = separator(source, span.start);
            let (end, text) = (separator.end, separator.text + &line(option));
            spliced(&source[..end], &text, &source[end..])
        }
        None => appended(source, option.section(), &(line(option) + "\n")),
    }
}

/// Renames an option.
pub(crate) fn renamed(source: &[u8], old: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let start = old.span().start;
    let after = source[start..].strip_prefix(old.name().as_bytes());
    // A backslash at the end of the old name joins nothing, since "=" follows on the same line.
    match after.filter(|after| after.trim_ascii_start().starts_with(b"=")) {
        Some(after) => spliced(&source[..start], new.name(), after),
        // The name continues on another line, so the whole option is rewritten on one line.
        None => spliced(&source[..start], &line(new), &source[separator(source, start).end..]),
    }
}

/// Renames a section in each of its headers.
pub(crate) fn section_renamed(source: &[u8], old: &str, new: &str) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(source.len());
    let mut copied = 0;
    for (_, span) in Headers::new(source).filter(|(name, _)| name == old) {
        renamed.extend_from_slice(&source[copied..span.start]);
        renamed.extend_from_slice(format!("[{new}]").as_bytes());
        copied = span.end;
    }
    renamed.extend_from_slice(&source[copied..]);
    renamed
}

/// Removes a section: each header with everything up to its last option.
pub(crate) fn without_section(source: &[u8], section: &str) -> Vec<u8> {
    let mut output = Vec::with_capacity(source.len());
    let mut copied = 0;
    let mut items = SyntaxItems::new(source).peekable();
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
        output.extend_from_slice(&source[copied..from]);
        // Otherwise the empty lines below would add to those above.
        let stands_apart = ["\n\n", "\r\n\r\n"].iter().any(|it| output.ends_with(it.as_bytes()));
        let drops_blank = stands_apart || from == byte_order_mark_len(source);
        copied = to + if drops_blank { blank_lines(&source[to..]) } else { 0 };
    }
    output.extend_from_slice(&source[copied..]);
    output
}

/// Adds a header at the end.
pub(crate) fn with_section(source: &[u8], section: &str) -> Vec<u8> {
    appended(source, section, "")
}

/// The valid headers of a source.
struct Headers<'a>(SyntaxItems<'a>);

impl<'a> Headers<'a> {
    fn new(source: &'a [u8]) -> Self {
        Self(SyntaxItems::new(source))
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

pub(crate) fn replaced(source: &[u8], old: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let (span, value) = (old.span(), old.value_span());
    let (end, _) = logical_line_end(source, span.start);
    // Within one line the spacing around "=" can stay. A value that begins on a later line cannot
    // be replaced alone: a new one that starts with "#" would be a comment there.
    let one_line = !source[span.start..end].iter().any(|&byte| is_line_end(byte));
    if one_line && value.start < value.end {
        spliced(&source[..value.start], new.verbatim(), &source[end..])
    } else {
        spliced(&source[..span.start], &line(new), &source[end..])
    }
}

pub(crate) fn inserted(source: &[u8], after: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let separator = separator(source, after.span().start);
    let (end, text) = (separator.end, separator.text + &line(new));
    spliced(&source[..end], &text, &source[end..])
}

/// The end of a logical line, and the text that must be inserted there before another line is
/// added.
struct Separator {
    end: usize,
    text: String,
}

/// Returns the end of the logical line that begins at `start`, and the separator for a line that is
/// added below it.
fn separator(source: &[u8], start: usize) -> Separator {
    let (end, unfinished) = logical_line_end(source, start);
    let text = match &source[end..] {
        // An empty line ends a value whose last backslash would swallow the new option.
        _ if unfinished => "\n\n",
        [b'\r', b'\n', ..] => "\r\n",
        // The empty line that ended a value must not merge with the line end that is added.
        _ if source[..end].ends_with(b"\r") => "\r",
        _ => "\n",
    };
    Separator { end, text: text.to_owned() }
}

/// Joins `before`, `text` and `after`.
///
/// If `text` ends in a line feed and `after` begins with another kind of line end, adds a line feed
/// between them. Otherwise, the two line ends would merge into one.
fn spliced(before: &[u8], text: &str, after: &[u8]) -> Vec<u8> {
    // A carriage return would merge with the line feed before it, and leave no empty line to end
    // the value.
    let open = text.ends_with('\n') && !after.is_empty() && !after.starts_with(b"\n");
    let guard: &[u8] = if open { b"\n" } else { b"" };
    [before, text.as_bytes(), guard, after].concat()
}

/// Appends a section with this name and content, using the kind of line end that the source uses.
fn appended(source: &[u8], section: &str, content: &str) -> Vec<u8> {
    let separator = match source[byte_order_mark_len(source)..].last() {
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
fn logical_line_end(source: &[u8], start: usize) -> (usize, bool) {
    let mut lines = Lines::new(source, start);
    let first = lines.next().expect("what stands in the source has a line in it");
    let logical = LogicalLine::starting_with(first, &mut lines);
    (logical.last().start + logical.last().text.len(), logical.unfinished)
}

/// Returns the lines of an option; see [`whole_lines_between`].
fn whole_lines(source: &[u8], option: OptionView<'_>) -> (usize, usize) {
    let start = option.span().start;
    whole_lines_between(source, start, logical_line_end(source, start).0)
}

/// Extends `start..end` to whole lines: back over the blanks before it, and forward over the line
/// end after it. Returns the range unchanged if its logical line begins on an earlier line.
fn whole_lines_between(source: &[u8], start: usize, end: usize) -> (usize, usize) {
    let before = trim_end(&source[..start]);
    let ends = trailing_line_end_len(before);
    let is_first = before.len() == byte_order_mark_len(source);
    let is_alone = is_first || ends > 0 && !ends_in_open_backslash(&before[..before.len() - ends]);
    if is_alone { (before.len(), end + line_end_length(&source[end..])) } else { (start, end) }
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
