//! Diagnostics about the text of a unit file: kind, location, message, remedy and excerpt.

use std::fmt;

use crate::syntax::lines::{is_line_end, trim_end, trim_start};

/// A byte range of the source. It begins at `start` and ends before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// A line and a column of the source, both counted from 1 as in editors. Columns are counted in
/// characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Severity of a diagnostic or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The text has the intended meaning, but there is a better way to write it.
    Hint,
    /// The text is ignored, or probably does not mean what its author intended.
    Warning,
    /// Strict parsing refuses the file because it cannot parse the text, or systemd refuses the
    /// unit because of the text.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// The kinds of errors and warnings about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// A line, or a logical line made of several, reaches the length limit.
    LineTooLong,
    /// A line that is not a comment is not valid UTF-8, or contains a Unicode noncharacter.
    InvalidUtf8,
    /// A line starts with `[` and does not end with `]`.
    UnclosedHeader,
    /// The name of a section is empty.
    EmptySection,
    /// The name of a section contains a control character, a quote, a backslash or a `]`.
    SectionCharacter,
    /// An option stands before the first section.
    OutsideSection,
    /// A line is neither a section header, an option nor a comment.
    MissingEquals,
    /// Nothing stands before the `=`.
    EmptyName,
    /// Blanks follow a backslash at the end of a line, so the backslash does not continue the line.
    BlankAfterBackslash,
    /// The last line of the file ends in a continuation backslash.
    UnfinishedContinuation,
    /// A section header is part of the value above it, because the line above the header ends in a
    /// backslash.
    SwallowedHeader,
    /// A comment follows a byte order mark on the same line. systemd reads such a line as text.
    MarkedComment,
}

impl DiagnosticKind {
    /// Returns the severity. Strict parsing refuses a file for errors.
    pub fn severity(self) -> Severity {
        match self {
            Self::BlankAfterBackslash | Self::UnfinishedContinuation | Self::SwallowedHeader => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::LineTooLong => "1 MiB or more in one line",
            Self::InvalidUtf8 => "text that is not UTF-8",
            Self::UnclosedHeader => "section header without \"]\" at its end",
            Self::EmptySection => "section header without a name",
            Self::SectionCharacter => "section name with an invalid character",
            Self::OutsideSection => "option before the first section",
            Self::MissingEquals => "missing \"=\"",
            Self::EmptyName => "missing option name before \"=\"",
            Self::BlankAfterBackslash => "blanks after the backslash",
            Self::UnfinishedContinuation => "backslash at the end of the file",
            Self::SwallowedHeader => "section header inside the value of the option above",
            Self::MarkedComment => "comment after a byte order mark",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::LineTooLong => "split the value into several options",
            Self::InvalidUtf8 => "save the file as UTF-8",
            Self::UnclosedHeader => "write [Section], and put further text on the next line",
            Self::EmptySection => "write a name between the brackets, as in [Service]",
            Self::SectionCharacter => {
                "use no control character, quote, backslash or bracket in the name, and put \
                 further text on the next line"
            }
            Self::OutsideSection => "put a section header such as [Unit] above the option",
            Self::MissingEquals => {
                "write Name=value, start a comment with \"#\", or end the line above with a \
                 backslash to continue it"
            }
            Self::EmptyName => "write Name=value",
            Self::BlankAfterBackslash => {
                "remove the blanks if the value continues on the next line"
            }
            Self::UnfinishedContinuation => "remove the backslash, or write the missing line",
            Self::SwallowedHeader => "remove the backslash at the end of the line above",
            Self::MarkedComment => "save the file without a byte order mark",
        }
    }
}

/// An error or warning about the text of a unit file.
///
/// `Display` writes location, message and help on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    kind: DiagnosticKind,
    span: Span,
    location: Location,
    quote: String,
    excerpt: Excerpt,
}

impl Diagnostic {
    /// Creates a diagnostic about a span of the source. `line` is the line that contains the start
    /// of the span, and begins at offset `start`. The message quotes the start of this line.
    pub(crate) fn new(
        kind: DiagnosticKind,
        span: Span,
        location: Location,
        (start, line): (usize, &[u8]),
    ) -> Self {
        let quote = quote(trim_end(trim_start(line)));
        Self { kind, span, location, quote, excerpt: Excerpt::new(line, start, span) }
    }

    pub(crate) fn excerpt(&self) -> &Excerpt {
        &self.excerpt
    }

    /// Returns the kind of the diagnostic.
    pub fn kind(&self) -> DiagnosticKind {
        self.kind
    }

    /// Returns the severity. Strict parsing refuses a file for errors.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// Returns the affected bytes of the source.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the line and column at which those bytes begin.
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns a short description that quotes the start of the affected line.
    pub fn message(&self) -> String {
        format!("{} in \"{}\"", self.kind.summary(), self.quote)
    }

    /// Returns how to correct the text.
    pub fn help(&self) -> &'static str {
        self.kind.remedy()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.message(), self.help())
    }
}

/// The first error that strict parsing finds in a unit file.
///
/// The message begins with line and column. It does not contain the name of the file, because the
/// parser gets only the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(Box<Diagnostic>);

impl ParseError {
    pub(crate) fn new(diagnostic: Diagnostic) -> Self {
        Self(Box::new(diagnostic))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> DiagnosticKind {
        self.0.kind
    }

    /// Returns the line and column of the error.
    pub fn location(&self) -> Location {
        self.0.location
    }

    /// Returns how to correct the text.
    pub fn help(&self) -> &'static str {
        self.0.help()
    }

    /// Returns the full diagnostic, including its span.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}

/// Returns the first forty characters of `text` for a message, with control characters escaped.
fn quote(text: &[u8]) -> String {
    const MAX_CHARS: usize = 40;
    let head = String::from_utf8_lossy(&text[..text.len().min(4 * (MAX_CHARS + 1))]);
    let mut quote = String::new();
    for (index, character) in head.chars().enumerate() {
        match character {
            _ if index == MAX_CHARS => {
                quote.push('…');
                break;
            }
            _ if character.is_control() => quote.extend(character.escape_default()),
            _ => quote.push(character),
        }
    }
    quote
}

/// Maximum number of characters of a line that are shown. In a longer line, at most
/// [`MAX_CHARS_BEFORE`] of them are before the mark.
const MAX_CHARS: usize = 120;
const MAX_CHARS_BEFORE: usize = 60;
/// Number of bytes before and after the start of a span that are read. They have more characters
/// than are shown.
const WINDOW: usize = 8 * MAX_CHARS;

/// The line in which a span begins, truncated if it is long, and where to mark the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    line: String,
    blanks: usize,
    marks: usize,
}

impl Excerpt {
    /// Cuts the line out of a part of the source that contains it and begins at offset `base`.
    ///
    /// The mark never extends past the end of the line.
    pub(crate) fn new(part: &[u8], base: usize, span: Span) -> Self {
        let (span_start, span_end) = (span.start - base, span.end.max(span.start) - base);
        let from = span_start.min(part.len());
        let (low, high) = (from.saturating_sub(WINDOW), part.len().min(from + WINDOW));
        let start = part[low..from].iter().rposition(|byte| is_line_end(*byte));
        let end = part[from..high].iter().position(|byte| is_line_end(*byte));
        let (start, end) = (start.map_or(low, |at| low + at + 1), end.map_or(high, |at| from + at));
        let at = |offset: usize| {
            String::from_utf8_lossy(&part[start..offset.clamp(start, end)]).chars().count()
        };
        let (first, last) = (at(span_start), at(span_end));
        let line = String::from_utf8_lossy(&part[start..end]);
        let chars = line.chars().count();
        let skipped = if chars > MAX_CHARS { first.saturating_sub(MAX_CHARS_BEFORE) } else { 0 };
        let mut text = if skipped > 0 { "…".to_owned() } else { String::new() };
        let ellipsis = text.chars().count();
        text.extend(line.chars().skip(skipped + ellipsis).take(MAX_CHARS).map(displayed));
        if chars > skipped + MAX_CHARS {
            text.push('…');
        }
        let blanks = first - skipped;
        let room = text.chars().count().saturating_sub(blanks);
        let marks = (last - first).clamp(1, room.max(1));
        Self { line: text.trim_end().to_owned(), blanks, marks }
    }

    /// Writes the line with its number, and the mark below it. Writes nothing for an empty line.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let Self { line, blanks, marks } = self;
        if line.is_empty() {
            return Ok(());
        }
        let gutter = number.to_string().len();
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{number} | {line}")?;
        writeln!(f, "{:gutter$} | {:blanks$}{}", "", "", "^".repeat(*marks))
    }
}

/// Replaces a character that does not take exactly one column.
fn displayed(character: char) -> char {
    match character {
        '\u{feff}' => ' ',
        _ if character.is_control() => ' ',
        _ => character,
    }
}
