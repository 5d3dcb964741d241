//! What an embedder can say about placement: the ranking, and rules and scores of its own.

use std::fmt;
use std::sync::Arc;

use fleet_core::{Machine, Requirements};
use fleet_unitfile::UnitName;

use crate::view::View;

/// In which order the machines that take a unit are preferred, where scores are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ranking {
    /// The one with the fewest units first, global ones counted.
    #[default]
    LeastLoaded,
    /// The one with the most units first, global ones counted.
    BinPacking,
    /// The one with the fewest instances of the unit's template first, then the one with the
    /// fewest units.
    Spread,
}

/// How placements are decided, as far as that can be chosen.
///
/// ```
/// use fleet_scheduler::{Policy, Ranking};
///
/// let packed = Policy { ranking: Ranking::BinPacking, ..Policy::default() };
/// assert!(packed.rules.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// In which order machines are preferred.
    pub ranking: Ranking,
    /// Rules of your own. They are asked of units that come to a machine, after all others, in this
    /// order. A plan is made much slower by them: no two units can be taken to be alike.
    pub rules: Vec<Arc<dyn HardRule>>,
    /// Scores of your own. They are added to those of `Prefer=` and `Spread=`. Every machine is
    /// asked for every unit.
    pub scores: Vec<Arc<dyn Score>>,
}

impl Policy {
    /// Whether two units may be told apart that ask for the same.
    pub(crate) fn is_custom(&self) -> bool {
        !(self.rules.is_empty() && self.scores.is_empty())
    }

    /// Whether anything that happens anywhere may lift a refusal.
    pub(crate) fn retries_on_any_change(&self) -> bool {
        self.rules.iter().any(|rule| rule.retry_on() == RetryOn::AnyChange)
    }
}

/// A unit that looks for a machine.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a UnitName,
    /// What it demands.
    pub requirements: &'a Requirements,
}

/// What may make a rule no longer refuse a unit that it refuses on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// Nothing, as long as the unit's requirements stay.
    Nothing,
    /// A change of the machine: its metadata, what it offers, or anything else that it says of
    /// itself.
    MachineChange,
    /// A unit that leaves that machine, or a change of the machine.
    Departure,
    /// Anything that happens anywhere.
    AnyChange,
}

/// A rule of your own: which machines do not take a unit.
///
/// It must depend on nothing but its arguments. It is asked of units that come; a unit that is
/// placed stays, whatever the rule says.
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
    /// The name that refusals bear.
    fn name(&self) -> &str;

    /// What may make it change its mind about a unit and a machine.
    fn retry_on(&self) -> RetryOn;

    /// Why the machine does not take the unit; `None` if it does.
    fn refuse(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String>;
}

/// A taste of your own: which of the machines that take a unit are better.
///
/// It must depend on nothing but its arguments.
pub trait Score: fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// How good the machine is for the unit; higher is better.
    fn score(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> i64;
}
