//! A unit: what it provides, what it depends on, and what it runs.

use std::time::Duration;

use super::{EdgeKind, Name, Restart, Run, Target};

/// A unit, as its stanza or its systemd unit file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitUnit {
    /// Its name, which no other unit has.
    pub name: Name,
    /// What starting it means.
    pub kind: ServiceType,
    /// The targets that it provides, at least one, which no other unit does.
    pub provides: Vec<Target>,
    /// What it depends on; a target may come with several kinds, of which the strongest counts.
    pub edges: Vec<(EdgeKind, Target)>,
    /// What it is, for a person.
    pub description: String,
    /// How long its start, stop and reload may take.
    pub timeouts: Timeouts,
    /// When it is started again.
    pub restart: Restart,
    /// What it runs. A virtual unit runs nothing, and all others something.
    pub run: Run,
}

/// What starting a unit means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceType {
    /// A process in the foreground that says by `sd_notify` when it is ready.
    ForegroundNotified,
    /// A process in the foreground that does not.
    ForegroundSupervised(Readiness),
    /// A process that goes into the background and leaves its id in a file.
    BackgroundPidfile {
        /// Its absolute path.
        path: String,
    },
    /// Whatever its commands for start, stop and reload make of it.
    BackgroundScripted,
    /// Commands that end. Running is starting, and success is being up.
    Oneshot {
        /// Whether it stays up when they have ended well, as it does unless it comes from systemd.
        remain: bool,
    },
    /// Nothing is run: it is there for its dependencies alone.
    Virtual,
}

/// When a supervised process is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// When its program was executed.
    Executed,
    /// When it has been alive for so long.
    Alive(Duration),
    /// When a line of its output matches.
    Line(LinePattern),
}

/// A regular expression in the syntax of the `regex` crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePattern(String);

/// Why a text is no regular expression that is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LinePatternError {
    /// What is wrong with it, as a whole sentence.
    pub message: String,
    /// Where that begins, in bytes from the start of the pattern.
    pub at: usize,
    /// What to write instead.
    pub help: &'static str,
}

/// How long something may take; nothing is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the moment in which it may start until it is up.
    pub start: Option<Duration>,
    /// Until none of its processes is left.
    pub stop: Option<Duration>,
    /// Until it works by its new configuration.
    pub reload: Option<Duration>,
}

impl InitUnit {
    /// A virtual unit without dependencies: what to begin a unit with that is made by hand.
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

    /// Whether it runs nothing.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.kind == ServiceType::Virtual
    }

    /// Whether it has to be started anew to become `other`: what it runs has changed, not only what
    /// is known about it.
    #[must_use]
    pub fn needs_restart_for(&self, other: &Self) -> bool {
        self.kind != other.kind || self.run != other.run
    }
}

impl LinePattern {
    /// Reads a regular expression. One that is taken can be compiled by [`regex::bytes`] as it is,
    /// within the limit that it has by itself.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it, and where.
    pub fn new(text: &str) -> Result<Self, LinePatternError> {
        let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(text);
        parsed.map_err(|error| problem(&error))?;
        let compiled = regex::bytes::Regex::new(text);
        compiled.map(|_| Self(text.to_owned())).map_err(|_| LinePatternError {
            message: "this regular expression takes too much room".to_owned(),
            at: 0,
            help: "repeat less, or write [a-z] or . for a class of all scripts such as \\w",
        })
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Timeouts {
    /// 90 seconds to start, as many to stop, 30 to reload.
    fn default() -> Self {
        Self {
            start: Some(Duration::from_secs(90)),
            stop: Some(Duration::from_secs(90)),
            reload: Some(Duration::from_secs(30)),
        }
    }
}

fn problem(error: &regex_syntax::Error) -> LinePatternError {
    let (why, at) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.offset),
        regex_syntax::Error::Translate(error) => {
            (error.kind().to_string(), error.span().start.offset)
        }
        other => (other.to_string(), 0),
    };
    let message = format!("this is no regular expression: {why}");
    let help = "write one without look-around and back-references; \\ keeps a character";
    LinePatternError { message, at, help }
}
