//! Command lines: the values of `ExecStart=` and its like.

use std::fmt;

use crate::diagnostic::Span;
use crate::facts::Facts;
use crate::name::UnitName;
use crate::prefixes::{Prefixes, Privileges};
use crate::specifier::SpecifierError;
use crate::variables;
use crate::words::{Splitter, WordError, is_separator, quote_word};

/// One command of a value such as that of `ExecStart=`.
///
/// Quotes and escapes are read; specifiers and variables are still in it, until
/// [`expand`](Self::expand) replaces the former. Two commands are equal when they run the same;
/// where they stand does not count. `Display` writes a command that reads back as the same.
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
    /// Reads the commands of a value, which lone semicolons part.
    ///
    /// An empty value has none: it resets what was said before. An escape that is unknown stays
    /// as it is written, as systemd does after a warning.
    ///
    /// # Errors
    ///
    /// What systemd refuses: a quote that is not closed, a command without a path, or a path
    /// that is neither absolute nor a plain name. A path with specifiers is not checked.
    ///
    /// ```
    /// use fleet_unitfile::CommandLine;
    ///
    /// let commands = CommandLine::parse(r#"-/bin/mkdir -p "/srv/a b" ; /bin/echo \;"#)?;
    /// assert!(commands[0].ignores_failure());
    /// assert_eq!(commands[0].argv().collect::<Vec<_>>(), ["/bin/mkdir", "-p", "/srv/a b"]);
    /// assert_eq!(commands[1].to_string(), r#"/bin/echo ";""#);
    /// # Ok::<(), fleet_unitfile::CommandError>(())
    /// ```
    pub fn parse(value: &str) -> Result<Vec<Self>, CommandError> {
        Commands::new(value).map(|command| command.map_err(|it| it.error)).collect()
    }

    /// The program: an absolute path without `//` and `/./`, or the name of one in systemd's own
    /// search path.
    pub fn path(&self) -> &str {
        &self.program
    }

    /// What the program is called with, what it is told to be its name included.
    ///
    /// That name is the path as it is written, or the first argument where the prefix `@` says so.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        let path = (!self.prefixes.names_itself).then_some(self.path.text.as_str());
        let arguments = self.arguments.iter().map(|it| it.text.as_str());
        path.into_iter().chain(arguments)
    }

    /// `-`: a failure counts as a success.
    pub fn ignores_failure(&self) -> bool {
        self.prefixes.ignores_failure
    }

    /// `@`: the first argument is what the program is told to be its name.
    pub fn names_itself(&self) -> bool {
        self.prefixes.names_itself
    }

    /// [What the program is called with](Self::argv), with the values of environment variables.
    ///
    /// | in a word | becomes |
    /// |---|---|
    /// | `$NAME`, as all of it | the words of the value, maybe none; quotes go around blanks |
    /// | `${NAME}`, anywhere | the value as it is; nothing, where the variable is not set |
    /// | `$$` | a dollar sign |
    /// | a dollar sign before anything else, `${` without `}` or with `:` | the same |
    ///
    /// A word that begins with `$` is a name to its end: `$HOME/a` is no variable's name, so
    /// nothing is left of it. Of [`path`](Self::path) nothing is replaced, and nothing at all
    /// where the prefix `:` says so. Replace specifiers [before](Self::expand).
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
    /// # Ok::<(), fleet_unitfile::CommandError>(())
    /// ```
    pub fn argv_with<V: AsRef<str>>(&self, variable: impl Fn(&str) -> Option<V>) -> Vec<String> {
        if self.prefixes.keeps_variables {
            return self.argv().map(str::to_owned).collect();
        }
        self.argv().flat_map(|word| variables::put_in(word, &variable)).collect()
    }

    /// Whether `$NAME` and `${NAME}` stand for variables, which `:` forbids.
    pub fn expands_variables(&self) -> bool {
        !self.prefixes.keeps_variables
    }

    /// With which rights it runs.
    pub fn privileges(&self) -> Privileges {
        self.prefixes.privileges
    }

    /// Where the command stands in the value, in bytes.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the first word stands in the value, prefixes and quotes included.
    pub fn path_span(&self) -> Span {
        self.path.span
    }

    /// Where each argument after the path stands in the value, quotes included.
    pub fn argument_spans(&self) -> impl Iterator<Item = Span> {
        self.arguments.iter().map(|it| it.span)
    }

    /// The path and the arguments as they read, and where each stands in the value.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, Span)> {
        let words = [&self.path].into_iter().chain(&self.arguments);
        words.map(|word| (word.text.as_str(), word.span))
    }

    /// The same with its specifiers replaced; the path is checked then.
    ///
    /// # Errors
    ///
    /// A specifier without a meaning here, with the offset of its word, or a path that is none.
    pub fn expand(&self, facts: &Facts, name: &UnitName) -> Result<Self, CommandError> {
        let expand = |word: &Word| {
            let at = word.span.start;
            let text = facts.expand(&word.text, name);
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

/// The commands of a value one by one, up to the first that is refused.
pub(crate) struct Commands<'a> {
    splitter: Splitter<'a>,
    ended: bool,
}

/// Why a command is refused, and whether systemd then only ignores it and those after it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: CommandError,
    pub(crate) is_ignored: bool,
}

impl<'a> Commands<'a> {
    pub(crate) fn new(value: &'a str) -> Self {
        Self { splitter: Splitter::new(value, true), ended: false }
    }

    /// The offset of the first backslash that began no escape, in what was read.
    pub(crate) fn kept_escape(&self) -> Option<usize> {
        self.splitter.kept_escape()
    }

    /// The first word of the next command and where it stands.
    fn first(&mut self) -> Option<Result<Word, WordError>> {
        loop {
            match self.word()? {
                Ok(word) if word.text == ";" => {}
                word => return Some(word),
            }
        }
    }

    /// The command that begins with a word, if it does.
    fn command(&mut self, first: Word) -> Result<CommandLine, Refusal> {
        let Word { text: first, span } = first;
        let (prefixes, path) = Prefixes::read(&first);
        let refusal = |error| Refusal { error, is_ignored: prefixes.ignores_failure };
        if !path.contains('%') {
            check_path(path, span.start).map_err(refusal)?;
        }
        let arguments = self.arguments().map_err(|error| refusal(error.into()))?;
        if prefixes.names_itself && arguments.is_empty() {
            return Err(refusal(CommandError::NoName { at: span.start }));
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

    /// The words up to the end, or to a semicolon.
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
    type Item = Result<CommandLine, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let command = match self.first()? {
            Ok(first) => self.command(first),
            // systemd does not know yet whether it may fail, and is lenient.
            Err(error) => Err(Refusal { error: error.into(), is_ignored: true }),
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

/// Why a value is no command line; offsets are in bytes of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// It cannot be split into words.
    #[error(transparent)]
    Word(#[from] WordError),
    /// Nothing follows the prefixes.
    #[error("no program at byte {at}: write its path after the prefixes")]
    NoPath {
        /// The offset of the command.
        at: usize,
    },
    /// What is to be run has a character that a path of a program must not have.
    #[error("program at byte {at} has a quote, a backslash or a control character: rename it")]
    PathCharacter {
        /// The offset of the command.
        at: usize,
    },
    /// What is to be run ends in a slash, so is a directory.
    #[error("program at byte {at} is a directory: remove the slash at its end")]
    Directory {
        /// The offset of the command.
        at: usize,
    },
    /// What is to be run is neither absolute nor a plain name, or is not in its plain form.
    #[error("program at byte {at} is neither an absolute path nor a name: write /path/to/it")]
    RelativePath {
        /// The offset of the command.
        at: usize,
    },
    /// The program is not told its name.
    #[error("program at byte {at} gets no name: write one after the path, as its \"@\" says")]
    NoName {
        /// The offset of the command.
        at: usize,
    },
    /// A specifier of a word has no meaning here.
    #[error("word at byte {at} has a specifier that cannot be replaced")]
    Specifier {
        /// The offset of the word.
        at: usize,
        /// Why not; its offsets are in bytes of the word without its quotes.
        source: SpecifierError,
    },
}

/// Whether a text starts with a mark that is a word by itself.
fn is_lone(text: &str, mark: &str) -> bool {
    let after = text.strip_prefix(mark).map(str::as_bytes);
    after.is_some_and(|after| after.first().is_none_or(|&byte| is_separator(byte)))
}

/// Refuses what systemd would not run.
fn check_path(path: &str, at: usize) -> Result<(), CommandError> {
    const LONGEST_NAME: usize = 255;
    const LONGEST_PATH: usize = 4095;
    let is_name = |part: &str| !matches!(part, "." | "..") && part.len() <= LONGEST_NAME;
    let is_unsafe = |c: char| c < ' ' || matches!(c, '"' | '\'' | '\\' | '\u{7f}');
    if path.is_empty() {
        Err(CommandError::NoPath { at })
    } else if path.contains(is_unsafe) {
        Err(CommandError::PathCharacter { at })
    } else if path.ends_with('/') {
        Err(CommandError::Directory { at })
    } else if path.starts_with('/') {
        let fits = path.len() <= LONGEST_PATH && path.split('/').all(|it| it.len() <= LONGEST_NAME);
        fits.then_some(()).ok_or(CommandError::RelativePath { at })
    } else if is_name(path) && !path.contains('/') {
        Ok(())
    } else {
        Err(CommandError::RelativePath { at })
    }
}

/// A path without repeated slashes and parts that stay where they are.
fn simplified(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.fold(String::new(), |path, part| path + "/" + part)
}
