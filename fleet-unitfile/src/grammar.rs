//! The grammar: from lines to sections, options and what is wrong, one step at a time.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use crate::diagnostic::{Diagnostic, DiagnosticKind, Location, Severity, Span};
use crate::join::{Logical, trimmed_end};
use crate::lines::{Line, Lines, ends_in_open_backslash, trim_end, trim_start};

/// What is trimmed from both ends of a line, a name and a value.
pub(crate) const BLANKS: [char; 2] = [' ', '\t'];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One thing that stands in a source.
pub(crate) enum Step<'a> {
    /// A comment by itself, not one between the lines of something else.
    Comment(Line<'a>),
    /// A section begins.
    Section(Cow<'a, str>, Span),
    /// An assignment in the section that began last.
    Assignment(Assignment<'a>),
    /// A line that cannot be read, or is suspicious.
    Flaw(Flaw<'a>),
}

/// An assignment with the lines that it was read from.
#[derive(Clone)]
pub(crate) struct Assignment<'a> {
    logical: Logical<'a>,
    text: Cow<'a, str>,
    /// Where the name is in the text; so is where the value is.
    pub(crate) name: Range<usize>,
    pub(crate) value: Range<usize>,
    after_equals: usize,
}

impl<'a> Assignment<'a> {
    /// A part of the joined line.
    pub(crate) fn part(&self, range: &Range<usize>) -> Cow<'a, str> {
        match &self.text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[range.clone()]),
            Cow::Owned(text) => Cow::Owned(text[range.clone()].to_owned()),
        }
    }

    /// Whether name and value stand in the source as they read.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.text, Cow::Borrowed(_))
    }

    /// From the name to the end of the value.
    pub(crate) fn span(&self) -> Span {
        self.logical.span(self.name.start, self.value.end)
    }

    /// The value; the end of the assignment, where the value is empty.
    pub(crate) fn value_span(&self) -> Span {
        if self.value.is_empty() {
            let Span { end, .. } = self.span();
            return Span { start: end, end };
        }
        self.logical.span(self.value.start, self.value.end)
    }

    /// The value as it is written, where that differs from how it reads.
    pub(crate) fn verbatim(&self) -> Option<Cow<'_, str>> {
        if self.logical.is_single() {
            let end = trimmed_end(self.text.as_bytes());
            let written = &self.text[self.after_equals..end];
            let differs = end > self.value.end;
            return differs.then(|| Cow::Borrowed(written.trim_start_matches(BLANKS)));
        }
        let written = String::from_utf8(self.logical.verbatim(self.after_equals));
        Some(Cow::Owned(written.expect("lines that make up a text when joined are text")))
    }
}

/// What is wrong, and in which physical line.
pub(crate) struct Flaw<'a> {
    pub(crate) kind: DiagnosticKind,
    span: Span,
    line: Line<'a>,
    at: usize,
}

impl Flaw<'_> {
    /// The same for a person to read.
    pub(crate) fn diagnostic(&self) -> Diagnostic {
        let location = Location { line: self.line.number, column: column(self.line.text, self.at) };
        let text = trim_end(trim_start(self.line.text));
        Diagnostic::new(self.kind, self.span, location, text)
    }
}

/// How long the byte order mark is that a source starts with, which is no part of its text.
pub(crate) fn byte_order_mark_len(source: &[u8]) -> usize {
    if source.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// What is wrong with a text as the name of a section, if anything is.
pub(crate) fn section_flaw(name: &str) -> Option<DiagnosticKind> {
    let is_unsafe = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\'' | b'\\' | b']' | 0x7f);
    if name.is_empty() {
        Some(DiagnosticKind::EmptySection)
    } else if name.bytes().any(is_unsafe) {
        Some(DiagnosticKind::SectionCharacter)
    } else {
        None
    }
}

/// Whether a text has none of Unicode's noncharacters, which systemd takes for broken UTF-8.
pub(crate) fn is_clean(text: &str) -> bool {
    let reserved =
        |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    text.is_ascii() || !text.chars().any(reserved)
}

/// The column of the byte at offset `at` of a line.
pub(crate) fn column(line: &[u8], at: usize) -> usize {
    // Bytes of this form go on with a character that began before.
    1 + line[..at].iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// What is wrong with a logical line, and where: offsets in the joined line.
struct Wrong {
    kind: DiagnosticKind,
    start: usize,
    end: usize,
}

/// Where the options go that are being read.
enum Current {
    /// No header was read yet.
    Outside,
    /// The last header could not be read, which was reported once for all that it heads.
    Unknown,
    /// A section.
    Named,
}

/// Reads a source step by step, in the order of the source.
pub(crate) struct Steps<'a> {
    lines: Lines<'a>,
    /// The source, where all of it is UTF-8, so that no line of it needs to be checked again.
    text: Option<&'a str>,
    is_ascii: bool,
    current: Current,
    /// What was found in the lines that were read and is not yet told.
    told_next: VecDeque<Step<'a>>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        Self {
            lines: Lines::new(source, byte_order_mark_len(source)),
            text: str::from_utf8(source).ok(),
            is_ascii: source.is_ascii(),
            current: Current::Outside,
            told_next: VecDeque::new(),
        }
    }

    /// The source, where all of it is UTF-8.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.text
    }

    fn read(&mut self, logical: Logical<'a>) -> Option<Step<'a>> {
        if logical.is_single() && !logical.is_too_long() && trim_end(logical.first.text).is_empty()
        {
            return None;
        }
        let step = match self.step(&logical) {
            Ok(Read::Nothing) => None,
            Ok(Read::Section(name, span)) => Some(Step::Section(name, span)),
            Ok(Read::Assignment(text, places)) => Some(Step::Assignment(Assignment {
                name: places.name,
                value: places.value,
                after_equals: places.after_equals,
                text,
                logical,
            })),
            Err(wrong) => Some(Step::Flaw(self.refused(&logical, &wrong))),
        };
        if self.told_next.is_empty() {
            return step;
        }
        self.told_next.extend(step);
        self.told_next.pop_front()
    }

    fn step(&mut self, logical: &Logical<'a>) -> Result<Read<'a>, Wrong> {
        let len = logical.len();
        if logical.is_too_long() {
            return Err(Wrong { kind: DiagnosticKind::LineTooLong, start: 0, end: len });
        }
        self.warn(logical);
        let text = match logical.joined() {
            Cow::Borrowed(bytes) => {
                let start = logical.first.start;
                let text = self.text.map(|text| &text[start..start + len]);
                Cow::Borrowed(text.map_or_else(|| as_text(bytes), Ok)?)
            }
            Cow::Owned(bytes) => Cow::Owned(as_text(&bytes)?.to_owned()),
        };
        self.read_text(logical, text)
    }

    fn read_text(&mut self, logical: &Logical<'a>, text: Cow<'a, str>) -> Result<Read<'a>, Wrong> {
        let end = trim_end(text.as_bytes()).len();
        let start = end - trim_start(&text.as_bytes()[..end]).len();
        let wrong = |kind| Wrong { kind, start, end };
        if !self.is_ascii && !is_clean(&text[..end]) {
            return Err(wrong(DiagnosticKind::InvalidUtf8));
        }
        if start == end {
            Ok(Read::Nothing)
        } else if text.as_bytes()[start] == b'[' {
            self.header(&text, start..end)
                .map(|name| Read::Section(name, logical.span(start, end)))
                .map_err(wrong)
        } else {
            match self.places(&text, start..end).map_err(wrong)? {
                Some(places) => Ok(Read::Assignment(text, places)),
                None => Ok(Read::Nothing),
            }
        }
    }

    fn header(
        &mut self,
        text: &Cow<'a, str>,
        range: Range<usize>,
    ) -> Result<Cow<'a, str>, DiagnosticKind> {
        self.current = Current::Unknown;
        let inner = range.start + 1..range.end - 1;
        if !text[range].ends_with(']') {
            return Err(DiagnosticKind::UnclosedHeader);
        }
        let name = match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[inner]),
            Cow::Owned(text) => Cow::Owned(text[inner].to_owned()),
        };
        if let Some(kind) = section_flaw(&name) {
            return Err(kind);
        }
        self.current = Current::Named;
        Ok(name)
    }

    /// Where the parts of an option are; `None` for one that belongs to no section.
    fn places(&self, text: &str, range: Range<usize>) -> Result<Option<Places>, DiagnosticKind> {
        match self.current {
            Current::Outside => return Err(DiagnosticKind::OutsideSection),
            Current::Unknown => return Ok(None),
            Current::Named => {}
        }
        let bytes = &text.as_bytes()[range.clone()];
        let equals = bytes.iter().position(|&byte| byte == b'=');
        let equals = equals.ok_or(DiagnosticKind::MissingEquals)?;
        let name = trim_end(&bytes[..equals]);
        if name.is_empty() {
            return Err(DiagnosticKind::EmptyName);
        }
        let value = trim_start(&bytes[equals + 1..]);
        Ok(Some(Places {
            name: range.start..range.start + name.len(),
            value: range.end - value.len()..range.end,
            after_equals: range.start + equals + 1,
        }))
    }

    fn refused(&mut self, logical: &Logical<'a>, wrong: &Wrong) -> Flaw<'a> {
        // What follows a header that cannot be read must not join the section before it.
        if logical.starts_like_header() {
            self.current = Current::Unknown;
        }
        let (index, at) = logical.locate(wrong.start);
        Flaw {
            kind: wrong.kind,
            span: logical.span(wrong.start, wrong.end),
            line: *logical.line(index),
            at,
        }
    }

    /// Reports what is suspicious about a logical line, whatever it means.
    fn warn(&mut self, logical: &Logical<'a>) {
        let last = *logical.last();
        let text = trim_end(last.text);
        if text.len() < last.text.len() && ends_in_open_backslash(text) {
            let range = text.len() - 1..last.text.len();
            self.suspect(DiagnosticKind::BlankAfterBackslash, last, range);
        }
        if logical.unfinished {
            let range = last.text.len() - 1..last.text.len();
            self.suspect(DiagnosticKind::UnfinishedContinuation, last, range);
        }
        for line in logical.rest() {
            let text = trim_start(line.text);
            let blanks = line.text.len() - text.len();
            let text = trim_end(text);
            if text.first() == Some(&b'[') && text.last() == Some(&b']') {
                let range = blanks..blanks + text.len();
                self.suspect(DiagnosticKind::SwallowedHeader, *line, range);
            }
        }
    }

    fn suspect(&mut self, kind: DiagnosticKind, line: Line<'a>, range: Range<usize>) {
        debug_assert!(kind.severity() == Severity::Warning);
        let span = Span { start: line.start + range.start, end: line.start + range.end };
        let at = range.start;
        self.told_next.push_back(Step::Flaw(Flaw { kind, span, line, at }));
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            if let Some(step) = self.told_next.pop_front() {
                return Some(step);
            }
            let first = self.lines.next()?;
            if first.text.is_empty() {
                continue;
            }
            if first.is_comment() {
                return Some(Step::Comment(first));
            }
            let logical = Logical::starting_with(first, &mut self.lines);
            if let Some(step) = self.read(logical) {
                return Some(step);
            }
        }
    }
}

/// What a logical line says.
enum Read<'a> {
    Nothing,
    Section(Cow<'a, str>, Span),
    Assignment(Cow<'a, str>, Places),
}

struct Places {
    name: Range<usize>,
    value: Range<usize>,
    after_equals: usize,
}

fn as_text(bytes: &[u8]) -> Result<&str, Wrong> {
    str::from_utf8(bytes).map_err(|error| {
        let start = error.valid_up_to();
        let len = error.error_len().unwrap_or(bytes.len() - start);
        Wrong { kind: DiagnosticKind::InvalidUtf8, start, end: start + len }
    })
}
