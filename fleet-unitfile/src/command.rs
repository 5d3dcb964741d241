//! Command lines: the values of `ExecStart=` and similar options.

use std::fmt;

use crate::name::UnitName;
use crate::specifier::{SpecifierContext, SpecifierError};
use crate::syntax::diagnostic::Span;
use crate::values::expand_word;
use crate::values::words::{Splitter, WordError, is_separator, quote_word};

/// One command from the value of `ExecStart=` or a similar option.
///
/// Parsing removes quotes and decodes escapes, but keeps specifiers and variables.
/// [`expand`](Self::expand) replaces the specifiers, and [`argv_with`](Self::argv_with) replaces
/// the variables.
///
/// Two commands are equal if they run the same program in the same way, even if their spans differ.
/// `Display` writes a command in a form that parses to an equal command.
#[derive(Clone, Debug)]
pub struct CommandLine {
    prefixes: Prefixes,
    program: String,
    path: Word,
    arguments: Vec<Word>,
    span: Span,
}

/// One word of a command.
#[derive(Clone, Debug)]
struct Word {
    text: String,
    span: Span,
}

impl CommandLine {
    /// Parses a value into its commands. A semicolon that is a word of its own separates two
    /// commands.
    ///
    /// An empty value contains no commands; in a unit file it resets the list. An unknown escape is
    /// kept as written. systemd does the same after a warning.
    ///
    /// # Errors
    ///
    /// Returns an error for values that systemd refuses. Such a value has an unclosed quote, a
    /// command without a path, or a path that is neither absolute nor a plain name. A path with
    /// specifiers is not checked.
    ///
    /// ```
    /// use fleet_unitfile::CommandLine;
    ///
    /// let commands = CommandLine::parse(r#"-/bin/mkdir -p "/srv/a b" ; /bin/echo \;"#)?;
    /// assert!(commands[0].ignores_failure());
    /// assert_eq!(commands[0].argv().collect::<Vec<_>>(), ["/bin/mkdir", "-p", "/srv/a b"]);
    /// assert_eq!(commands[1].to_string(), r#"/bin/echo ";""#);
    /// # Ok::<(), fleet_unitfile::command::CommandError>(())
    /// ```
    pub fn parse(value: &str) -> Result<Vec<Self>, CommandError> {
        Commands::new(value).map(|command| command.map_err(|it| it.error)).collect()
    }

    /// Returns the program: an absolute path without `//` and `/./`, or a name that systemd looks
    /// up in its own search path.
    pub fn path(&self) -> &str {
        &self.program
    }

    /// Returns the program's arguments, including `argv[0]`.
    ///
    /// `argv[0]` is the path as written. With the prefix `@`, the first word after the path is
    /// `argv[0]` instead.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        let path = (!self.prefixes.sets_argv0).then_some(self.path.text.as_str());
        let arguments = self.arguments.iter().map(|it| it.text.as_str());
        path.into_iter().chain(arguments)
    }

    /// Returns `true` if the prefix `-` is set: a failure then counts as success.
    pub fn ignores_failure(&self) -> bool {
        self.prefixes.ignores_failure
    }

    /// Returns `true` if the prefix `@` is set: the first argument then becomes `argv[0]`.
    pub fn sets_argv0(&self) -> bool {
        self.prefixes.sets_argv0
    }

    /// Returns [`argv`](Self::argv) with environment variables expanded.
    ///
    /// | in a word | becomes |
    /// |---|---|
    /// | `$NAME`, as a whole word | the words of the value, maybe none; quotes are honoured |
    /// | `${NAME}`, anywhere | the value unchanged; nothing if the variable is not set |
    /// | `$$` | a dollar sign |
    /// | any other `$`, as in `a$NAME`, `${NAME` or `${NAME:-a}` | itself |
    ///
    /// In a word that begins with `$NAME`, the name extends to the end of the word. For example,
    /// `$HOME/a` refers to a variable called `HOME/a`, which cannot be set, so the word expands to
    /// nothing.
    ///
    /// [`path`](Self::path) is never expanded, and the prefix `:` disables expansion. Specifiers
    /// must be expanded before, with [`expand`](Self::expand).
    ///
    /// ```
    /// use fleet_unitfile::CommandLine;
    ///
    /// let commands = CommandLine::parse("/bin/run $FLAGS ${NAME}.log $NONE")?;
    /// let argv = commands[0].argv_with(|name| match name {
    ///     "FLAGS" => Some("-v --to 'a b'"),
    ///     "NAME" => Some("my app"),
    ///     _ => None,
    /// });
    /// assert_eq!(argv, ["/bin/run", "-v", "--to", "a b", "my app.log"]);
    /// # Ok::<(), fleet_unitfile::command::CommandError>(())
    /// ```
    pub fn argv_with<V: AsRef<str>>(&self, variable: impl Fn(&str) -> Option<V>) -> Vec<String> {
        if self.prefixes.keeps_variables {
            return self.argv().map(str::to_owned).collect();
        }
        self.argv().flat_map(|word| expand_word(word, &variable)).collect()
    }

    /// Returns `true` if `$NAME` and `${NAME}` are expanded, which the prefix `:` disables.
    pub fn expands_variables(&self) -> bool {
        !self.prefixes.keeps_variables
    }

    /// Returns the privileges that the command runs with.
    pub fn privileges(&self) -> Privileges {
        self.prefixes.privileges
    }

    /// Returns the span of the command in the value, in bytes.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the span of the command's path in the value, including prefixes and quotes.
    pub fn path_span(&self) -> Span {
        self.path.span
    }

    /// Returns the span of each word after the path in the value, including quotes.
    pub fn argument_spans(&self) -> impl Iterator<Item = Span> {
        self.arguments.iter().map(|it| it.span)
    }

    /// Returns the path and the arguments with their spans in the value.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, Span)> {
        let words = [&self.path].into_iter().chain(&self.arguments);
        words.map(|word| (word.text.as_str(), word.span))
    }

    /// Returns this command with its specifiers expanded.
    ///
    /// # Errors
    ///
    /// Returns an error with the byte offset of the word if a specifier has no value, or if the
    /// expanded path is invalid.
    pub fn expand(
        &self,
        context: &SpecifierContext,
        name: &UnitName,
    ) -> Result<Self, CommandError> {
        let expand = |word: &Word| {
            let at = word.span.start;
            let text = context.expand(&word.text, name);
            let text = text.map_err(|source| CommandError::Specifier { at, source })?;
            let span = word.span;
            Ok::<_, CommandError>(Word { text, span })
        };
        let path = expand(&self.path)?;
        check_path(&path.text, path.span.start)?;
        let arguments = self.arguments.iter().map(expand).collect::<Result<_, _>>()?;
        Ok(Self { program: simplified(&path.text), path, arguments, ..self.clone() })
    }
}

/// An iterator over the commands of a value. The iterator ends after the first command that is
/// refused.
pub(crate) struct Commands<'a> {
    splitter: Splitter<'a>,
    ended: bool,
    /// Whether the prefix `|`, which is new in systemd 258, is accepted.
    accepts_shell: bool,
}

/// A command that systemd refuses, and the reason. If `is_ignored` is true, systemd still accepts
/// the unit, and only ignores this command and the commands after it.
#[derive(Debug)]
pub(crate) struct RefusedCommand {
    pub(crate) error: CommandError,
    pub(crate) is_ignored: bool,
}

impl<'a> Commands<'a> {
    pub(crate) fn new(value: &'a str) -> Self {
        Self { splitter: Splitter::new(value, true), ended: false, accepts_shell: false }
    }

    /// Reads the commands of all versions of systemd. The path of a command with the prefix `|`
    /// still has this prefix, and is not checked.
    pub(crate) fn newest(value: &'a str) -> Self {
        Self { accepts_shell: true, ..Self::new(value) }
    }

    /// Returns the offset of the first unknown escape read so far.
    pub(crate) fn unknown_escape(&self) -> Option<usize> {
        self.splitter.unknown_escape()
    }

    /// Reads the first word of the next command.
    fn first(&mut self) -> Option<Result<Word, WordError>> {
        loop {
            match self.word()? {
                Ok(word) if word.text == ";" => {}
                word => return Some(word),
            }
        }
    }

    /// Parses the command that begins with a word.
    fn command(&mut self, first: Word) -> Result<CommandLine, RefusedCommand> {
        let Word { text: first, span } = first;
        let (prefixes, path) = Prefixes::read(&first);
        let refused = |error| RefusedCommand { error, is_ignored: prefixes.ignores_failure };
        let is_shell = self.accepts_shell && has_shell_prefix(path);
        if !path.contains('%') && !is_shell {
            check_path(path, span.start).map_err(refused)?;
        }
        let arguments = self.arguments().map_err(|error| refused(error.into()))?;
        if prefixes.sets_argv0 && arguments.is_empty() {
            return Err(refused(CommandError::NoName { at: span.start }));
        }
        let end = arguments.last().map_or(span.end, |it| it.span.end);
        Ok(CommandLine {
            prefixes,
            program: simplified(path),
            path: Word { text: path.to_owned(), span },
            arguments,
            span: Span { start: span.start, end },
        })
    }

    /// Reads the words up to the end or to a semicolon.
    fn arguments(&mut self) -> Result<Vec<Word>, WordError> {
        let mut arguments = Vec::new();
        loop {
            self.splitter.skip_blanks();
            let start = self.splitter.at();
            if is_lone(self.splitter.rest(), ";") {
                self.splitter.advance(1);
                return Ok(arguments);
            }
            if is_lone(self.splitter.rest(), "\\;") {
                self.splitter.advance(2);
                let span = Span { start, end: self.splitter.at() };
                arguments.push(Word { text: ";".to_owned(), span });
                continue;
            }
            let Some(word) = self.word() else {
                self.ended = true;
                return Ok(arguments);
            };
            arguments.push(word?);
        }
    }

    fn word(&mut self) -> Option<Result<Word, WordError>> {
        self.splitter.skip_blanks();
        let start = self.splitter.at();
        let word = self.splitter.next()?;
        let span = Span { start, end: self.splitter.at() };
        Some(word.map(|text| Word { text, span }))
    }
}

impl Iterator for Commands<'_> {
    type Item = Result<CommandLine, RefusedCommand>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let command = match self.first()? {
            Ok(first) => self.command(first),
            // At this point systemd has not read the prefix `-`, and is lenient.
            Err(error) => Err(RefusedCommand { error: error.into(), is_ignored: true }),
        };
        self.ended |= command.is_err();
        Some(command)
    }
}

impl PartialEq for CommandLine {
    fn eq(&self, other: &Self) -> bool {
        self.prefixes == other.prefixes
            && self.path() == other.path()
            && self.argv().eq(other.argv())
    }
}

impl Eq for CommandLine {}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = format!("{}{}", self.prefixes, self.path.text);
        f.write_str(&quote_word(&first))?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", quote_word(&word.text)))
    }
}

/// Error for a value that is not a valid command line. Its offsets are byte offsets in the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The value cannot be split into words.
    #[error(transparent)]
    Word(#[from] WordError),
    /// No path follows the prefixes.
    #[error("no program at byte {at}: write the path of a program after the prefixes")]
    NoPath {
        /// Offset of the command.
        at: usize,
    },
    /// The path contains a character that is not allowed.
    #[error(
        "program at byte {at} has a quote, a backslash or a control character: rename the program"
    )]
    PathCharacter {
        /// Offset of the command.
        at: usize,
    },
    /// The path ends in a slash, so it is a directory.
    #[error("program at byte {at} ends in a slash, so it is a directory, not a program")]
    Directory {
        /// Offset of the command.
        at: usize,
    },
    /// The path is neither absolute nor a plain name, or is not normalized.
    #[error("program at byte {at} is neither an absolute path nor a name: write an absolute path")]
    RelativePath {
        /// Offset of the command.
        at: usize,
    },
    /// The prefix `@` is set, but there is no argument for `argv[0]`.
    #[error(
        "command at byte {at} has the prefix \"@\" but no argv[0]: write argv[0] after the path"
    )]
    NoName {
        /// Offset of the command.
        at: usize,
    },
    /// A specifier of a word cannot be expanded.
    #[error("word at byte {at} has a specifier that cannot be expanded")]
    Specifier {
        /// Offset of the word.
        at: usize,
        /// The reason; its offsets are in bytes of the word without its quotes.
        source: SpecifierError,
    },
}

/// Returns `true` if `text` starts with `mark`, and a blank or the end of the text follows.
fn is_lone(text: &str, mark: &str) -> bool {
    let after = text.strip_prefix(mark).map(str::as_bytes);
    after.is_some_and(|after| after.first().is_none_or(|&byte| is_separator(byte)))
}

/// Returns `true` if a path still has the prefix `|`, and something to run after it.
pub(crate) fn has_shell_prefix(path: &str) -> bool {
    let is_prefix = |c: char| matches!(c, '-' | '@' | ':' | '+' | '!');
    path.strip_prefix('|').is_some_and(|rest| !rest.trim_start_matches(is_prefix).is_empty())
}

/// Refuses a path that systemd would not run.
pub(crate) fn check_path(path: &str, at: usize) -> Result<(), CommandError> {
    const MAX_NAME: usize = 255;
    const MAX_PATH: usize = 4095;
    let is_name = |part: &str| !matches!(part, "." | "..") && part.len() <= MAX_NAME;
    let is_unsafe = |c: char| c < ' ' || matches!(c, '"' | '\'' | '\\' | '\u{7f}');
    if path.is_empty() {
        Err(CommandError::NoPath { at })
    } else if path.contains(is_unsafe) {
        Err(CommandError::PathCharacter { at })
    } else if path.ends_with('/') {
        Err(CommandError::Directory { at })
    } else if path.starts_with('/') {
        let fits = path.len() <= MAX_PATH && path.split('/').all(|it| it.len() <= MAX_NAME);
        fits.then_some(()).ok_or(CommandError::RelativePath { at })
    } else if is_name(path) && !path.contains('/') {
        Ok(())
    } else {
        Err(CommandError::RelativePath { at })
    }
}

/// Removes repeated slashes and `.` components from an absolute path.
fn simplified(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.fold(String::new(), |path, part| path + "/" + part)
}

/// The privileges that a command runs with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privileges {
    /// The privileges of the unit, with `User=` and sandboxing applied.
    #[default]
    Unit,
    /// `+`: full privileges, regardless of the unit's restrictions.
    Full,
    /// `!`: sandboxing applies, but not the unit's user and groups.
    KeepUser,
    /// `!!`: like [`KeepUser`](Self::KeepUser), but only on kernels without ambient capabilities.
    KeepUserWithoutAmbient,
}

/// The prefixes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub(crate) ignores_failure: bool,
    pub(crate) sets_argv0: bool,
    pub(crate) keeps_variables: bool,
    pub(crate) privileges: Privileges,
}

impl Prefixes {
    /// Parses the prefixes of a command's first word. Returns the prefixes and the remaining text.
    ///
    /// A prefix that occurs a second time belongs to the remaining text. The exception is `!!`,
    /// which is a prefix of its own.
    pub(crate) fn read(word: &str) -> (Self, &str) {
        let mut prefixes = Self::default();
        for (at, byte) in word.bytes().enumerate() {
            match (byte, prefixes.privileges) {
                (b'-', _) if !prefixes.ignores_failure => prefixes.ignores_failure = true,
                (b'@', _) if !prefixes.sets_argv0 => prefixes.sets_argv0 = true,
                (b':', _) if !prefixes.keeps_variables => prefixes.keeps_variables = true,
                (b'+', Privileges::Unit) => prefixes.privileges = Privileges::Full,
                (b'!', Privileges::Unit) => prefixes.privileges = Privileges::KeepUser,
                (b'!', Privileges::KeepUser) => {
                    prefixes.privileges = Privileges::KeepUserWithoutAmbient;
                }
                _ => return (prefixes, &word[at..]),
            }
        }
        (prefixes, "")
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks =
            [(self.ignores_failure, "-"), (self.sets_argv0, "@"), (self.keeps_variables, ":")];
        let set = marks.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, mark)| mark)
            .chain([match self.privileges {
                Privileges::Unit => "",
                Privileges::Full => "+",
                Privileges::KeepUser => "!",
                Privileges::KeepUserWithoutAmbient => "!!",
            }])
            .try_for_each(|mark| f.write_str(mark))
    }
}
