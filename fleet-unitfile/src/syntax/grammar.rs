//! The grammar: an iterator that turns lines into sections, options and issues.

use std::borrow::Cow;
use std::ops::Range;
use std::str::Utf8Error;

use crate::syntax::assignment::{
    Assignment, ContinuationLines, ContinuedAssignment, LogicalLine, Plain,
};
use crate::syntax::diagnostic::{Diagnostic, DiagnosticKind, Location, Severity, Span};
use crate::syntax::lines::{
    Line, Lines, MAX_LINE, MarkedSource, ends_in_open_backslash, trim_end, trim_start,
};

/// Characters trimmed from both ends of a line, a name and a value.
pub(crate) const BLANKS: [char; 2] = [' ', '\t'];

/// One syntactic element of a source.
pub(crate) enum SyntaxItem<'a> {
    /// A comment line, except one between the lines of another element.
    Comment(Line<'a>),
    /// A section header.
    Section(Cow<'a, str>, Span),
    /// An assignment in the most recent section.
    Assignment(Assignment<'a>),
    /// An invalid or suspicious line.
    Issue(Issue<'a>),
}

/// An error or warning, and the physical line that it is in.
pub(crate) struct Issue<'a> {
    pub(crate) kind: DiagnosticKind,
    span: Span,
    line: Line<'a>,
    at: usize,
}

impl<'a> Issue<'a> {
    fn warning(kind: DiagnosticKind, line: Line<'a>, range: Range<usize>) -> Self {
        debug_assert!(kind.severity() == Severity::Warning);
        let span = Span { start: line.start + range.start, end: line.start + range.end };
        Self { kind, span, line, at: range.start }
    }

    /// Converts the issue to a [`Diagnostic`].
    pub(crate) fn diagnostic(&self) -> Diagnostic {
        let location = Location { line: self.line.number, column: column(self.line.text, self.at) };
        Diagnostic::new(self.kind, self.span, location, (self.line.start, self.line.text))
    }
}

/// Checks a section name.
pub(crate) fn section_name_error(name: &str) -> Option<DiagnosticKind> {
    let is_unsafe = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\'' | b'\\' | b']' | 0x7f);
    if name.is_empty() {
        Some(DiagnosticKind::EmptySection)
    } else if name.bytes().any(is_unsafe) {
        Some(DiagnosticKind::SectionCharacter)
    } else {
        None
    }
}

/// Returns `true` if `text` contains no Unicode noncharacters (such as U+FFFE). systemd treats
/// noncharacters as invalid UTF-8.
pub(crate) fn has_no_noncharacters(text: &str) -> bool {
    let reserved =
        |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    text.is_ascii() || !text.chars().any(reserved)
}

/// Returns the column of the byte at offset `at` of a line.
pub(crate) fn column(line: &[u8], at: usize) -> usize {
    // Skips UTF-8 continuation bytes.
    1 + line[..at].iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// An error in a logical line, with offsets in the joined line.
struct LineError {
    kind: DiagnosticKind,
    start: usize,
    end: usize,
}

/// The section to which the next options belong.
enum SectionState {
    /// No header was read yet.
    Outside,
    /// The last header is invalid. The options below it are skipped without further diagnostics,
    /// because the header was already reported.
    Unknown,
    /// A valid section.
    Named,
}

/// Iterates over the syntactic elements of a source, in source order.
pub(crate) struct SyntaxItems<'a> {
    lines: Lines<'a>,
    mark: Option<usize>,
    /// The whole source, if it is valid UTF-8. The single lines then need no UTF-8 check.
    text: Option<&'a str>,
    is_ascii: bool,
    section: SectionState,
    /// Items found in lines that were read already, still to be returned.
    pending: Option<Box<PendingItems<'a>>>,
}

impl<'a> SyntaxItems<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        let is_ascii = source.is_ascii();
        let marked = match is_ascii {
            true => MarkedSource { bytes: source, mark: None },
            false => MarkedSource::new(source),
        };
        Self {
            lines: marked.lines(0),
            mark: marked.mark,
            text: str::from_utf8(source).ok(),
            is_ascii,
            section: SectionState::Outside,
            pending: None,
        }
    }

    /// Returns the source if all of it is valid UTF-8.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.text
    }

    /// Returns the offset of the byte order mark.
    pub(crate) fn mark(&self) -> Option<usize> {
        self.mark
    }

    /// Reads a line that may continue or be suspicious.
    fn read(&mut self, first: Line<'a>) -> Option<SyntaxItem<'a>> {
        let logical = LogicalLine::starting_with(first, &mut self.lines);
        if logical.is_too_long() {
            let error =
                LineError { kind: DiagnosticKind::LineTooLong, start: 0, end: logical.len() };
            return Some(self.error_item(&logical, &error));
        }
        let mut pending = PendingItems::of(&logical);
        let warning = pending.next_warning();
        let item = match logical.is_single() {
            true => self.read_single(first),
            false => self.read_joined(logical),
        };
        let Some(warning) = warning else {
            return item;
        };
        pending.item = item;
        self.pending = Some(Box::new(pending));
        Some(SyntaxItem::Issue(warning))
    }

    #[inline]
    fn read_single(&mut self, line: Line<'a>) -> Option<SyntaxItem<'a>> {
        self.parse_single(line)
            .unwrap_or_else(|error| Some(self.error_item(&LogicalLine::single(line), &error)))
    }

    fn read_joined(&mut self, logical: LogicalLine<'a>) -> Option<SyntaxItem<'a>> {
        let text = match String::from_utf8(logical.joined()) {
            Ok(text) => text,
            Err(error) => {
                let error = utf8_error(error.as_bytes(), &error.utf8_error());
                return Some(self.error_item(&logical, &error));
            }
        };
        let (start, end) = trimmed(&text);
        let read = match self.line_kind(&text[..end], start) {
            Ok(LineKind::Empty) => return None,
            Ok(LineKind::Header(name)) => {
                let span = logical.span(start, end);
                return Some(SyntaxItem::Section(Cow::Owned(text[name].to_owned()), span));
            }
            Ok(LineKind::Assignment) => ContinuedAssignment::read(logical.clone(), text, start),
            Err(kind) => Err(kind),
        };
        Some(match read {
            Ok(joined) => SyntaxItem::Assignment(Assignment::ContinuedAssignment(Box::new(joined))),
            Err(kind) => self.error_item(&logical, &LineError { kind, start, end }),
        })
    }

    #[inline]
    fn parse_single(&mut self, line: Line<'a>) -> Result<Option<SyntaxItem<'a>>, LineError> {
        let text = match self.text {
            Some(text) => &text[line.start..line.start + line.text.len()],
            None => str::from_utf8(line.text).map_err(|error| utf8_error(line.text, &error))?,
        };
        let (start, end) = trimmed(text);
        let error = |kind| LineError { kind, start, end };
        let place = line.start + start;
        Ok(match self.line_kind(&text[..end], start).map_err(error)? {
            LineKind::Empty => None,
            LineKind::Header(name) => {
                let span = Span { start: place, end: line.start + end };
                Some(SyntaxItem::Section(Cow::Borrowed(&text[name]), span))
            }
            LineKind::Assignment => {
                let plain = Plain::read(&text[start..], place).map_err(error)?;
                Some(SyntaxItem::Assignment(Assignment::Plain(plain)))
            }
        })
    }

    /// Classifies a line with its first non-blank byte at `start`.
    #[inline]
    fn line_kind(&mut self, text: &str, start: usize) -> Result<LineKind, DiagnosticKind> {
        if !self.is_ascii && !has_no_noncharacters(text) {
            return Err(DiagnosticKind::InvalidUtf8);
        }
        match text.as_bytes().get(start) {
            None => Ok(LineKind::Empty),
            Some(b'[') => self.header(text, start).map(LineKind::Header),
            // Only a byte order mark keeps such a line from being a comment.
            Some(b'#' | b';') => Err(DiagnosticKind::MarkedComment),
            Some(_) => match self.section {
                SectionState::Outside => Err(DiagnosticKind::OutsideSection),
                SectionState::Unknown => Ok(LineKind::Empty),
                SectionState::Named => Ok(LineKind::Assignment),
            },
        }
    }

    fn header(&mut self, text: &str, start: usize) -> Result<Range<usize>, DiagnosticKind> {
        self.section = SectionState::Unknown;
        if !text.ends_with(']') {
            return Err(DiagnosticKind::UnclosedHeader);
        }
        let name = start + 1..text.len() - 1;
        if let Some(kind) = section_name_error(&text[name.clone()]) {
            return Err(kind);
        }
        self.section = SectionState::Named;
        Ok(name)
    }

    fn error_item(&mut self, logical: &LogicalLine<'a>, error: &LineError) -> SyntaxItem<'a> {
        // Options below an invalid header must not join the section before it.
        if logical.starts_like_header() {
            self.section = SectionState::Unknown;
        }
        let (line, at) = logical.locate(error.start);
        let span = logical.span(error.start, error.end);
        SyntaxItem::Issue(Issue { kind: error.kind, span, line, at })
    }
}

impl<'a> Iterator for SyntaxItems<'a> {
    type Item = SyntaxItem<'a>;

    #[inline]
    fn next(&mut self) -> Option<SyntaxItem<'a>> {
        loop {
            if let Some(pending) = &mut self.pending {
                if let Some(issue) = pending.next_warning() {
                    return Some(SyntaxItem::Issue(issue));
                }
                let item = self.pending.take().and_then(|pending| pending.item);
                if item.is_some() {
                    return item;
                }
            }
            let line = self.lines.next()?;
            if line.is_comment() {
                return Some(SyntaxItem::Comment(line));
            }
            let item = match line.text.last() {
                None => continue,
                Some(b' ' | b'\t' | b'\\') => self.read(line),
                Some(_) if line.text.len() >= MAX_LINE => self.read(line),
                Some(_) => self.read_single(line),
            };
            if item.is_some() {
                return item;
            }
        }
    }
}

/// The kind of a logical line; ranges are offsets in its text.
enum LineKind {
    Empty,
    Header(Range<usize>),
    Assignment,
}

/// The items of a logical line that are still to be returned: first its warnings, and then its
/// content.
struct PendingItems<'a> {
    last_line_issues: [Option<Issue<'a>>; 2],
    rest: ContinuationLines<'a>,
    item: Option<SyntaxItem<'a>>,
}

impl<'a> PendingItems<'a> {
    fn of(logical: &LogicalLine<'a>) -> Self {
        let last = *logical.last();
        let text = trim_end(last.text);
        let is_hidden = text.len() < last.text.len() && ends_in_open_backslash(text);
        let hidden = is_hidden.then(|| {
            let range = text.len() - 1..last.text.len();
            Issue::warning(DiagnosticKind::BlankAfterBackslash, last, range)
        });
        let unfinished = logical.unfinished.then(|| {
            let range = last.text.len() - 1..last.text.len();
            Issue::warning(DiagnosticKind::UnfinishedContinuation, last, range)
        });
        Self { last_line_issues: [hidden, unfinished], rest: logical.rest(), item: None }
    }

    fn next_warning(&mut self) -> Option<Issue<'a>> {
        let last_line_issues = self.last_line_issues.iter_mut().find_map(Option::take);
        last_line_issues.or_else(|| self.rest.find_map(swallowed_header))
    }
}

fn swallowed_header(line: Line<'_>) -> Option<Issue<'_>> {
    let text = trim_start(line.text);
    let blanks = line.text.len() - text.len();
    let text = trim_end(text);
    let is_header = text.first() == Some(&b'[') && text.last() == Some(&b']');
    let range = blanks..blanks + text.len();
    is_header.then(|| Issue::warning(DiagnosticKind::SwallowedHeader, line, range))
}

/// Returns the start and end offsets of a line without the blanks around it. For a blank line, both
/// offsets are 0.
#[inline]
fn trimmed(text: &str) -> (usize, usize) {
    let end = trim_end(text.as_bytes()).len();
    (end - trim_start(&text.as_bytes()[..end]).len(), end)
}

fn utf8_error(bytes: &[u8], error: &Utf8Error) -> LineError {
    let start = error.valid_up_to();
    let len = error.error_len().unwrap_or(bytes.len() - start);
    LineError { kind: DiagnosticKind::InvalidUtf8, start, end: start + len }
}
