//! Findings of a check, their codes, and the errors in values that they are made of.

use std::fmt;
use std::ops::Range;

use crate::spelling::suggest;
use crate::syntax::diagnostic::{Diagnostic, DiagnosticKind, Excerpt, Location, Severity, Span};

/// A result of a check: text that systemd refuses or ignores, or probably reads differently than
/// its author intended.
///
/// `Display` writes file, location, message and help on one line. [`render`](Self::render) also
/// shows the source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(super) file: String,
    pub(super) code: FindingCode,
    pub(super) span: Span,
    pub(super) location: Location,
    pub(super) message: String,
    pub(super) help: String,
    pub(super) excerpt: Excerpt,
}

impl Finding {
    /// Returns the name of the file: the name of the unit, or the path of the unit's part. For a
    /// diagnostic of the grammar, it is empty until [`in_file`](Self::in_file) sets it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Sets the name of the file, such as the path by which the user knows it.
    #[must_use]
    pub fn in_file(self, file: impl Into<String>) -> Self {
        Self { file: file.into(), ..self }
    }

    /// Returns the kind of the finding.
    pub fn code(&self) -> FindingCode {
        self.code
    }

    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Returns the affected bytes of the source. For a missing option, these are the bytes of the
    /// section header.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the line and column at which those bytes begin.
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns the description, with the names involved.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns how to correct the text.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Formats the finding as compilers do, with the name of the file, the source line, and a mark
    /// below the affected text. The text ends in a line feed.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit: UnitFile = "[Service]\nExecStart=bin/web\n".parse()?;
    /// let findings = unit.check(&"web.service".parse()?);
    /// assert_eq!(
    ///     findings[0].render().to_string(),
    ///     r#"error[U0301]: ExecStart: "bin/web" is neither an absolute path nor a plain name
    ///  --> web.service:2:11
    ///   |
    /// 2 | ExecStart=bin/web
    ///   |           ^^^^^^^
    ///   = help: write an absolute path
    /// "#,
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn render(&self) -> impl fmt::Display + '_ {
        Rendered(self)
    }
}

struct Rendered<'a>(&'a Finding);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(finding) = self;
        let Location { line, column } = finding.location;
        let gutter = line.to_string().len();
        writeln!(f, "{}[{}]: {}", finding.severity(), finding.code, finding.message)?;
        writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", finding.file)?;
        finding.excerpt.write(f, line)?;
        writeln!(f, "{:gutter$} = help: {}", "", finding.help)
    }
}

impl From<&Diagnostic> for Finding {
    /// Converts a diagnostic of the grammar, about a file without a name.
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            file: String::new(),
            code: diagnostic.kind().into(),
            span: diagnostic.span(),
            location: diagnostic.location(),
            message: diagnostic.message(),
            help: diagnostic.help().to_owned(),
            excerpt: diagnostic.excerpt().clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        write!(f, "{}: {}: {}", self.location, self.message, self.help)
    }
}

/// Declares each code once: name, number, severity and meaning.
macro_rules! codes {
    ($($name:ident $number:literal $severity:ident $meaning:literal)*) => {
        /// Code of a finding. Its text, such as `U0301`, stays the same in later versions.
        ///
        /// The code determines the [`Severity`] of the finding:
        ///
        /// - error: systemd refuses the unit, or strict parsing refuses the file;
        /// - warning: systemd ignores the text, warns about it, or probably reads it differently
        ///   than its author intended;
        /// - hint: systemd accepts the text, but there is a newer way to write it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingCode {
            $(#[doc = $meaning] $name,)*
        }

        impl FindingCode {
            /// All codes, in order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the text of the code, such as `U0103`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $number,)*
                }
            }

            /// Returns the severity.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// Returns the meaning, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

codes! {
    LineTooLong "U0001" Error "A line is longer than systemd reads."
    InvalidUtf8 "U0002" Error "A line is not UTF-8."
    UnclosedHeader "U0003" Error "A section header does not end in `]`."
    EmptySection "U0004" Error "A section has no name."
    SectionCharacter "U0005" Error "The name of a section has an invalid character."
    OutsideSection "U0006" Error "An option stands before the first section."
    MissingEquals "U0007" Error "A line is neither header, option nor comment."
    EmptyName "U0008" Error "Nothing stands before the `=`."
    BlankAfterBackslash "U0009" Warning "Blanks after a backslash keep it from continuing the line."
    UnfinishedContinuation "U0010" Warning "The last line ends in a continuation backslash."
    SwallowedHeader "U0011" Warning "A section header is part of the value above it."
    MarkedComment "U0012" Error "A byte order mark stands before a comment, which is then text."
    UnknownSection "U0101" Warning "systemd has no such section, and ignores all in it."
    ForeignSection "U0102" Warning "A section of another unit type, which systemd ignores here."
    UnknownKey "U0103" Warning "The section has no such option, and systemd ignores it."
    MisplacedKey "U0104" Warning "The option belongs in another section, and is ignored here."
    OutdatedKey "U0105" Warning "systemd warns about the option or value and has a newer one."
    Repeated "U0106" Warning "An option with one value is set again; the last one counts."
    OldKey "U0107" Hint "An older option that systemd still accepts; there is a newer one."
    OldPath "U0108" Hint "A path below `/var/run`, which has moved to `/run`."
    Masked "U0109" Warning "An empty file masks the unit, which then cannot be started."
    TooNew "U0110" Warning "The checked version of systemd does not know the option or value yet."
    Removed "U0111" Warning "The checked version of systemd has removed the option."
    Boolean "U0201" Warning "A value is neither yes nor no."
    Timespan "U0202" Warning "A value is not a time span."
    Size "U0203" Warning "A value is not a size in bytes."
    Number "U0204" Warning "A value is not a number, or not one that is allowed."
    Mode "U0205" Warning "A value is not a file mode in octal digits."
    Signal "U0206" Warning "A value is not a signal."
    UnitName "U0207" Warning "A value is not the name of a unit, or of the wrong type."
    Path "U0208" Warning "A value is not a path of the required kind."
    Choice "U0209" Warning "A value is not one of those that the option accepts."
    Limit "U0210" Warning "A value is not a resource limit."
    Environment "U0211" Warning "A word is not an assignment to an environment variable."
    Address "U0212" Warning "A value is not an address, or not a range of addresses."
    Url "U0213" Warning "A value is not the URL of a document."
    Quotes "U0214" Warning "A quote is not closed, so the value is ignored."
    Specifier "U0215" Warning "A percent sign begins no specifier, so the value is ignored."
    Template "U0216" Warning "A template is named where a unit is required."
    Calendar "U0217" Warning "A value is not a calendar event."
    Escape "U0218" Warning "A backslash in a command begins no escape, and is kept."
    IgnoredCommand "U0219" Warning "A command cannot be read, and systemd only ignores it."
    ExitStatus "U0220" Warning "A value is not an exit status or signal."
    BusName "U0221" Warning "A value is not a name on the message bus."
    BadEscape "U0222" Warning "A backslash begins no escape, so the value is ignored."
    Form "U0223" Warning "A value does not have the form that the option requires."
    Install "U0224" Warning "The unit cannot be enabled as `[Install]` says."
    Program "U0301" Error "A program is neither an absolute path nor a plain name."
    Command "U0302" Error "A command cannot be read."
    FatalSpecifier "U0303" Error "A percent sign begins no specifier, so systemd refuses the unit."
    User "U0304" Error "A value is not the name or number of a user or group."
    FatalPath "U0305" Error "A path is not absolute, so systemd refuses the unit."
    FatalBoolean "U0306" Error "A value is neither yes nor no, so systemd refuses the unit."
    NoCommand "U0401" Error "A service has nothing to run."
    SeveralCommands "U0402" Error "A service that is not `oneshot` has several `ExecStart=`."
    NoBusName "U0403" Error "A service of type `dbus` has no `BusName=`."
    OneshotRestart "U0404" Error "A `oneshot` service has an unsuitable `Restart=` or `ExitType=`."
    NoTrigger "U0405" Error "A timer, path or socket has no trigger."
    NoSource "U0406" Error "A mount has no `What=`."
    NameMismatch "U0407" Error "The path of a mount, automount or swap is not the one in its name."
    NoFile "U0408" Error "systemd reads no unit files of this type."
    Accept "U0409" Error "A socket with `Accept=yes` cannot accept connections."
    SliceName "U0410" Error "The name of a slice has an empty part."
    Symlinks "U0411" Error "A socket with `Symlinks=` has not exactly one node in the file system."
    NoImage "U0412" Error "A container has neither `Image=` nor `Rootfs=`, or both."
    ServiceName "U0413" Error "A container gives its service another name, which fleet cannot find."
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<DiagnosticKind> for FindingCode {
    fn from(kind: DiagnosticKind) -> Self {
        match kind {
            DiagnosticKind::LineTooLong => Self::LineTooLong,
            DiagnosticKind::InvalidUtf8 => Self::InvalidUtf8,
            DiagnosticKind::UnclosedHeader => Self::UnclosedHeader,
            DiagnosticKind::EmptySection => Self::EmptySection,
            DiagnosticKind::SectionCharacter => Self::SectionCharacter,
            DiagnosticKind::OutsideSection => Self::OutsideSection,
            DiagnosticKind::MissingEquals => Self::MissingEquals,
            DiagnosticKind::EmptyName => Self::EmptyName,
            DiagnosticKind::BlankAfterBackslash => Self::BlankAfterBackslash,
            DiagnosticKind::UnfinishedContinuation => Self::UnfinishedContinuation,
            DiagnosticKind::SwallowedHeader => Self::SwallowedHeader,
            DiagnosticKind::MarkedComment => Self::MarkedComment,
        }
    }
}

/// An error in a part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) code: FindingCode,
    /// The affected bytes of the value. If the range is empty, the error is about the whole value.
    pub(super) at: Range<usize>,
    /// Description, without the name of the option.
    pub(super) message: String,
    pub(super) help: String,
}

impl ValueError {
    /// Makes an error about a whole value.
    pub(super) fn new(
        code: FindingCode,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, at: 0..0, message: message.into(), help: help.into() }
    }

    /// Moves the place of the error by some bytes.
    pub(super) fn shifted(self, by: usize) -> Self {
        let Range { start, end } = self.at;
        let at = if start == end { start..end } else { start + by..end + by };
        Self { at, ..self }
    }

    /// Narrows the error to a word at an offset of the value.
    pub(super) fn at_word(self, (at, word): (usize, &str)) -> Self {
        Self { at: at..at + word.len(), ..self }
    }
}

/// Quotes a string for a message, truncated to forty characters.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 40;
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut head: String = text.chars().take(MOST).map(plain).collect();
    if text.chars().nth(MOST).is_some() {
        head.push('…');
    }
    format!("\"{head}\"")
}

/// Returns a help text that suggests the allowed word nearest to `word`. If none is near enough,
/// the text lists all allowed words, or three examples if there are more than twelve.
pub(super) fn one_of(word: &str, words: &[&str]) -> String {
    match suggest(word, words.iter().copied()) {
        Some(near) => format!("write {near}"),
        None if words.len() <= 12 => format!("write {}", listed(words)),
        None => format!("write a word such as {}", listed(&words[..3])),
    }
}

/// Joins words as `a`, `a or b`, `a, b or c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Splits a value at blanks, and returns each word with its offset. Quotes around a whole word are
/// removed.
///
/// Quotes do not keep blanks together here. So this function is only for values with words that
/// never contain blanks.
pub(super) fn words(value: &str) -> impl Iterator<Item = (usize, &str)> {
    pieces(value).map(|(start, piece)| {
        let quotes = ['"', '\''].into_iter();
        let inner =
            quotes.filter_map(|quote| piece.strip_prefix(quote)?.strip_suffix(quote)).next();
        inner.map_or((start, piece), |inner| (start + 1, inner))
    })
}

/// Splits a value at blanks, with the offset of each piece.
pub(super) fn pieces(value: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let pieces = value.split([' ', '\t', '\n', '\r']).map(move |piece| {
        let start = at;
        at += piece.len() + 1;
        (start, piece)
    });
    pieces.filter(|(_, piece)| !piece.is_empty())
}
