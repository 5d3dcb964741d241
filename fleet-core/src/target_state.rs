//! The cluster-level states of a unit and the commands that change them.

use std::fmt;
use std::str::FromStr;

/// One of the three cluster-level states of a unit, desired or current.
///
/// The states are ordered: a unit that goes from one to another passes through those between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetState {
    /// Known by fleet, but not assigned to a machine.
    Inactive,
    /// Assigned to a machine and loaded into its service manager, but not started.
    Loaded,
    /// Loaded, and its service manager was asked to start it.
    Launched,
}

impl TargetState {
    /// All states, from the least to the most.
    pub const ALL: [Self; 3] = [Self::Inactive, Self::Loaded, Self::Launched];

    /// The documented word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Loaded => "loaded",
            Self::Launched => "launched",
        }
    }

    /// The states that a unit in this state passes on its way to `goal`, the goal included.
    pub fn steps_to(self, goal: Self) -> impl Iterator<Item = Self> {
        let (from, to) = (self as usize, goal as usize);
        let rising = Self::ALL.into_iter().filter(move |s| from < *s as usize && *s as usize <= to);
        let falling =
            Self::ALL.into_iter().rev().filter(move |s| to <= *s as usize && (*s as usize) < from);
        rising.chain(falling)
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names none of the three states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state {0:?}: write \"inactive\", \"loaded\" or \"launched\"")]
pub struct UnknownTargetState(pub String);

impl FromStr for TargetState {
    type Err = UnknownTargetState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| UnknownTargetState(text.to_owned()))
    }
}

/// A command that changes the desired state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Make the unit known.
    Submit,
    /// Have it assigned and loaded.
    Load,
    /// Have it started.
    Start,
    /// Have it stopped, but stay loaded.
    Stop,
    /// Have it stopped and taken off its machine.
    Unload,
    /// Forget it.
    Destroy,
}

impl Verb {
    /// The command's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Load => "load",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Unload => "unload",
            Self::Destroy => "destroy",
        }
    }

    /// The desired state that the command leaves behind; `None` is a unit that fleet does not know.
    #[must_use]
    pub const fn goal(self) -> Option<TargetState> {
        match self {
            Self::Submit | Self::Unload => Some(TargetState::Inactive),
            Self::Load | Self::Stop => Some(TargetState::Loaded),
            Self::Start => Some(TargetState::Launched),
            Self::Destroy => None,
        }
    }

    /// What the command does to a unit whose desired state is `from` (`None`: not known).
    ///
    /// The rule is the table of the states document: a command that brings a unit up works from
    /// below, one that takes it down works from above, and repeating a command changes nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidTransition`] when the unit is on the wrong side of the command, for example a stop
    /// of a unit that was never loaded.
    pub fn apply(self, from: Option<TargetState>) -> Result<Transition, InvalidTransition> {
        let goal = self.goal();
        if from == goal {
            return Ok(Transition::Unchanged);
        }
        let brings_up = matches!(self, Self::Submit | Self::Load | Self::Start);
        if brings_up == (from < goal) {
            return Ok(Transition::Change(goal));
        }
        Err(InvalidTransition { verb: self, from })
    }
}

/// What a command does to a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Nothing: the unit is already there.
    Unchanged,
    /// The desired state becomes this one; `None` means that the unit is forgotten.
    Change(Option<TargetState>),
}

/// A command that makes no sense for a unit in its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The command.
    pub verb: Verb,
    /// The desired state that the unit has; `None`: it is not known.
    pub from: Option<TargetState>,
}

impl std::error::Error for InvalidTransition {}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.as_str();
        let Some(from) = self.from else {
            return write!(f, "cannot {verb} a unit that is not known: submit it first");
        };
        write!(f, "cannot {verb} a unit whose desired state is {from}")?;
        match (self.verb, from) {
            (Verb::Load, _) => f.write_str(": use stop to take it down to loaded"),
            (Verb::Submit, _) => f.write_str(": use unload to take it down to inactive"),
            (Verb::Stop, _) => f.write_str(": it is not started"),
            _ => Ok(()),
        }
    }
}
