//! Edits that leave every other byte of the source as it is.

use std::borrow::Cow;

use crate::diagnostic::Span;
use crate::grammar::{Step, Steps, byte_order_mark_len};
use crate::join::Logical;
use crate::lines::{
    Lines, ends_in_open_backslash, is_line_end, line_end_length, line_length, trim_end,
};
use crate::option::{OptionView, UnitOption};
use crate::options::Options;

/// The source with `option` in place of the last one of its section and name; where there is
/// none, after the last option of its section; where there is none either, at the end.
///
/// The option is one that can be written, and `options` are those of the source.
pub(crate) fn with(source: &[u8], options: Options<'_>, option: &UnitOption) -> Vec<u8> {
    let (section, name) = (option.section(), option.name());
    match options.clone().named(section, [name]).next_back() {
        Some(old) => replaced(source, old, option),
        None => with_added(source, options, option),
    }
}

/// The source without the given options, which are some of its own in their order.
pub(crate) fn without<'a>(source: &[u8], options: impl Iterator<Item = OptionView<'a>>) -> Vec<u8> {
    let mut left = Vec::with_capacity(source.len());
    let mut kept = 0;
    for option in options {
        let (start, end) = whole_lines(source, option);
        left.extend_from_slice(&source[kept..start]);
        kept = end;
    }
    left.extend_from_slice(&source[kept..]);
    left
}

/// The source with `option` after the last option of its section, or where its section is.
pub(crate) fn with_added(source: &[u8], options: Options<'_>, option: &UnitOption) -> Vec<u8> {
    match options.rev().find(|it| it.section() == option.section()) {
        Some(last) => inserted(source, last, option),
        None => into_empty(source, option),
    }
}

/// The source with `option` in the section that has none yet: below the last header of it, or
/// in a section of its own at the end.
fn into_empty(source: &[u8], option: &UnitOption) -> Vec<u8> {
    let headers = Headers::new(source).filter(|(name, _)| name == option.section());
    match headers.last() {
        Some((_, span)) => {
            let parting = parting(source, span.start);
            let (end, text) = (parting.end, parting.text + &line(option));
            spliced(&source[..end], &text, &source[end..])
        }
        None => appended(source, option.section(), &(line(option) + "\n")),
    }
}

/// The source with another name for one of its options.
pub(crate) fn renamed(source: &[u8], old: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let start = old.span().start;
    let after = source[start..].strip_prefix(old.name().as_bytes());
    // What follows is in the same line, where a name that ends in a backslash takes in nothing.
    match after.filter(|after| after.trim_ascii_start().starts_with(b"=")) {
        Some(after) => spliced(&source[..start], new.name(), after),
        // A name that goes on in another line; the whole option moves into one.
        None => spliced(&source[..start], &line(new), &source[parting(source, start).end..]),
    }
}

/// The source with another name in each header of a section.
pub(crate) fn section_renamed(source: &[u8], old: &str, new: &str) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(source.len());
    let mut kept = 0;
    for (_, span) in Headers::new(source).filter(|(name, _)| name == old) {
        renamed.extend_from_slice(&source[kept..span.start]);
        renamed.extend_from_slice(format!("[{new}]").as_bytes());
        kept = span.end;
    }
    renamed.extend_from_slice(&source[kept..]);
    renamed
}

/// The source without a section: each header of it with all up to its last option.
pub(crate) fn without_section(source: &[u8], section: &str) -> Vec<u8> {
    let mut left = Vec::with_capacity(source.len());
    let mut kept = 0;
    let mut steps = Steps::new(source).peekable();
    while let Some(step) = steps.next() {
        let (start, mut last) = match step {
            Step::Section(name, span) if name == section => (span.start, span.start),
            _ => continue,
        };
        while let Some(step) = steps.next_if(|it| !matches!(it, Step::Section(..))) {
            if let Step::Assignment(assignment) = step {
                last = assignment.span().start;
            }
        }
        let (from, to) = whole_lines_between(source, start, parting(source, last).end);
        left.extend_from_slice(&source[kept..from]);
        // Empty lines below would otherwise stand with those above.
        let stands_apart = ["\n\n", "\r\n\r\n"].iter().any(|it| left.ends_with(it.as_bytes()));
        let drops_blank = stands_apart || from == byte_order_mark_len(source);
        kept = to + if drops_blank { blank_lines(&source[to..]) } else { 0 };
    }
    left.extend_from_slice(&source[kept..]);
    left
}

/// The source with a header at its end.
pub(crate) fn with_section(source: &[u8], section: &str) -> Vec<u8> {
    appended(source, section, "")
}

/// The headers of a source that can be read.
struct Headers<'a>(Steps<'a>);

impl<'a> Headers<'a> {
    fn new(source: &'a [u8]) -> Self {
        Self(Steps::new(source))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (Cow<'a, str>, Span);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(|step| match step {
            Step::Section(name, span) => Some((name, span)),
            _ => None,
        })
    }
}

pub(crate) fn replaced(source: &[u8], old: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let (span, value) = (old.span(), old.value_span());
    let (end, _) = end_of(source, span.start);
    // Within one line the spacing around "=" can stay. A value that begins in a later line
    // cannot be exchanged alone: a new one that starts with "#" would be a comment there.
    let one_line = !source[span.start..end].iter().any(|&byte| is_line_end(byte));
    if one_line && value.start < value.end {
        spliced(&source[..value.start], new.verbatim(), &source[end..])
    } else {
        spliced(&source[..span.start], &line(new), &source[end..])
    }
}

pub(crate) fn inserted(source: &[u8], after: OptionView<'_>, new: &UnitOption) -> Vec<u8> {
    let parting = parting(source, after.span().start);
    let (end, text) = (parting.end, parting.text + &line(new));
    spliced(&source[..end], &text, &source[end..])
}

/// Where a logical line ends, and what has to stand between it and a line after it.
struct Parting {
    end: usize,
    text: String,
}

/// What parts the logical line in which something begins from a new line below it.
fn parting(source: &[u8], start: usize) -> Parting {
    let (end, unfinished) = end_of(source, start);
    let text = match &source[end..] {
        // An empty line ends a value whose last backslash would take in the new option.
        _ if unfinished => "\n\n",
        [b'\r', b'\n', ..] => "\r\n",
        // The empty line that ended a value must not become one line end with what is added.
        _ if source[..end].ends_with(b"\r") => "\r",
        _ => "\n",
    };
    Parting { end, text: text.to_owned() }
}

/// The text between two parts of a source, the second of which begins with a line end, if it
/// has anything in it.
fn spliced(before: &[u8], text: &str, after: &[u8]) -> Vec<u8> {
    // A carriage return would be one line end with the line feed before it, and leave no empty
    // line to end the value.
    let open = text.ends_with('\n') && !after.is_empty() && !after.starts_with(b"\n");
    let guard: &[u8] = if open { b"\n" } else { b"" };
    [before, text.as_bytes(), guard, after].concat()
}

/// The source with a section at its end that has some lines, and the line ends of the source.
fn appended(source: &[u8], section: &str, content: &str) -> Vec<u8> {
    let parting = match source[byte_order_mark_len(source)..].last() {
        None => "",
        Some(b'\n') => "\n",
        Some(_) => "\n\n",
    };
    let text = format!("{parting}[{section}]\n{content}");
    let first_end = &source[line_length(source)..];
    let text = if first_end.starts_with(b"\r\n") { text.replace('\n', "\r\n") } else { text };
    [source, text.as_bytes()].concat()
}

fn line(option: &UnitOption) -> String {
    format!("{}={}", option.name(), option.verbatim())
}

/// Where the text ends of the last line of what begins at `start`, and whether another was to
/// follow it.
fn end_of(source: &[u8], start: usize) -> (usize, bool) {
    let mut lines = Lines::new(source, start);
    let first = lines.next().expect("what stands in the source has a line in it");
    let logical = Logical::starting_with(first, &mut lines);
    (logical.last().start + logical.last().text.len(), logical.unfinished)
}

/// The lines of an option; see [`whole_lines_between`].
fn whole_lines(source: &[u8], option: OptionView<'_>) -> (usize, usize) {
    let start = option.span().start;
    whole_lines_between(source, start, end_of(source, start).0)
}

/// From the first byte of the line that something begins in to the last one of the line end
/// after it; only the thing itself, where what stands before it is a part of the same logical
/// line.
fn whole_lines_between(source: &[u8], start: usize, end: usize) -> (usize, usize) {
    let before = trim_end(&source[..start]);
    let ends = last_run(before);
    let is_first = before.len() == byte_order_mark_len(source);
    let is_alone = is_first || ends > 0 && !ends_in_open_backslash(&before[..before.len() - ends]);
    if is_alone { (before.len(), end + line_end_length(&source[end..])) } else { (start, end) }
}

/// How many bytes at the start of a text are lines with nothing but blanks.
fn blank_lines(text: &[u8]) -> usize {
    let blank = Lines::new(text, 0).take_while(|line| trim_end(line.text).is_empty());
    let last = blank.last().map_or(0, |line| line.start + line.text.len());
    last + line_end_length(&text[last..])
}

/// How many bytes at the end of a text are line ends that differ from each other.
fn last_run(text: &[u8]) -> usize {
    let mut run = 0;
    for &byte in text.iter().rev() {
        if !is_line_end(byte) || text[text.len() - run..].contains(&byte) {
            break;
        }
        run += 1;
    }
    run
}
