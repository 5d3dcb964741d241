//! Parsing of a source into an index, and lines and columns of offsets. Names and values are not
//! stored, but parsed from the source on each access.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::file::index::{Entry, Index};
use crate::file::options::{Options, SectionInstance, is_repeated};
use crate::syntax::assignment::{Assignment, ContinuedAssignment, LogicalLine, Plain};
use crate::syntax::diagnostic::{Diagnostic, Location, Severity, Span};
use crate::syntax::grammar::{Issue, SyntaxItem, SyntaxItems, column};
use crate::syntax::lines::{Line, Lines, MarkedSource, line_length, trim_end};

/// A source, byte for byte, and the index of its options and headers.
///
/// Only the offset of each option is stored, and each access parses the option again. A file may
/// have a million options of four bytes each, which would take many times the size of the file in
/// parsed form. Parsing an option again takes no longer than parsing it the first time.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) source: Source,
    /// Offset of the byte order mark.
    pub(crate) mark: Option<usize>,
    pub(crate) options: Index,
    pub(crate) headers: Index,
}

/// A source, byte for byte.
#[derive(Debug)]
pub(crate) enum Source {
    /// All of it is valid UTF-8.
    Text(Box<str>),
    /// A comment, or an invalid line, is not UTF-8.
    Bytes(Box<[u8]>),
}

impl Source {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }

    /// Returns the line that begins at `start`, which must be the offset of an option or a header.
    /// The parser accepts these only in valid UTF-8. For a line with invalid UTF-8, this function
    /// panics.
    #[inline]
    fn line(&self, start: usize) -> &str {
        const READ: &str = "only lines that are text have options and headers";
        let end = start + line_length(&self.as_bytes()[start..]);
        match self {
            Self::Text(text) => &text[start..end],
            Self::Bytes(bytes) => str::from_utf8(&bytes[start..end]).expect(READ),
        }
    }
}

impl Text {
    /// Parses an option again.
    #[inline]
    pub(crate) fn assignment<'a>(&'a self, entry: &Entry<'a>) -> Plain<'a> {
        const READ: &str = "what was read as an option reads as one again";
        let text = entry.joined.unwrap_or_else(|| self.source.line(entry.start));
        Plain::read(text, entry.start).expect(READ)
    }

    /// Returns the source with the place of its byte order mark.
    pub(crate) fn marked(&self) -> MarkedSource<'_> {
        MarkedSource { bytes: self.source.as_bytes(), mark: self.mark }
    }

    /// Parses a joined option again, with its offsets in the source.
    pub(crate) fn joined(&self, start: usize) -> ContinuedAssignment<'_> {
        const READ: &str = "what was read as an option reads as one again";
        let logical = LogicalLine::at(self.marked(), start).expect(READ);
        let text = String::from_utf8(logical.joined()).expect(READ);
        ContinuedAssignment::read(logical, text, 0).expect(READ)
    }

    /// Returns `false` only if an option certainly does not have this name. This quick test avoids
    /// parsing most options with other names.
    pub(crate) fn may_be_named(&self, entry: &Entry<'_>, name: &str) -> bool {
        let rest = || &self.source.as_bytes()[entry.start..];
        entry.joined.map_or_else(rest, str::as_bytes).starts_with(name.as_bytes())
    }

    /// Returns the name of the section that contains an offset of the source.
    #[inline]
    pub(crate) fn section_at(&self, offset: usize) -> &str {
        self.headers.last_before(offset).map_or("", |header| self.section(&header))
    }

    /// Returns the names of the sections, in order of their first headers.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &str> {
        let mut seen = BTreeSet::new();
        let mut last = "";
        self.section_names().filter(move |name| {
            let is_repeated = std::mem::replace(&mut last, name) == *name;
            !is_repeated && seen.insert(*name)
        })
    }

    /// Returns the name in each header.
    pub(crate) fn section_names(&self) -> impl Iterator<Item = &str> {
        let headers = (0..self.headers.len()).filter_map(|index| self.headers.get(index));
        headers.map(|header| self.section(&header))
    }

    /// Returns the name and span of each header. If a header continues over several lines, the span
    /// covers only the first line.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, Span)> {
        let headers = (0..self.headers.len()).filter_map(|index| self.headers.get(index));
        headers.map(|header| {
            let line = self.source.line(header.start);
            let end = header.start + trim_end(line.as_bytes()).len();
            (self.section(&header), Span { start: header.start, end })
        })
    }

    /// Returns each header with the options below it.
    pub(crate) fn instances(&self) -> impl Iterator<Item = SectionInstance<'_>> {
        self.headers().map(|(name, span)| {
            let next = self.headers.get(self.headers.count_before(span.end));
            let end = next.map_or(self.options.len(), |next| self.options.count_before(next.start));
            let options = Options::range(self, self.options.count_before(span.end)..end);
            SectionInstance::new(name, span, options)
        })
    }

    /// Returns a number for the header above an offset, if each header of its section begins a
    /// thing of its own; 0 for other sections.
    pub(crate) fn instance_at(&self, offset: usize) -> usize {
        if is_repeated(self.section_at(offset)) { self.headers.count_before(offset) } else { 0 }
    }

    #[inline]
    fn section<'a>(&'a self, header: &Entry<'a>) -> &'a str {
        header.joined.unwrap_or_else(|| {
            let line = self.source.line(header.start);
            &line[1..trim_end(line.as_bytes()).len() - 1]
        })
    }
}

/// A cursor that resolves offsets to lines in one pass over the source. The offsets must therefore
/// be passed in ascending order.
pub(crate) struct Locator<'a> {
    line: Option<Line<'a>>,
    after: Lines<'a>,
}

impl<'a> Locator<'a> {
    pub(crate) fn new(source: MarkedSource<'a>) -> Self {
        let mut after = source.lines(0);
        Self { line: after.next(), after }
    }

    /// Returns the line that contains an offset. An offset past the end belongs to the last line.
    /// Returns `None` if the source contains no lines.
    pub(crate) fn line(&mut self, offset: usize) -> Option<Line<'a>> {
        loop {
            // `Lines` is a cursor, so a clone looks ahead.
            let mut after = self.after.clone();
            match after.next().filter(|next| next.start <= offset) {
                Some(next) => (self.line, self.after) = (Some(next), after),
                None => return self.line,
            }
        }
    }

    /// Returns the line and column of an offset. For a byte of a line end, the column is the one
    /// after the last character of the line.
    pub(crate) fn location(&mut self, offset: usize) -> Location {
        let Some(line) = self.line(offset) else {
            return Location { line: 1, column: 1 };
        };
        let at = offset.saturating_sub(line.start).min(line.text.len());
        Location { line: line.number, column: column(line.text, at) }
    }
}

/// Maximum number of diagnostics that are kept. Beyond this maximum, only the first error is added,
/// and only if all kept diagnostics are warnings.
const MAX_DIAGNOSTICS: usize = 1000;

/// The result of parsing a source.
pub(crate) struct ParsedSource {
    pub(crate) text: Text,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Parses a source. If `strict` is true, parsing stops at the first error, and this error is the
/// last diagnostic.
pub(crate) fn parse(source: &[u8], strict: bool) -> ParsedSource {
    let mut items = SyntaxItems::new(source);
    let mut collector = Collector::default();
    for item in &mut items {
        match item {
            SyntaxItem::Comment(_) => {}
            SyntaxItem::Section(Cow::Borrowed(_), span) => collector.headers.push(span.start, None),
            SyntaxItem::Section(Cow::Owned(name), span) => {
                collector.headers.push(span.start, Some(&[&name]));
            }
            SyntaxItem::Assignment(assignment) => collector.option(&assignment),
            SyntaxItem::Issue(issue) => {
                collector.report(&issue);
                if strict && issue.kind.severity() == Severity::Error {
                    break;
                }
            }
        }
    }
    let Collector { mut options, mut headers, diagnostics, .. } = collector;
    options.close();
    headers.close();
    // Copies the source only after all joined lines are freed: the copy may be most of the memory.
    let source = match items.text() {
        Some(text) => Source::Text(text.into()),
        None => Source::Bytes(source.into()),
    };
    let text = Text { source, mark: items.mark(), options, headers };
    ParsedSource { text, diagnostics }
}

#[derive(Default)]
struct Collector {
    options: Index,
    headers: Index,
    diagnostics: Vec<Diagnostic>,
    has_error: bool,
}

impl Collector {
    fn option(&mut self, assignment: &Assignment<'_>) {
        match assignment {
            Assignment::Plain(plain) => self.options.push(plain.span().start, None),
            Assignment::ContinuedAssignment(joined) => {
                let pieces = [joined.name(), "=", joined.value()];
                self.options.push(joined.span().start, Some(&pieces));
            }
        }
    }

    fn report(&mut self, issue: &Issue<'_>) {
        let is_error = issue.kind.severity() == Severity::Error;
        let is_first_error = is_error && !self.has_error;
        if self.diagnostics.len() < MAX_DIAGNOSTICS || is_first_error {
            self.has_error |= is_error;
            self.diagnostics.push(issue.diagnostic());
        }
    }
}
