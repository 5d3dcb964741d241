//! Errors that keep units from forming a graph.

use std::fmt;

use crate::graph::model::{EdgeKind, Name, Target};

/// An error in a set of units or in the settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Several units share a name.
    #[error("{count} units are named {name}; give each a unique name")]
    DuplicateUnit {
        /// The shared name.
        name: Name,
        /// Number of units with that name.
        count: usize,
    },
    /// A unit provides no target, so no unit can need it.
    #[error("{unit} provides nothing; name at least one target that it provides")]
    NothingProvided {
        /// The unit.
        unit: Name,
    },
    /// A unit lists a target twice among those that it provides.
    #[error("{unit} provides {target} twice; name it once")]
    ProvidedTwice {
        /// The unit.
        unit: Name,
        /// The target.
        target: Target,
    },
    /// Several units provide one target.
    #[error("{target} is provided by {}; choose one of them in `alternatives`", list(units))]
    DuplicateProvider {
        /// The target.
        target: Target,
        /// The units, sorted by name.
        units: Vec<Name>,
    },
    /// An alternative in the settings chooses this unit as the provider of the target. But the unit
    /// does not exist or does not provide the target.
    #[error("`alternatives` chooses {unit} for {target}, which {unit} does not provide")]
    NoAlternative {
        /// The target.
        target: Target,
        /// The chosen unit.
        unit: Name,
    },
    /// A unit depends on a target without a provider.
    #[error("{unit} has `{kind}: {target}`, which no unit provides{}", near_hint(near.as_ref()))]
    NotProvided {
        /// The dependent unit.
        unit: Name,
        /// Kind of the dependency.
        kind: EdgeKind,
        /// The missing target.
        target: Target,
        /// A target with a similar name.
        near: Option<Target>,
    },
    /// Units wait for one another in a cycle, or one unit for itself.
    #[error("dependency cycle: {0}; remove one of these dependencies")]
    Cycle(DependencyCycle),
    /// Settings of a unit contradict each other.
    #[error("{unit}: {problem}")]
    Conflict {
        /// The unit.
        unit: Name,
        /// The contradiction.
        problem: SettingConflict,
    },
    /// No unit provides the goal.
    #[error("no unit provides the goal {goal}{}", near_hint(near.as_ref()))]
    NoGoal {
        /// The goal.
        goal: Target,
        /// A target with a similar name.
        near: Option<Target>,
    },
    /// The goal is masked, which would stop every unit.
    #[error("the goal {goal} is masked; choose another goal, or unmask it")]
    GoalMasked {
        /// The goal.
        goal: Target,
    },
    /// No unit provides a masked target.
    #[error("no unit provides {target}, which is masked{}", near_hint(near.as_ref()))]
    NothingMasked {
        /// The target.
        target: Target,
        /// A target with a similar name.
        near: Option<Target>,
    },
    /// There are more units or dependencies than a graph may have.
    #[error("there are {found} {what}; at most {most} are allowed")]
    TooMany {
        /// Counted items: `units` or `dependencies`.
        what: &'static str,
        /// Actual number.
        found: usize,
        /// Maximum.
        most: usize,
    },
}

/// Settings of one unit that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SettingConflict {
    /// A virtual unit has commands.
    #[error("a virtual unit runs nothing; give it another type, or remove its commands")]
    VirtualRuns,
    /// A unit that is not virtual has no commands.
    #[error("the unit has nothing to start; write a start command, or make the unit virtual")]
    RunsNothing,
    /// A unit other than a oneshot has several start commands.
    #[error("only a oneshot may have several start commands")]
    SeveralStarts,
    /// A scripted unit has no stop command.
    #[error("a scripted unit needs a stop command")]
    NoStop,
    /// A unit that runs to completion would be restarted forever.
    #[error("a oneshot cannot be restarted after success: use restart: on-failure or never")]
    RestartedAlways,
    /// The growth factor would reduce the restart delay to zero.
    #[error("the factor of the restart delay is 0; write 1 or more")]
    NoFactor,
    /// The maximum restart delay is shorter than the initial delay.
    #[error("the maximum restart delay is shorter than the initial restart delay")]
    DelaysCrossed,
}

/// The shortest cycle of units that wait for one another. It starts at the unit with the
/// alphabetically first name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DependencyCycle {
    /// Each unit with the kind of its dependency on the next. The last unit depends on the first.
    pub steps: Vec<(Name, EdgeKind)>,
}

impl GraphError {
    /// Returns the units that the error concerns, sorted by name. The list is empty for an error in
    /// the settings.
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
    /// Formats the cycle as `a -depends-on-> b -waits-for-> a`.
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
