//! A source with the offsets of its options and headers. Names and values are not stored, but
//! parsed from the source on each access.

use std::collections::BTreeSet;

use crate::assignment::{ContinuedAssignment, Plain};
use crate::continuation::LogicalLine;
use crate::diagnostic::Span;
use crate::index::{Entry, Index};
use crate::lines::{MarkedSource, line_length, trim_end};
use crate::options::Options;
use crate::section::{SectionInstance, is_repeated};

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
