//! The grammar: from lines to sections, options and diagnostics.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, DiagnosticKind, Location, Severity, Span};
use crate::join::{Logical, trimmed_end};
use crate::lines::{Line, Lines, MAX_LINE, ends_in_open_backslash, trim_end, trim_start};
use crate::option::UnitOption;

/// How many diagnostics are kept. Past that, reading goes on and only a first error is added.
const MAX_DIAGNOSTICS: usize = 1000;

/// What is trimmed from both ends of a line, a name and a value.
pub(crate) const BLANKS: [char; 2] = [' ', '\t'];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What was read from a source.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Section names in the order of their first headers.
    pub(crate) sections: Vec<Arc<str>>,
    pub(crate) options: Vec<UnitOption>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Reads a source; where `strict`, only up to the first error, which is then the last diagnostic.
pub(crate) fn parse(source: &[u8], strict: bool) -> Parsed {
    let mut lines = Lines::new(source, byte_order_mark_len(source));
    let mut parser = Parser::new(str::from_utf8(source).ok());
    while let Some(logical) = Logical::next(&mut lines) {
        if let Err(flaw) = parser.read(&logical) {
            parser.refuse(&logical, flaw);
            if strict {
                break;
            }
        }
    }
    parser.parsed
}

/// How long the byte order mark is that a source starts with, which is no part of its text.
pub(crate) fn byte_order_mark_len(source: &[u8]) -> usize {
    if source.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    }
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

/// What is wrong with a logical line, and where: offsets in the joined line.
struct Flaw {
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
    Named(Arc<str>),
}

struct Parser<'a> {
    /// The source, where all of it is UTF-8, so that no line of it needs to be checked again.
    text: Option<&'a str>,
    current: Current,
    names: BTreeSet<Arc<str>>,
    has_error: bool,
    parsed: Parsed,
}

impl<'a> Parser<'a> {
    fn new(text: Option<&'a str>) -> Self {
        Self {
            text,
            current: Current::Outside,
            names: BTreeSet::new(),
            has_error: false,
            parsed: Parsed::default(),
        }
    }

    fn read(&mut self, logical: &Logical<'a>) -> Result<(), Flaw> {
        let len = logical.len();
        if len >= MAX_LINE {
            return Err(Flaw {
                kind: DiagnosticKind::LineTooLong,
                start: 0,
                end: len,
            });
        }
        self.warn(logical);
        match logical.joined() {
            Cow::Borrowed(bytes) => {
                let start = logical.first.start;
                let text = self.text.map(|text| &text[start..start + len]);
                self.read_text(logical, text.map_or_else(|| as_text(bytes), Ok)?)
            }
            Cow::Owned(bytes) => self.read_text(logical, as_text(&bytes)?),
        }
    }

    fn read_text(&mut self, logical: &Logical<'a>, text: &str) -> Result<(), Flaw> {
        let whole = text.trim_end_matches(BLANKS);
        let start = whole.len() - whole.trim_start_matches(BLANKS).len();
        let flaw = |kind| Flaw {
            kind,
            start,
            end: whole.len(),
        };
        if !is_clean(whole) {
            return Err(flaw(DiagnosticKind::InvalidUtf8));
        }
        let whole = &whole[start..];
        if whole.is_empty() {
            Ok(())
        } else if whole.starts_with('[') {
            self.header(whole).map_err(flaw)
        } else {
            self.option(logical, text, whole, start).map_err(flaw)
        }
    }

    fn header(&mut self, text: &str) -> Result<(), DiagnosticKind> {
        self.current = Current::Unknown;
        let name = text[1..]
            .strip_suffix(']')
            .ok_or(DiagnosticKind::UnclosedHeader)?;
        if let Some(kind) = section_flaw(name) {
            return Err(kind);
        }
        self.current = Current::Named(self.intern(name));
        Ok(())
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        self.parsed.sections.push(name.clone());
        name
    }

    /// Reads the option `whole`, which begins at offset `start` of the joined line `text`.
    fn option(
        &mut self,
        logical: &Logical<'a>,
        text: &str,
        whole: &str,
        start: usize,
    ) -> Result<(), DiagnosticKind> {
        let section = match &self.current {
            Current::Outside => return Err(DiagnosticKind::OutsideSection),
            Current::Unknown => return Ok(()),
            Current::Named(section) => section.clone(),
        };
        let (name, value) = whole.split_once('=').ok_or(DiagnosticKind::MissingEquals)?;
        let after_equals = start + name.len() + 1;
        let (name, value) = (
            name.trim_end_matches(BLANKS),
            value.trim_start_matches(BLANKS),
        );
        if name.is_empty() {
            return Err(DiagnosticKind::EmptyName);
        }
        let end = start + whole.len();
        let verbatim = verbatim(logical, text, after_equals, end);
        let option = UnitOption::from_parts(section, name, value, verbatim.as_deref());
        let span = logical.span(start, end);
        let value_span = match value.len() {
            0 => Span {
                start: span.end,
                end: span.end,
            },
            len => logical.span(end - len, end),
        };
        self.parsed.options.push(option.at(span, value_span));
        Ok(())
    }

    fn refuse(&mut self, logical: &Logical<'a>, flaw: Flaw) {
        // What follows a header that cannot be read must not join the section before it.
        if trim_start(&logical.joined()).starts_with(b"[") {
            self.current = Current::Unknown;
        }
        let span = logical.span(flaw.start, flaw.end);
        let (line, column) = logical.locate(flaw.start);
        self.report(flaw.kind, span, logical.line(line), column);
    }

    /// Reports what is suspicious about a logical line, whatever it means.
    fn warn(&mut self, logical: &Logical<'a>) {
        let last = *logical.last();
        let text = trim_end(last.text);
        if text.len() < last.text.len() && ends_in_open_backslash(text) {
            let span = Span {
                start: last.start + text.len() - 1,
                end: last.start + last.text.len(),
            };
            self.report(
                DiagnosticKind::BlankAfterBackslash,
                span,
                &last,
                text.len() - 1,
            );
        }
        if logical.unfinished {
            let end = last.start + last.text.len();
            let span = Span {
                start: end - 1,
                end,
            };
            self.report(
                DiagnosticKind::UnfinishedContinuation,
                span,
                &last,
                last.text.len() - 1,
            );
        }
        for line in &logical.rest {
            let text = trim_start(line.text);
            let blanks = line.text.len() - text.len();
            let text = trim_end(text);
            if text.first() == Some(&b'[') && text.last() == Some(&b']') {
                let start = line.start + blanks;
                let span = Span {
                    start,
                    end: start + text.len(),
                };
                self.report(DiagnosticKind::SwallowedHeader, span, line, blanks);
            }
        }
    }

    /// Keeps a diagnostic about the given line, from offset `at` of it on.
    fn report(&mut self, kind: DiagnosticKind, span: Span, line: &Line<'a>, at: usize) {
        let first_error = kind.severity() == Severity::Error && !self.has_error;
        if self.parsed.diagnostics.len() >= MAX_DIAGNOSTICS && !first_error {
            return;
        }
        self.has_error |= first_error;
        let location = Location {
            line: line.number,
            column: column(line.text, at),
        };
        let text = trim_end(trim_start(line.text));
        self.parsed
            .diagnostics
            .push(Diagnostic::new(kind, span, location, text));
    }
}

/// The column of the byte at offset `at` of a line.
pub(crate) fn column(line: &[u8], at: usize) -> usize {
    // Bytes of this form go on with a character that began before.
    1 + line[..at]
        .iter()
        .filter(|&&byte| byte & 0xc0 != 0x80)
        .count()
}

fn as_text(bytes: &[u8]) -> Result<&str, Flaw> {
    str::from_utf8(bytes).map_err(|error| {
        let start = error.valid_up_to();
        let len = error.error_len().unwrap_or(bytes.len() - start);
        Flaw {
            kind: DiagnosticKind::InvalidUtf8,
            start,
            end: start + len,
        }
    })
}

/// The value as it is written, where that differs from how it reads.
///
/// It begins at offset `start` of the joined line `text`; the last character of it ends at `end`.
fn verbatim<'t>(
    logical: &Logical<'_>,
    text: &'t str,
    start: usize,
    end: usize,
) -> Option<Cow<'t, str>> {
    if logical.rest.is_empty() && !logical.unfinished {
        let written = &text[start..trimmed_end(text.as_bytes())];
        let differs = written.len() > end - start;
        return differs.then(|| Cow::Borrowed(written.trim_start_matches(BLANKS)));
    }
    let written = String::from_utf8(logical.verbatim(start));
    Some(Cow::Owned(
        written.expect("lines that make up a text when joined are text"),
    ))
}
