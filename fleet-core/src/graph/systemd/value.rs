//! Reads values of options.

use std::fmt::Display;
use std::time::Duration;

use fleet_unitfile::command::{CommandError, Privileges};
use fleet_unitfile::values::{parse_bool, parse_timespan};
use fleet_unitfile::{CommandLine, SpecifierContext, UnitName};

use crate::graph::model::{Command, Signal, StatusSet};

/// Context for parsing the values of one unit.
pub(super) struct ValueContext<'a> {
    pub(super) name: &'a UnitName,
    specifiers: &'a SpecifierContext,
}

impl<'a> ValueContext<'a> {
    pub(super) fn new(name: &'a UnitName, specifiers: &'a SpecifierContext) -> Self {
        Self { name, specifiers }
    }

    /// Expands the specifiers of a text.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        self.specifiers.expand(text, self.name).map_err(unreadable)
    }

    /// Expands the specifiers of a command line.
    pub(super) fn expand_command(&self, line: &CommandLine) -> Result<CommandLine, CommandError> {
        line.expand(self.specifiers, self.name)
    }

    /// Expands specifiers and checks that the result is an absolute path.
    pub(super) fn path(&self, text: &str) -> Result<String, String> {
        absolute(&self.expand(text)?)
    }
}

/// Formats an error of another crate.
pub(super) fn unreadable(error: impl Display) -> String {
    format!("cannot be read: {error}")
}

/// Reads the value of an option that an empty value resets to its default. Returns `None` for an
/// empty value, and otherwise the result of `read`. (Other options must not be empty: systemd would
/// ignore the empty value, but here it is refused.)
pub(super) fn read_resettable<T>(
    value: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { read(value).map(Some) }
}

/// Reads a boolean.
pub(super) fn flag(value: &str) -> Result<bool, String> {
    parse_bool(value).ok_or_else(|| format!("is {value:?}: write yes or no"))
}

/// Reads an integer in a range.
pub(super) fn number<T>(value: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or_else(|| format!("is {value:?}: write a whole number from {least} to {most}"))
}

/// A time span from an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(
    /// `None` means infinity.
    pub(super) Option<Duration>,
);

/// Reads a time span.
pub(super) fn span(value: &str) -> Result<Span, String> {
    parse_timespan(value).map(|span| Span(span.as_duration())).map_err(unreadable)
}

/// Reads a timeout; zero means no timeout.
pub(super) fn timeout(value: &str) -> Result<Span, String> {
    let Span(span) = span(value)?;
    Ok(Span(span.filter(|span| !span.is_zero())))
}

/// Reads a maximum runtime. systemd takes zero literally, so zero is refused.
pub(super) fn longest(value: &str) -> Result<Option<Duration>, String> {
    match span(value)?.0 {
        Some(Duration::ZERO) => Err(format!(
            "is {value:?}, which stops the unit as soon as it is active: write the maximum \
             runtime, or infinity"
        )),
        span => Ok(span),
    }
}

/// Reads a finite time span.
pub(super) fn delay(value: &str, instead: &str) -> Result<Duration, String> {
    span(value)?.0.ok_or_else(|| format!("cannot be infinity: {instead}"))
}

/// Reads a signal.
pub(super) fn signal(value: &str) -> Result<Signal, String> {
    Signal::parse(value).ok_or_else(|| {
        format!("is no signal: {value:?}; write a name such as SIGTERM or SIGRTMIN+3")
    })
}

/// Reads one of several words.
pub(super) fn choice<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
        return Ok(*meaning);
    }
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(format!("is {value:?}: write {}", or(&all)))
}

/// Formats alternatives as `a, b or c`.
fn or(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// Checks that a path is absolute and, as systemd requires, has no `..` component.
pub(super) fn absolute(path: &str) -> Result<String, String> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(format!("has the relative path {path:?}: write an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("has a part \"..\" in the path {path:?}: write the path without it"));
    }
    Ok(path.to_owned())
}

/// Adds the commands of one `Exec…=` line; an empty value resets the list.
pub(super) fn add_command(
    list: &mut Vec<Command>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let lines = CommandLine::parse(value).map_err(read)?;
    let commands = lines.iter().map(|line| command(line, unit)).collect::<Result<Vec<_>, _>>()?;
    list.extend(commands);
    Ok(())
}

fn command(line: &CommandLine, unit: &ValueContext<'_>) -> Result<Command, String> {
    let line = unit.expand_command(line).map_err(read)?;
    let program = line.path().to_owned();
    if program.starts_with('$') {
        return Err(format!(
            "has a variable as its program: write the path itself, or \"/bin/sh -c 'exec \
             {program}'\""
        ));
    }
    let mut words = line.argv().map(str::to_owned);
    let name = words.next().filter(|name| *name != program);
    Ok(Command {
        name,
        arguments: words.collect(),
        ignore_failure: line.ignores_failure(),
        verbatim: !line.expands_variables(),
        privileged: matches!(line.privileges(), Privileges::Full | Privileges::KeepUser),
        unconfined: line.privileges() == Privileges::Full,
        program,
    })
}

fn read(error: CommandError) -> String {
    match error {
        CommandError::Specifier { source, .. } => unreadable(source),
        other => unreadable(other),
    }
}

/// systemd's names of exit statuses.
const STATUS_NAMES: [(&str, u8); 67] = [
    ("SUCCESS", 0),
    ("FAILURE", 1),
    ("INVALIDARGUMENT", 2),
    ("NOTIMPLEMENTED", 3),
    ("NOPERMISSION", 4),
    ("NOTINSTALLED", 5),
    ("NOTCONFIGURED", 6),
    ("NOTRUNNING", 7),
    ("USAGE", 64),
    ("DATAERR", 65),
    ("NOINPUT", 66),
    ("NOUSER", 67),
    ("NOHOST", 68),
    ("UNAVAILABLE", 69),
    ("SOFTWARE", 70),
    ("OSERR", 71),
    ("OSFILE", 72),
    ("CANTCREAT", 73),
    ("IOERR", 74),
    ("TEMPFAIL", 75),
    ("PROTOCOL", 76),
    ("NOPERM", 77),
    ("CONFIG", 78),
    ("CHDIR", 200),
    ("NICE", 201),
    ("FDS", 202),
    ("EXEC", 203),
    ("MEMORY", 204),
    ("LIMITS", 205),
    ("OOM_ADJUST", 206),
    ("SIGNAL_MASK", 207),
    ("STDIN", 208),
    ("STDOUT", 209),
    ("CHROOT", 210),
    ("IOPRIO", 211),
    ("TIMERSLACK", 212),
    ("SECUREBITS", 213),
    ("SETSCHEDULER", 214),
    ("CPUAFFINITY", 215),
    ("GROUP", 216),
    ("USER", 217),
    ("CAPABILITIES", 218),
    ("CGROUP", 219),
    ("SETSID", 220),
    ("CONFIRM", 221),
    ("STDERR", 222),
    ("PAM", 224),
    ("NETWORK", 225),
    ("NAMESPACE", 226),
    ("NO_NEW_PRIVILEGES", 227),
    ("SECCOMP", 228),
    ("SELINUX_CONTEXT", 229),
    ("PERSONALITY", 230),
    ("APPARMOR", 231),
    ("ADDRESS_FAMILIES", 232),
    ("RUNTIME_DIRECTORY", 233),
    ("CHOWN", 235),
    ("SMACK_PROCESS_LABEL", 236),
    ("KEYRING", 237),
    ("STATE_DIRECTORY", 238),
    ("CACHE_DIRECTORY", 239),
    ("LOGS_DIRECTORY", 240),
    ("CONFIGURATION_DIRECTORY", 241),
    ("NUMA_POLICY", 242),
    ("CREDENTIALS", 243),
    ("BPF", 244),
    ("EXCEPTION", 255),
];

/// Adds exit statuses and signal names; an empty value resets the set.
pub(super) fn add_statuses(set: &mut StatusSet, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *set = StatusSet::default();
    }
    for word in value.split_whitespace() {
        // A plain number is an exit status, so signals are accepted by name only.
        let named = STATUS_NAMES.iter().find(|(name, _)| *name == word).map(|(_, code)| *code);
        let is_word = !word.starts_with(|c: char| c.is_ascii_digit());
        if let Some(code) = word.parse().ok().filter(|_| !is_word).or(named) {
            set.codes.insert(code);
        } else if let Some(signal) = Signal::parse(word).filter(|_| is_word) {
            set.signals.insert(signal);
        } else {
            return Err(format!(
                "has {word:?}: write exit statuses from 0 to 255, or names such as TEMPFAIL or \
                 SIGKILL"
            ));
        }
    }
    Ok(())
}
