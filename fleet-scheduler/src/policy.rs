//! Placement policy of an embedder: the ranking, custom rules and scores, and the view of the
//! cluster that these get.

use std::fmt;
use std::sync::Arc;

use fleet_core::{Machine, MachineId, Requirements, Resources};
use fleet_unitfile::UnitName;

/// Order of preference among machines of equal score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ranking {
    /// Prefers the machine with the fewest units, global units counted.
    #[default]
    LeastLoaded,
    /// Prefers the machine with the most units, global units counted.
    BinPacking,
    /// Prefers the machine with the fewest instances of the unit's template. Among equal machines,
    /// prefers the one with the fewest units.
    Spread,
}

/// The configurable part of placement decisions.
///
/// ```
/// use fleet_scheduler::policy::{Policy, Ranking};
///
/// let packed = Policy::new().with_ranking(Ranking::BinPacking);
/// assert!(packed.rules.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Policy {
    /// Order of preference among machines of equal score.
    pub ranking: Ranking,
    /// Custom rules. The planner checks them in this order, after all built-in rules, for each unit
    /// that is about to come to a machine. They slow planning down, because units with equal
    /// requirements can no longer be treated alike.
    pub rules: Vec<Arc<dyn HardRule>>,
    /// Custom scores. The planner adds them to the scores of `Prefer=` and `Spread=`. It computes
    /// them for every pair of unit and machine.
    pub scores: Vec<Arc<dyn Score>>,
}

impl Policy {
    /// Creates the default policy: `LeastLoaded`, without custom rules and scores.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the order of preference among machines of equal score.
    #[must_use]
    pub fn with_ranking(self, ranking: Ranking) -> Self {
        Self { ranking, ..self }
    }

    /// Adds a custom rule, which is checked after the others.
    #[must_use]
    pub fn with_rule(mut self, rule: impl HardRule + 'static) -> Self {
        self.rules.push(Arc::new(rule));
        self
    }

    /// Adds a custom score.
    #[must_use]
    pub fn with_score(mut self, score: impl Score + 'static) -> Self {
        self.scores.push(Arc::new(score));
        self
    }

    /// Returns whether custom rules or scores may distinguish units with equal requirements.
    pub(crate) fn is_custom(&self) -> bool {
        !(self.rules.is_empty() && self.scores.is_empty())
    }

    /// Returns whether some custom rule must be checked again after any change of the cluster.
    pub(crate) fn retries_on_any_change(&self) -> bool {
        self.rules.iter().any(|rule| rule.retry_on() == RetryOn::AnyChange)
    }
}

/// A unit as custom rules and scores see it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// The unit's name.
    pub name: &'a UnitName,
    /// The unit's requirements.
    pub requirements: &'a Requirements,
}

/// The changes after which a custom rule may let a machine accept a unit that the rule refused
/// there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryOn {
    /// No change, as long as the unit's requirements stay the same.
    Nothing,
    /// A change of the machine: its metadata, its capacity, or any other property.
    MachineChange,
    /// The departure of any other unit from the machine, or a change of the machine.
    Departure,
    /// Any change of the cluster.
    AnyChange,
}

/// A custom rule that refuses units on machines.
///
/// Each result must depend only on the arguments of the method. The planner checks the rule only
/// when a unit is about to come to a machine. Units that are already placed stay, even if the rule
/// would refuse them.
///
/// ```
/// use fleet_scheduler::prelude::*;
///
/// /// At most so many units on one machine.
/// #[derive(Debug)]
/// struct AtMost(usize);
///
/// impl HardRule for AtMost {
///     fn name(&self) -> &str {
///         "AtMost"
///     }
///
///     fn retry_on(&self) -> RetryOn {
///         RetryOn::Departure
///     }
///
///     fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
///         let there = view.units_on(&machine.id).count();
///         (there >= self.0).then(|| format!("{there} units are on it"))
///     }
/// }
///
/// let mut cluster = Cluster::with_policy(Policy::new().with_rule(AtMost(1)));
/// cluster.add_machine(Machine::named("m1")?);
/// cluster.add(Demand::new("a")?);
/// cluster.add(Demand::new("b")?);
/// assert_eq!(cluster.plan().steps.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait HardRule: fmt::Debug + Send + Sync {
    /// Returns the name that refusals show.
    fn name(&self) -> &str;

    /// Returns the changes after which the rule may accept a unit that it refused before.
    fn retry_on(&self) -> RetryOn;

    /// Returns the reason to refuse the unit on the machine, or `None` to accept it.
    fn refuse(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String>;
}

/// A custom score that ranks the machines that accept a unit.
///
/// Each result must depend only on the arguments of the method.
pub trait Score: fmt::Debug + Send + Sync {
    /// Returns the name of the score.
    fn name(&self) -> &str;

    /// Returns the score of the machine for the unit; higher is better.
    fn score(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> i64;
}

/// The cluster as a custom rule or score sees it when a unit is about to come to a machine.
///
/// A rule sees the machine without the units that the new unit replaces, and without those that
/// must move with them. A score sees all of these units, because it is computed before any of them
/// leaves.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    source: &'a dyn ViewSource,
}

/// A source of placements for a [`View`].
pub(crate) trait ViewSource: fmt::Debug + Sync {
    /// Returns the units on a machine, including global units, in the order of their names.
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>>;

    /// Returns the present machines, in the order of their IDs.
    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_>;

    /// Returns the machine of a single or unreadable unit.
    fn machine_of(&self, unit: &UnitName) -> Option<&Machine>;

    /// Returns the sum of the reservations on a machine.
    fn used(&self, machine: &MachineId) -> Resources {
        let units = self.units_on(machine).into_iter();
        units.fold(Resources::ZERO, |sum, unit| sum.saturating_add(unit.requirements.reserve))
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(source: &'a dyn ViewSource) -> Self {
        Self { source }
    }

    /// Returns the units on a machine, including global units, in the order of their names. An
    /// unreadable unit has no requirements. A machine that is not present has no units.
    pub fn units_on(&self, machine: &MachineId) -> impl Iterator<Item = Candidate<'_>> {
        self.source.units_on(machine).into_iter()
    }

    /// Returns the sum of the reservations on a machine.
    #[must_use]
    pub fn used(&self, machine: &MachineId) -> Resources {
        self.source.used(machine)
    }

    /// Returns the present machines, in the order of their IDs.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.source.machines()
    }

    /// Returns the machine of a placed unit at this point of the plan.
    #[must_use]
    pub fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        self.source.machine_of(unit)
    }
}
