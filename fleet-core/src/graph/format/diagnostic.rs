//! Diagnostics of a file, each with a code.

use std::fmt;

use fleet_unitfile::{Location, Severity, Span};

use super::lexer;

/// An error or a warning in a file of stanzas or central settings.
///
/// `Display` prints position, message and help in one line, without the file name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitDiagnostic {
    /// Kind of the diagnostic.
    pub code: Code,
    /// Bytes of the file that the diagnostic concerns.
    pub span: Span,
    /// Line and column of the first of these bytes.
    pub location: Location,
    /// Description of the error.
    pub message: String,
    /// Suggested remedy.
    pub help: String,
}

impl InitDiagnostic {
    /// Returns the severity.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Returns the line that the diagnostic concerns, with carets below the position. Of a long
    /// line, returns only the part around the position.
    #[must_use]
    pub fn excerpt(&self, source: &[u8]) -> String {
        let (text, skipped, marked) = lexer::excerpt(source, self.span);
        let number = self.location.line.to_string();
        let margin = " ".repeat(number.len());
        let (blanks, carets) = (" ".repeat(skipped), "^".repeat(marked));
        format!("{number} | {text}\n{margin} | {blanks}{carets}")
    }
}

impl fmt::Display for InitDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]: {}", self.location, self.message, self.code, self.help)
    }
}

/// A diagnostic without line and column.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) code: Code,
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: String,
}

/// Problems of a file, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    all: Vec<Problem>,
    errors: usize,
}

impl Problems {
    /// Adds a problem.
    pub(super) fn add(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.errors += usize::from(code.severity() == Severity::Error);
        self.all.push(Problem { code, span, message: message.into(), help: help.into() });
    }

    /// Returns the number of errors.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    /// Returns the message of the first problem.
    pub(super) fn first(&self) -> Option<&str> {
        self.all.first().map(|problem| problem.message.as_str())
    }

    /// Adds the line and the column to each problem in a single pass over the file. Returns the
    /// problems sorted by position.
    pub(super) fn locate(mut self, source: &[u8]) -> Vec<InitDiagnostic> {
        self.all.sort_by_key(|problem| (problem.span.start, problem.code));
        let mut locator = lexer::Locator::new(source);
        let located = self.all.into_iter().map(|problem| {
            let Problem { code, span, message, help } = problem;
            InitDiagnostic { code, span, location: locator.location(span.start), message, help }
        });
        located.collect()
    }
}

/// Returns at most the first forty characters of a text, for use in a message. Control characters
/// are escaped.
pub(super) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let mut short: String = text.chars().take(MAX_CHARS).flat_map(printable).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

fn printable(character: char) -> Vec<char> {
    if character.is_control() {
        return character.escape_default().collect();
    }
    vec![character]
}

/// Declares every code with its text and meaning.
macro_rules! codes {
    ($($name:ident $text:literal $meaning:literal)*) => {
        /// Kind of a diagnostic. The text of a code (such as `E07`) never changes. It begins with
        /// `E` for an error and with `W` for a warning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $meaning] $name,)*
        }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the text of the code, such as `E07`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns the meaning of the code, as a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

codes! {
    NoColon "E01" "A line has no colon."
    UnknownKey "E02" "A key is unknown or malformed."
    OutsideStanza "E03" "A field precedes the first `unit:`."
    RepeatedKey "E04" "A key that may be given once is repeated."
    Empty "E05" "A value, or an item of a list, is empty."
    BadName "E06" "A name of a unit, target or variable is invalid."
    UnknownType "E07" "A type is unknown."
    BadDuration "E08" "A duration cannot be read, or is out of range."
    BadQuoting "E09" "A quote is not closed, or an escape is invalid."
    BadProgram "E10" "A program is not an absolute path."
    UnknownVariable "E11" "A dollar sign is not followed by a variable that the stanza sets."
    RepeatedUnit "E12" "Two units have the same name."
    RepeatedProvider "E13" "Two units provide the same target."
    ProvidedTwice "E14" "A unit provides a target twice."
    DependsOnItself "E15" "A unit depends on a target that it provides itself."
    NotProvided "E16" "A unit depends on a target that no unit provides."
    DependencyCycle "E17" "Units depend on each other in a cycle."
    WrongType "E18" "A key is not allowed for units of this type."
    MissingKey "E19" "A key that units of this type need is missing."
    TwoReadinesses "E20" "Both `ready-wait` and `ready-grep` are given."
    BadPattern "E21" "A regular expression is invalid or too large."
    BadStatus "E22" "An exit status or a signal is invalid."
    VirtualCommand "E23" "A virtual unit has a command."
    RestartAlways "E24" "A oneshot would be restarted after a success."
    StrayFold "E25" "A line continues a value that cannot be continued."
    BadCharacter "E26" "A line has a control character, or is not UTF-8."
    TooLarge "E27" "A file is larger than 1 MiB, or there are too many units."
    BadGoal "E28" "The goal is provided by no unit, or masked."
    BadValue "E29" "A value is not valid for its key."
    ShellOperator "E30" "A command has an operator of a shell, which no shell reads."
    NoReadinessLog "E31" "`ready-grep` is given, but no output goes to the log."
    Unreadable "E32" "A file cannot be read."
    OldUnitKey "W01" "`name:` is used instead of `unit:`."
    SeveralKinds "W02" "A unit depends on a target twice; the strongest kind counts."
    Unneeded "W03" "Neither the goal nor any other unit needs a unit."
    HardGoal "W04" "The goal's own unit has `depends-on`, so a failure takes everything down."
    NoProgram "W05" "A program is not an executable file here."
    NoStopTimeout "W06" "A unit has no stop timeout."
    Extension "W07" "A key that begins with `x-` is ignored."
    NeverStarts "W08" "A unit never starts or stays active because of a unit that it depends on."
    NotHere "W09" "A user, a group, a directory or a file of variables is missing here."
    NoEffect "W10" "A key has no effect for units of this type."
}

impl Code {
    /// Returns the severity of the code. An error leads to the rejection of its file or file set; a
    /// warning does not.
    #[must_use]
    pub fn severity(self) -> Severity {
        if self.as_str().starts_with('E') { Severity::Error } else { Severity::Warning }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
