//! Placement policy of an embedder: the ranking, and custom rules and scores.

use std::fmt;
use std::sync::Arc;

use fleet_core::{Machine, Requirements};
use fleet_unitfile::UnitName;

use crate::view::View;

/// Order of preference among machines of equal score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
/// use fleet_scheduler::{Policy, Ranking};
///
/// let packed = Policy { ranking: Ranking::BinPacking, ..Policy::default() };
/// assert!(packed.rules.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
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
pub struct Candidate<'a> {
    /// The unit's name.
    pub name: &'a UnitName,
    /// The unit's requirements.
    pub requirements: &'a Requirements,
}

/// The changes after which a custom rule may let a machine accept a unit that the rule refused
/// there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
/// use fleet_core::{Machine, Snapshot};
/// use fleet_scheduler::{Candidate, HardRule, Index, RetryOn, Policy, View};
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
/// let policy = Policy { rules: vec![std::sync::Arc::new(AtMost(2))], ..Policy::default() };
/// let mut index = Index::load(policy, &Snapshot::default());
/// assert!(index.plan().is_empty());
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
