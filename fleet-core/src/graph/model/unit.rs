//! A unit of an init, and the names of units and targets.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::edge::EdgeKind;
use super::run::{NotifyAccess, Restart, Run};

/// A unit, as a stanza or a systemd unit file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitUnit {
    /// Unique name.
    pub name: Name,
    /// The way in which the unit is started, and the condition under which it counts as active.
    pub kind: ServiceType,
    /// Targets that the unit provides: at least one. No other unit provides them.
    pub provides: Vec<Target>,
    /// Dependencies. A target may occur with several kinds; the strongest kind counts.
    pub edges: Vec<(EdgeKind, Target)>,
    /// Description for people.
    pub description: String,
    /// Timeouts of start, stop and reload.
    pub timeouts: Timeouts,
    /// Restart policy.
    pub restart: Restart,
    /// Commands and their environment. Virtual units have none; all other units have some.
    pub run: Run,
}

/// The way in which a unit is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceType {
    /// A foreground process that reports readiness by `sd_notify`.
    ForegroundNotified,
    /// A foreground process without readiness notification.
    ForegroundSupervised(Readiness),
    /// A daemon that forks into the background and writes its process ID to a file.
    BackgroundPidfile {
        /// Absolute path of the PID file.
        path: String,
    },
    /// A daemon that forks into the background, without a PID file. If its start command leaves one
    /// process behind, apart from the children of that process, this process is the main process.
    /// Otherwise the unit runs until its last process has exited.
    BackgroundForking,
    /// Scripts that start, stop and reload the unit.
    BackgroundScripted,
    /// Commands that run to completion. The unit is starting while the commands run, and becomes
    /// active once all of them have succeeded.
    Oneshot {
        /// Whether the unit stays active after its commands have succeeded. The default is true for
        /// a stanza and false for a unit from systemd.
        remain: bool,
    },
    /// Runs nothing; the unit groups its dependencies.
    Virtual,
}

/// Condition under which a supervised process is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The program has been executed.
    Executed,
    /// The process has been alive for this long.
    Alive(Duration),
    /// A line of the process's output matches.
    Line(LinePattern),
}

/// Regular expression in the syntax of the `regex` crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePattern(String);

/// Error for a text that is not an accepted regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct LinePatternError {
    /// Description of the error, as a full sentence.
    pub message: String,
    /// Byte offset of the error in the pattern.
    pub at: usize,
    /// Suggested remedy.
    pub help: &'static str,
}

/// Timeouts of a unit; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time from the start of the unit until it is active.
    pub start: Option<Duration>,
    /// Time until all its processes are gone.
    pub stop: Option<Duration>,
    /// Time until it uses its new configuration.
    pub reload: Option<Duration>,
}

impl InitUnit {
    /// Returns a virtual unit without dependencies. It can also serve as the base of other units,
    /// with some fields replaced.
    #[must_use]
    pub fn new_virtual(name: Name, provides: impl IntoIterator<Item = Target>) -> Self {
        Self {
            name,
            kind: ServiceType::Virtual,
            provides: provides.into_iter().collect(),
            edges: Vec::new(),
            description: String::new(),
            timeouts: Timeouts::default(),
            restart: Restart::default(),
            run: Run::default(),
        }
    }

    /// Returns whether the unit runs nothing.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.kind == ServiceType::Virtual
    }

    /// Returns whether an active unit must be restarted to get the definition `other`.
    ///
    /// Only settings that its processes got at their start count: the type, the start commands, the
    /// execution environment, the resource limits, the watchdog interval, and whether there is a
    /// notification socket. All other settings apply without a restart.
    #[must_use]
    pub fn needs_restart_for(&self, other: &Self) -> bool {
        use ServiceType::ForegroundSupervised;
        let is_none = |unit: &Self| unit.run.notify_access == NotifyAccess::None;
        let (one, two) = (&self.run, &other.run);
        let same_type = match (&self.kind, &other.kind) {
            (ForegroundSupervised(_), ForegroundSupervised(_)) => true,
            (one, two) => one == two,
        };
        !same_type
            || one.start != two.start
            || one.exec_environment != two.exec_environment
            || one.resources != two.resources
            || one.cgroup_filters != two.cgroup_filters
            || one.watchdog != two.watchdog
            || is_none(self) != is_none(other)
    }

    /// Returns whether a unit that is starting must start again to get the definition `other`. In
    /// addition to [`needs_restart_for`](Self::needs_restart_for), the conditions, the commands
    /// around the start, and the readiness count.
    #[must_use]
    pub fn needs_new_start_for(&self, other: &Self) -> bool {
        let (one, two) = (&self.run, &other.run);
        self.needs_restart_for(other)
            || self.kind != other.kind
            || one.conditions != two.conditions
            || one.exec_condition != two.exec_condition
            || one.start_pre != two.start_pre
            || one.start_post != two.start_post
    }

    /// Returns whether any command or process setting differs. A unit that has failed or completed
    /// is then tried again.
    #[must_use]
    pub fn runs_otherwise(&self, other: &Self) -> bool {
        self.kind != other.kind || self.run != other.run
    }
}

impl LinePattern {
    /// Parses a regular expression. [`regex::bytes`] can compile every accepted pattern unchanged,
    /// within its default size limit.
    ///
    /// # Errors
    ///
    /// Returns the first error in the pattern and its position.
    pub fn new(text: &str) -> Result<Self, LinePatternError> {
        let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(text);
        parsed.map_err(|error| pattern_error(&error))?;
        let compiled = regex::bytes::Regex::new(text);
        compiled.map(|_| Self(text.to_owned())).map_err(|_| LinePatternError {
            message: "this regular expression is too large when compiled".to_owned(),
            at: 0,
            help: "repeat less, or write [a-z] or . for a class of all scripts such as \\w",
        })
    }

    /// Returns the pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Timeouts {
    /// Returns 90 seconds for start and stop, and 30 seconds for reload.
    fn default() -> Self {
        Self {
            start: Some(Duration::from_secs(90)),
            stop: Some(Duration::from_secs(90)),
            reload: Some(Duration::from_secs(30)),
        }
    }
}

fn pattern_error(error: &regex_syntax::Error) -> LinePatternError {
    let (why, at) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.offset),
        regex_syntax::Error::Translate(error) => {
            (error.kind().to_string(), error.span().start.offset)
        }
        other => (other.to_string(), 0),
    };
    let message = format!("invalid regular expression: {why}");
    let help = "write one without look-around and back-references; \\ escapes a character";
    LinePatternError { message, at, help }
}

/// Maximum length of a name, in bytes.
const MAX_LENGTH: usize = 255;

/// Name of a unit. Dependencies do not name units but targets (see [`Target`]), so the planner uses
/// unit names only to break ties.
///
/// A name has 1 to 255 characters: ASCII letters, digits and `_-.@:\`. Every systemd unit name is a
/// valid name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Name of something that one unit provides and that other units can depend on. The syntax is that
/// of a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(Arc<str>);

/// Error for a text that is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// The text is longer than 255 bytes.
    #[error("the name has {0} bytes; at most 255 are allowed")]
    TooLong(usize),
    /// The text contains a character that names must not contain.
    #[error("`{character}` is not allowed; use ASCII letters, digits and _ - . @ : \\")]
    Character {
        /// First such character.
        character: char,
        /// Its byte offset in the text.
        at: usize,
    },
}

macro_rules! name_type {
    ($type:ident) => {
        impl $type {
            /// Creates a name from a text.
            ///
            /// # Errors
            ///
            /// Returns the first syntax rule that the text violates.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                check(text).map(|()| Self(text.into()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
    };
}

name_type!(Name);
name_type!(Target);

impl From<&Name> for Target {
    /// Returns the target of the same name as the unit.
    fn from(name: &Name) -> Self {
        Self(Arc::clone(&name.0))
    }
}

fn check(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.@:\\".contains(c);
    if let Some((at, character)) = text.char_indices().find(|&(_, c)| !allowed(c)) {
        return Err(InvalidName::Character { character, at });
    }
    if text.len() > MAX_LENGTH {
        return Err(InvalidName::TooLong(text.len()));
    }
    Ok(())
}
