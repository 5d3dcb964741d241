//! The error of `fleetctl` and `fleet-init`: a message, its cause, hints, and the exit code.

use std::error::Error;
use std::io::Write;
use std::{fmt, io};

use super::sanitize::sanitize_for_terminal;
use super::table::{BAD, Colour, HELP};

/// Largest number of further errors to print after the first.
const MAX_OTHERS: usize = 19;

/// Exit status of `fleetctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success; also if the reader of the output has closed it.
    Success,
    /// Failure.
    Failure,
    /// Invalid command line.
    Usage,
    /// `status`: a unit is known, but not active.
    NotActive,
    /// `status`: a unit is not known.
    Unknown,
    /// A preview: something would change.
    Changes,
    /// `fleet-init convert`: some settings could not be converted.
    Lossy,
    /// `ssh`, `run --wait`: exit code of the remote command or job.
    Remote(u8),
    /// The user pressed Ctrl-C.
    Interrupted,
}

impl Exit {
    /// Exit statuses with their documentation.
    pub(crate) const MEANINGS: [(Self, &str); 7] = [
        (Self::Success, "success; also if there was nothing to do"),
        (Self::Failure, "failure, or a unit did not reach its goal"),
        (Self::Usage, "the command line is wrong"),
        (Self::NotActive, "`status`: a unit is known, but not active on all its machines"),
        (Self::Unknown, "`status`: a unit is not known"),
        (
            Self::Changes,
            "`diff`, `plan`, and `apply`, `scale`, `rebalance` and `machine drain` with \
             `--dry-run`: something would change",
        ),
        (Self::Interrupted, "Ctrl-C"),
    ];

    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotActive | Self::Lossy => 3,
            Self::Unknown => 4,
            Self::Changes => 5,
            Self::Remote(code) => code,
            Self::Interrupted => 130,
        }
    }
}

/// Error that ends a command.
///
/// The program prints it once, at the end: `fleetctl: message: cause: cause`, then a `help:` line
/// for each hint, then further errors in the same form.
#[derive(Debug)]
pub(crate) struct CliError {
    exit: Exit,
    message: String,
    hints: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    others: Vec<Self>,
    /// Whether no daemon answered.
    is_unreachable: bool,
    /// Whether the same request would fail again.
    is_final_answer: bool,
}

impl CliError {
    /// Creates an error with exit status [`Failure`](Exit::Failure).
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        let message = message.into();
        let (hints, others) = (Vec::new(), Vec::new());
        let exit = Exit::Failure;
        let (is_unreachable, is_final_answer) = (false, false);
        Self { exit, message, hints, source: None, others, is_unreachable, is_final_answer }
    }

    /// Creates an error with exit status [`Usage`](Exit::Usage).
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::failed(message) }
    }

    /// Creates an error with exit status [`Interrupted`](Exit::Interrupted).
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { exit: Exit::Interrupted, ..Self::failed(message) }
    }

    /// Creates the error for an endpoint at which no daemon answers.
    pub(crate) fn unreachable(endpoint: impl fmt::Display) -> Self {
        let error = Self::failed(format!("no fleetd answers at {endpoint}"));
        Self { is_unreachable: true, ..error }
    }

    /// Marks the error as an answer of a daemon that stays the same if the request is repeated.
    pub(crate) fn final_answer(self) -> Self {
        Self { is_final_answer: true, ..self }
    }

    /// Whether the same request would fail again.
    pub(crate) fn is_final_answer(&self) -> bool {
        self.is_final_answer
    }

    /// Whether no daemon answered.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// Sets the cause.
    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        self.because_of(Box::new(source))
    }

    /// Sets a boxed cause.
    pub(crate) fn because_of(mut self, source: Box<dyn Error + Send + Sync>) -> Self {
        self.source = Some(source);
        self
    }

    /// Adds a hint.
    pub(crate) fn help(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Combines errors into one, if there are any.
    pub(crate) fn combined(errors: Vec<Self>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) => Err(Self { others: errors.collect(), ..first }),
        }
    }

    /// Returns all values, or all errors combined into one.
    pub(crate) fn all_or_none<T>(results: Vec<Result<T, Self>>) -> Result<Vec<T>, Self> {
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(one) => all.push(one),
                Err(error) => errors.push(error),
            }
        }
        Self::combined(errors).map(|()| all)
    }

    /// Sets the exit status.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Returns the exit status.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the hints.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Returns all messages with their causes, and all hints.
    pub(crate) fn parts(&self) -> (String, Vec<String>) {
        let (mut message, mut hints) = (self.in_one_line(), self.hints.clone());
        for other in &self.others {
            let (more, help) = other.parts();
            message = format!("{message}\n{more}");
            hints.extend(help);
        }
        (message, hints)
    }

    /// Returns the message with the chain of causes.
    fn in_one_line(&self) -> String {
        in_one_line(&self.message, self.source())
    }

    /// Returns the direct cause, or the message if there is none.
    pub(crate) fn nearest_cause(&self) -> String {
        self.source().map_or_else(|| self.message.clone(), ToString::to_string)
    }

    /// Prints the error and its hints as messages of `program`.
    ///
    /// An error with the exit code for success prints nothing. Such an error only ends the command,
    /// because the reader of the output has closed it.
    pub(crate) fn print_as(
        &self,
        program: &str,
        colour: Colour,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        if self.exit == Exit::Success {
            return Ok(());
        }
        let (name, help) = (colour.paint(BAD, program), colour.paint(HELP, "help"));
        writeln!(to, "{name}: {}", sanitize_for_terminal(&self.in_one_line()))?;
        self.hints
            .iter()
            .try_for_each(|hint| writeln!(to, "{help}: {}", sanitize_for_terminal(hint)))?;
        let shown = self.others.iter().take(MAX_OTHERS);
        shown.clone().try_for_each(|other| other.print_as(program, colour, to))?;
        match self.others.len() - shown.len() {
            0 => Ok(()),
            more => writeln!(to, "{name}: and {more} more errors"),
        }
    }

    /// Like [`print_as`](Self::print_as), as `fleetctl` and without colours.
    #[cfg(test)]
    pub(crate) fn print(&self, to: &mut dyn Write) -> io::Result<()> {
        self.print_as("fleetctl", Colour::Off, to)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CliError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Converts an error of writing results. A closed output is no failure.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::failed("the output was closed").with_exit(Exit::Success);
        }
        Self::failed("cannot write the output").because(error)
    }
}

/// Formats `message: cause: cause`, starting with `cause` and following its sources.
pub(crate) fn in_one_line(message: &str, mut cause: Option<&dyn Error>) -> String {
    let mut line = message.to_owned();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(error: &CliError) -> String {
        let mut text = Vec::new();
        error.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn error_prints_causes_once_then_hints() {
        let disk = io::Error::other("the disk is full");
        let error = CliError::failed("cannot start web.service")
            .because(CliError::failed("cannot read it").because(disk))
            .help("make room")
            .help("or wait");
        insta::assert_snapshot!(printed(&error), @r"
        fleetctl: cannot start web.service: cannot read it: the disk is full
        help: make room
        help: or wait
        ");
        assert_eq!(error.exit().code(), 1);
    }

    #[test]
    fn long_error_list_ends_with_a_count() {
        let print_errors = |count: usize| {
            let errors = (1..=count).map(|number| CliError::failed(format!("no {number}")));
            printed(&CliError::combined(errors.collect()).unwrap_err())
        };
        assert!(print_errors(20).ends_with("\nfleetctl: no 20\n"), "{}", print_errors(20));
        let many = print_errors(1000);
        assert_eq!(many.lines().count(), 21, "{many}");
        assert!(many.ends_with("no 20\nfleetctl: and 980 more errors\n"), "{many}");
    }

    #[test]
    fn program_and_help_labels_are_coloured() {
        let error = CliError::failed("cannot start web.service").help("make room");
        let mut text = Vec::new();
        error.print_as("fleetctl", Colour::On, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap().replace('\u{1b}', "^");
        insta::assert_snapshot!(text, @r"
        ^[1m^[31mfleetctl^[0m: cannot start web.service
        ^[36mhelp^[0m: make room
        ");
    }

    #[test]
    fn closed_output_is_a_silent_success() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((error.exit(), printed(&error).as_str()), (Exit::Success, ""));
        let error = CliError::from(io::Error::other("no space"));
        insta::assert_snapshot!(printed(&error), @"fleetctl: cannot write the output: no space");
        assert_eq!(error.exit(), Exit::Failure);
    }
}
