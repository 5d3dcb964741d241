//! Command lines: the values of `ExecStart=` and its like.

use std::fmt;

use crate::diagnostic::Span;
use crate::facts::Facts;
use crate::name::UnitName;
use crate::specifier::SpecifierError;
use crate::words::{Splitter, WordError, is_separator, quote_word};

/// One command of a value such as that of `ExecStart=`.
///
/// Quotes and escapes are read; specifiers and variables are still in it, until
/// [`expand`](Self::expand) replaces the former. Two commands are equal when they run the same;
/// where they stand does not count. `Display` writes a command that reads back as the same.
#[derive(Clone, Debug)]
pub struct CommandLine {
    prefixes: Prefixes,
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

/// The characters before the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prefixes {
    ignores_failure: bool,
    names_itself: bool,
    keeps_variables: bool,
    privileges: Privileges,
}

/// With which rights a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privileges {
    /// Those of the unit: `User=`, sandbox and all.
    #[default]
    Unit,
    /// `+`: all of them, whatever the unit restricts.
    Full,
    /// `!`: the unit's sandbox, but not its user and groups.
    KeepUser,
    /// `!!`: like [`KeepUser`](Self::KeepUser), on kernels without ambient capabilities alone.
    KeepUserWithoutAmbient,
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
        let mut commands = Vec::new();
        let mut splitter = Splitter::new(value, true);
        loop {
            splitter.skip_blanks();
            let at = splitter.at();
            let Some(first) = splitter.next() else {
                return Ok(commands);
            };
            let first = first?;
            if first == ";" {
                continue;
            }
            let (prefixes, path) = Prefixes::read(&first);
            let span = Span { start: at, end: splitter.at() };
            if !path.contains('%') {
                check_path(path, at)?;
            }
            let path = Word { text: path.to_owned(), span };
            let mut command = Self { prefixes, path, arguments: Vec::new(), span };
            let goes_on = command.read_arguments(&mut splitter)?;
            command.span.end = command.arguments.last().map_or(span.end, |it| it.span.end);
            command.check_argv()?;
            commands.push(command);
            if !goes_on {
                return Ok(commands);
            }
        }
    }

    /// The program: an absolute path, or the name of one in systemd's own search path.
    pub fn path(&self) -> &str {
        &self.path.text
    }

    /// What the program is called with, what it is told to be its name included.
    ///
    /// That name is the path, or the first argument where the prefix `@` says so.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        let path = (!self.prefixes.names_itself).then_some(self.path());
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
        let arguments = self.arguments.iter().map(expand);
        let expanded =
            Self { path, arguments: arguments.collect::<Result<_, _>>()?, ..self.clone() };
        expanded.check_argv()?;
        Ok(expanded)
    }

    /// Takes words up to the end, or to a semicolon; whether it was one.
    fn read_arguments(&mut self, splitter: &mut Splitter<'_>) -> Result<bool, CommandError> {
        loop {
            splitter.skip_blanks();
            let at = splitter.at();
            if is_lone(splitter.rest(), ";") {
                splitter.advance(1);
                return Ok(true);
            }
            let text = if is_lone(splitter.rest(), "\\;") {
                splitter.advance(2);
                ";".to_owned()
            } else {
                match splitter.next() {
                    Some(word) => word?,
                    None => return Ok(false),
                }
            };
            let end = splitter.at();
            let span = Span { start: at, end };
            self.arguments.push(Word { text, span });
        }
    }

    fn check_argv(&self) -> Result<(), CommandError> {
        match self.argv().next() {
            None | Some("") => Err(CommandError::NoName { at: self.path.span.start }),
            Some(_) => Ok(()),
        }
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

impl Prefixes {
    /// The prefixes of the first word, and what follows them; each counts once.
    fn read(word: &str) -> (Self, &str) {
        let mut prefixes = Self::default();
        for (at, byte) in word.bytes().enumerate() {
            match (byte, prefixes.privileges) {
                (b'-', _) if !prefixes.ignores_failure => prefixes.ignores_failure = true,
                (b'@', _) if !prefixes.names_itself => prefixes.names_itself = true,
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
            [(self.ignores_failure, "-"), (self.names_itself, "@"), (self.keeps_variables, ":")];
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
