//! Cluster-level states of a unit, and the commands that change them.

use std::fmt;
use std::str::FromStr;

/// A cluster-level state of a unit, either desired or current.
///
/// The states are ordered: `Inactive`, `Loaded`, `Launched`. A unit that changes from one state to
/// another passes through the states in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetState {
    /// Known to fleet, but not assigned to a machine.
    Inactive,
    /// Assigned to a machine and loaded into its service manager, but not started.
    Loaded,
    /// Loaded, and requested to start.
    Launched,
}

impl TargetState {
    /// All states, in ascending order.
    pub const ALL: [Self; 3] = [Self::Inactive, Self::Loaded, Self::Launched];

    /// Returns the state's name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Loaded => "loaded",
            Self::Launched => "launched",
        }
    }

    /// Returns the states on the way from this state to `goal`, including `goal`.
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

/// Error for a text that is none of the three states.
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
    /// Makes the unit known.
    Submit,
    /// Assigns the unit to a machine and loads it.
    Load,
    /// Starts the unit.
    Start,
    /// Stops the unit, but keeps it loaded.
    Stop,
    /// Stops the unit and removes it from its machine.
    Unload,
    /// Removes the unit from the cluster.
    Destroy,
}

impl Verb {
    /// Returns the command's name.
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

    /// Returns the desired state after the command. Returns `None` if fleet does not know the unit
    /// afterwards.
    #[must_use]
    pub const fn goal(self) -> Option<TargetState> {
        match self {
            Self::Submit | Self::Unload => Some(TargetState::Inactive),
            Self::Load | Self::Stop => Some(TargetState::Loaded),
            Self::Start => Some(TargetState::Launched),
            Self::Destroy => None,
        }
    }

    /// Applies the command to a unit with the desired state `from`, which is `None` for an unknown
    /// unit.
    ///
    /// Submit, load and start only raise the desired state; the other commands only lower it.
    /// Repeating a command changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidTransition`] if the command would change the state in the wrong direction,
    /// for example if it stops a unit that was never loaded.
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

/// The effect of a command on a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The unit is already in that state.
    Unchanged,
    /// The desired state becomes this one; `None` removes the unit.
    Change(Option<TargetState>),
}

/// Error for a command that may not be applied to a unit in its current desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidTransition {
    /// The command.
    pub verb: Verb,
    /// The unit's desired state; `None` if it is unknown.
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
