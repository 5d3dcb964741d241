//! The grammar: from lines to sections, options and what is wrong, one step at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::str::Utf8Error;

use crate::assignment::{Assignment, Joined, Plain};
use crate::diagnostic::{Diagnostic, DiagnosticKind, Location, Severity, Span};
use crate::join::{Logical, Rest};
use crate::lines::{Line, Lines, MAX_LINE, ends_in_open_backslash, trim_end, trim_start};

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

/// What is wrong, and in which physical line.
pub(crate) struct Flaw<'a> {
    pub(crate) kind: DiagnosticKind,
    span: Span,
    line: Line<'a>,
    at: usize,
}

impl<'a> Flaw<'a> {
    fn suspicion(kind: DiagnosticKind, line: Line<'a>, range: Range<usize>) -> Self {
        debug_assert!(kind.severity() == Severity::Warning);
        let span = Span { start: line.start + range.start, end: line.start + range.end };
        Self { kind, span, line, at: range.start }
    }

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
    untold: Option<Box<Untold<'a>>>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        Self {
            lines: Lines::new(source, byte_order_mark_len(source)),
            text: str::from_utf8(source).ok(),
            is_ascii: source.is_ascii(),
            current: Current::Outside,
            untold: None,
        }
    }

    /// The source, where all of it is UTF-8.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.text
    }

    /// Reads a line that may go on in further ones, or be suspicious.
    fn read(&mut self, first: Line<'a>) -> Option<Step<'a>> {
        let logical = Logical::starting_with(first, &mut self.lines);
        if logical.is_too_long() {
            let wrong = Wrong { kind: DiagnosticKind::LineTooLong, start: 0, end: logical.len() };
            return Some(self.refused(&logical, &wrong));
        }
        let mut untold = Untold::about(&logical);
        let warning = untold.warning();
        let step = match logical.is_single() {
            true => self.read_single(first),
            false => self.read_joined(logical),
        };
        let Some(warning) = warning else {
            return step;
        };
        untold.step = step;
        self.untold = Some(Box::new(untold));
        Some(Step::Flaw(warning))
    }

    #[inline]
    fn read_single(&mut self, line: Line<'a>) -> Option<Step<'a>> {
        self.single(line).unwrap_or_else(|wrong| Some(self.refused(&Logical::single(line), &wrong)))
    }

    fn read_joined(&mut self, logical: Logical<'a>) -> Option<Step<'a>> {
        let text = match String::from_utf8(logical.joined()) {
            Ok(text) => text,
            Err(error) => {
                let wrong = broken(error.as_bytes(), &error.utf8_error());
                return Some(self.refused(&logical, &wrong));
            }
        };
        let (start, end) = trimmed(&text);
        let read = match self.said(&text[..end], start) {
            Ok(Said::Nothing) => return None,
            Ok(Said::Header(name)) => {
                let span = logical.span(start, end);
                return Some(Step::Section(Cow::Owned(text[name].to_owned()), span));
            }
            Ok(Said::Assignment) => Joined::read(logical.clone(), text, start),
            Err(kind) => Err(kind),
        };
        Some(match read {
            Ok(joined) => Step::Assignment(Assignment::Joined(Box::new(joined))),
            Err(kind) => self.refused(&logical, &Wrong { kind, start, end }),
        })
    }

    #[inline]
    fn single(&mut self, line: Line<'a>) -> Result<Option<Step<'a>>, Wrong> {
        let text = match self.text {
            Some(text) => &text[line.start..line.start + line.text.len()],
            None => str::from_utf8(line.text).map_err(|error| broken(line.text, &error))?,
        };
        let (start, end) = trimmed(text);
        let wrong = |kind| Wrong { kind, start, end };
        let place = line.start + start;
        Ok(match self.said(&text[..end], start).map_err(wrong)? {
            Said::Nothing => None,
            Said::Header(name) => {
                let span = Span { start: place, end: line.start + end };
                Some(Step::Section(Cow::Borrowed(&text[name]), span))
            }
            Said::Assignment => {
                let plain = Plain::read(&text[start..], place).map_err(wrong)?;
                Some(Step::Assignment(Assignment::Plain(plain)))
            }
        })
    }

    /// What kind of thing a line says, the text of which begins at `start`.
    #[inline]
    fn said(&mut self, text: &str, start: usize) -> Result<Said, DiagnosticKind> {
        if !self.is_ascii && !is_clean(text) {
            return Err(DiagnosticKind::InvalidUtf8);
        }
        match text.as_bytes().get(start) {
            None => Ok(Said::Nothing),
            Some(b'[') => self.header(text, start).map(Said::Header),
            Some(_) => match self.current {
                Current::Outside => Err(DiagnosticKind::OutsideSection),
                Current::Unknown => Ok(Said::Nothing),
                Current::Named => Ok(Said::Assignment),
            },
        }
    }

    fn header(&mut self, text: &str, start: usize) -> Result<Range<usize>, DiagnosticKind> {
        self.current = Current::Unknown;
        if !text.ends_with(']') {
            return Err(DiagnosticKind::UnclosedHeader);
        }
        let name = start + 1..text.len() - 1;
        if let Some(kind) = section_flaw(&text[name.clone()]) {
            return Err(kind);
        }
        self.current = Current::Named;
        Ok(name)
    }

    fn refused(&mut self, logical: &Logical<'a>, wrong: &Wrong) -> Step<'a> {
        // What follows a header that cannot be read must not join the section before it.
        if logical.starts_like_header() {
            self.current = Current::Unknown;
        }
        let (line, at) = logical.locate(wrong.start);
        let span = logical.span(wrong.start, wrong.end);
        Step::Flaw(Flaw { kind: wrong.kind, span, line, at })
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    #[inline]
    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            if let Some(untold) = &mut self.untold {
                if let Some(flaw) = untold.warning() {
                    return Some(Step::Flaw(flaw));
                }
                let step = self.untold.take().and_then(|untold| untold.step);
                if step.is_some() {
                    return step;
                }
            }
            let line = self.lines.next()?;
            if line.is_comment() {
                return Some(Step::Comment(line));
            }
            let step = match line.text.last() {
                None => continue,
                Some(b' ' | b'\t' | b'\\') => self.read(line),
                Some(_) if line.text.len() >= MAX_LINE => self.read(line),
                Some(_) => self.read_single(line),
            };
            if step.is_some() {
                return step;
            }
        }
    }
}

/// What a logical line says; ranges are places in its text.
enum Said {
    Nothing,
    Header(Range<usize>),
    Assignment,
}

/// What is suspicious about a logical line, whatever it means, and after that what it means.
struct Untold<'a> {
    about_last: [Option<Flaw<'a>>; 2],
    rest: Rest<'a>,
    step: Option<Step<'a>>,
}

impl<'a> Untold<'a> {
    fn about(logical: &Logical<'a>) -> Self {
        let last = *logical.last();
        let text = trim_end(last.text);
        let is_hidden = text.len() < last.text.len() && ends_in_open_backslash(text);
        let hidden = is_hidden.then(|| {
            let range = text.len() - 1..last.text.len();
            Flaw::suspicion(DiagnosticKind::BlankAfterBackslash, last, range)
        });
        let unfinished = logical.unfinished.then(|| {
            let range = last.text.len() - 1..last.text.len();
            Flaw::suspicion(DiagnosticKind::UnfinishedContinuation, last, range)
        });
        Self { about_last: [hidden, unfinished], rest: logical.rest(), step: None }
    }

    fn warning(&mut self) -> Option<Flaw<'a>> {
        let about_last = self.about_last.iter_mut().find_map(Option::take);
        about_last.or_else(|| self.rest.find_map(swallowed_header))
    }
}

fn swallowed_header(line: Line<'_>) -> Option<Flaw<'_>> {
    let text = trim_start(line.text);
    let blanks = line.text.len() - text.len();
    let text = trim_end(text);
    let is_header = text.first() == Some(&b'[') && text.last() == Some(&b']');
    let range = blanks..blanks + text.len();
    is_header.then(|| Flaw::suspicion(DiagnosticKind::SwallowedHeader, line, range))
}

/// Where a line begins and ends without the blanks around it; at its end, if it has no more.
#[inline]
fn trimmed(text: &str) -> (usize, usize) {
    let end = trim_end(text.as_bytes()).len();
    (end - trim_start(&text.as_bytes()[..end]).len(), end)
}

fn broken(bytes: &[u8], error: &Utf8Error) -> Wrong {
    let start = error.valid_up_to();
    let len = error.error_len().unwrap_or(bytes.len() - start);
    Wrong { kind: DiagnosticKind::InvalidUtf8, start, end: start + len }
}
