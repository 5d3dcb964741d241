//! What keeps units from making a graph.

use std::fmt;

use super::{EdgeKind, Name, Target};

/// What is wrong with a set of units, as data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum GraphError {
    /// Several units have one name.
    #[error("{count} units are called {name}; give each a name of its own")]
    DuplicateUnit {
        /// The name.
        name: Name,
        /// How many have it.
        count: usize,
    },
    /// A unit provides nothing, so nothing can ever need it.
    #[error("{unit} provides nothing; name at least one target that it provides")]
    NothingProvided {
        /// The unit.
        unit: Name,
    },
    /// A unit names a target twice among those that it provides.
    #[error("{unit} provides {target} twice; name it once")]
    ProvidedTwice {
        /// The unit.
        unit: Name,
        /// The target.
        target: Target,
    },
    /// Several units provide one target.
    #[error("{target} is provided by {}; choose one of them as its alternative", list(units))]
    DuplicateProvider {
        /// The target.
        target: Target,
        /// The units, by name.
        units: Vec<Name>,
    },
    /// The unit that was chosen to provide a target does not, or is not there.
    #[error("{unit} was chosen to provide {target}, and does not")]
    NoAlternative {
        /// The target.
        target: Target,
        /// The unit.
        unit: Name,
    },
    /// A unit depends on a target that nobody provides.
    #[error("{unit} {kind} {target}, which no unit provides{}", near_hint(near.as_ref()))]
    NotProvided {
        /// The unit.
        unit: Name,
        /// How it depends on it.
        kind: EdgeKind,
        /// The target.
        target: Target,
        /// A target that is spelt almost like it.
        near: Option<Target>,
    },
    /// Units wait for one another in a cycle, or one for itself.
    #[error("{0}; take one of these dependencies out")]
    Cycle(DependencyCycle),
    /// A unit contradicts itself.
    #[error("{unit}: {problem}")]
    Conflict {
        /// The unit.
        unit: Name,
        /// In what.
        problem: SettingConflict,
    },
    /// Nobody provides the goal.
    #[error("no unit provides the goal {goal}{}", near_hint(near.as_ref()))]
    NoGoal {
        /// The goal.
        goal: Target,
        /// A target that is spelt almost like it.
        near: Option<Target>,
    },
    /// The goal is masked, so that everything would stop.
    #[error("the goal {goal} is masked; choose another goal, or unmask it")]
    GoalMasked {
        /// The goal.
        goal: Target,
    },
    /// Nobody provides a target that is masked.
    #[error("no unit provides {target}, which is masked{}", near_hint(near.as_ref()))]
    NothingMasked {
        /// The target.
        target: Target,
        /// A target that is spelt almost like it.
        near: Option<Target>,
    },
    /// There are more units or dependencies than a graph takes.
    #[error("there are {found} {what}, and {most} is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many may be.
        most: usize,
    },
}

/// In what a unit contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SettingConflict {
    /// It is virtual and runs something.
    #[error("a virtual unit runs nothing; give it a type, or take its commands out")]
    VirtualRuns,
    /// It runs nothing and is not virtual.
    #[error("it has nothing to start; name a command, or make it virtual")]
    RunsNothing,
    /// It is no oneshot and has several commands to start it.
    #[error("only a oneshot is started by several commands")]
    SeveralStarts,
    /// It is scripted, and there is no script that ends it.
    #[error("a scripted unit needs a command that stops it")]
    NoStop,
    /// It would be started again for ever, because it is meant to end.
    #[error("a unit that is meant to end cannot be restarted always")]
    RestartedAlways,
    /// Its delay would not grow by this, but vanish.
    #[error("its delay grows by a factor of 0; the least is 1")]
    NoFactor,
    /// Its longest delay is shorter than its first.
    #[error("its longest delay is shorter than its first")]
    DelaysCrossed,
}

/// Units that wait for one another: the shortest such cycle, from its smallest name on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyCycle {
    /// Each unit, with the kind of its dependency on the next; the last depends on the first.
    pub steps: Vec<(Name, EdgeKind)>,
}

impl GraphError {
    /// The units that it is about, by name; none if it is about the settings.
    #[must_use]
    pub fn units(&self) -> Vec<&Name> {
        match self {
            Self::DuplicateUnit { name: unit, .. }
            | Self::NothingProvided { unit }
            | Self::ProvidedTwice { unit, .. }
            | Self::NotProvided { unit, .. }
            | Self::Conflict { unit, .. } => vec![unit],
            Self::DuplicateProvider { units, .. } => units.iter().collect(),
            Self::Cycle(cycle) => cycle.steps.iter().map(|(unit, _)| unit).collect(),
            Self::NoAlternative { .. }
            | Self::NoGoal { .. }
            | Self::GoalMasked { .. }
            | Self::NothingMasked { .. }
            | Self::TooMany { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for DependencyCycle {
    /// `a -depends-on-> b -waits-for-> a`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, kind) in &self.steps {
            write!(f, "{unit} -{kind}-> ")?;
        }
        self.steps.first().map_or(Ok(()), |(unit, _)| unit.fmt(f))
    }
}

fn list(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

fn near_hint(near: Option<&Target>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
}
