//! What can be wrong with the text of a unit file, where, and what to write instead.

use std::fmt;

/// A stretch of the source: byte offsets, `start` included, `end` not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The offset of the first byte.
    pub start: usize,
    /// The offset after the last byte.
    pub end: usize,
}

/// A place in the source as editors count: lines and columns from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The line, counted from 1.
    pub line: usize,
    /// The character within the line, counted from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// How much a diagnostic or a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The text means what its writer meant, though there is a better way to write it.
    Hint,
    /// The text is ignored, or means hardly what its writer meant.
    Warning,
    /// A line that cannot be read, for which strict parsing refuses the file; or what systemd
    /// refuses the unit for.
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

/// Each thing that can be wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// A line, or several lines that continue each other, are longer than a line may be.
    LineTooLong,
    /// A line that counts is not UTF-8, or has one of Unicode's noncharacters.
    InvalidUtf8,
    /// A line starts with `[` and does not end with `]`.
    UnclosedHeader,
    /// The name of a section is empty.
    EmptySection,
    /// The name of a section has a control character, a quote, a backslash or a `]`.
    SectionCharacter,
    /// An option stands before the first section.
    OutsideSection,
    /// A line is neither a section header, an option nor a comment.
    MissingEquals,
    /// Nothing stands before the `=`.
    EmptyName,
    /// Blanks after a backslash at the end of a line keep it from continuing the line.
    BlankAfterBackslash,
    /// The last line of the file says that another one follows.
    UnfinishedContinuation,
    /// A section header is part of the value above it, which ends in a backslash.
    SwallowedHeader,
}

impl DiagnosticKind {
    /// Whether strict parsing refuses a file for this.
    pub fn severity(self) -> Severity {
        match self {
            Self::BlankAfterBackslash | Self::UnfinishedContinuation | Self::SwallowedHeader => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::LineTooLong => "1 MiB or more in one line",
            Self::InvalidUtf8 => "text that is not UTF-8",
            Self::UnclosedHeader => "section header without \"]\" at its end",
            Self::EmptySection => "section header without a name",
            Self::SectionCharacter => "section name with a character that it must not have",
            Self::OutsideSection => "option before the first section",
            Self::MissingEquals => "missing \"=\"",
            Self::EmptyName => "missing option name before \"=\"",
            Self::BlankAfterBackslash => "blanks after the backslash",
            Self::UnfinishedContinuation => "backslash at the end of the file",
            Self::SwallowedHeader => "section header inside the value of the option above",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::LineTooLong => "break it into several options",
            Self::InvalidUtf8 => "save the file as UTF-8",
            Self::UnclosedHeader => "write [Section], and put what follows it on a line of its own",
            Self::EmptySection => "write a name between the brackets, as in [Service]",
            Self::SectionCharacter => {
                "use no control character, quote, backslash or bracket in the name, and put what \
                 follows the header on a line of its own"
            }
            Self::OutsideSection => "put a section header such as [Unit] above it",
            Self::MissingEquals => {
                "write Name=value, start a comment with \"#\", or end the line above with a \
                 backslash to continue it"
            }
            Self::EmptyName => "write Name=value",
            Self::BlankAfterBackslash => "remove the blanks if the value goes on in the next line",
            Self::UnfinishedContinuation => "remove the backslash, or write the missing line",
            Self::SwallowedHeader => "remove the backslash at the end of the line above",
        }
    }
}

/// One thing that is wrong, or suspicious, in the text of a unit file.
///
/// `Display` is the place, the message and the help in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    kind: DiagnosticKind,
    span: Span,
    location: Location,
    excerpt: String,
}

impl Diagnostic {
    /// About a stretch of the source that reads `text`, of which the message repeats the start.
    pub(crate) fn new(kind: DiagnosticKind, span: Span, location: Location, text: &[u8]) -> Self {
        Self { kind, span, location, excerpt: excerpt(text) }
    }

    /// What is wrong.
    pub fn kind(&self) -> DiagnosticKind {
        self.kind
    }

    /// Whether strict parsing refuses the file for it.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// The bytes of the source that it is about.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where those bytes begin.
    pub fn location(&self) -> Location {
        self.location
    }

    /// What is wrong, in a few words, with the start of the text in question.
    pub fn message(&self) -> String {
        format!("{} in \"{}\"", self.kind.what(), self.excerpt)
    }

    /// What to write instead.
    pub fn help(&self) -> &'static str {
        self.kind.remedy()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.message(), self.help())
    }
}

/// The first error in the text of a unit file.
///
/// The message begins with line and column; it does not name the file, which the caller knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(Box<Diagnostic>);

impl ParseError {
    pub(crate) fn new(diagnostic: Diagnostic) -> Self {
        Self(Box::new(diagnostic))
    }

    /// What is wrong.
    pub fn kind(&self) -> DiagnosticKind {
        self.0.kind
    }

    /// The line and the column of it.
    pub fn location(&self) -> Location {
        self.0.location
    }

    /// What to write instead.
    pub fn help(&self) -> &'static str {
        self.0.help()
    }

    /// The same, with its span.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}

/// The first forty characters of a text, for a message; control characters are escaped.
fn excerpt(text: &[u8]) -> String {
    const MOST: usize = 40;
    let head = String::from_utf8_lossy(&text[..text.len().min(4 * (MOST + 1))]);
    let mut excerpt = String::new();
    for (index, character) in head.chars().enumerate() {
        match character {
            _ if index == MOST => {
                excerpt.push('…');
                break;
            }
            _ if character.is_control() => excerpt.extend(character.escape_default()),
            _ => excerpt.push(character),
        }
    }
    excerpt
}
