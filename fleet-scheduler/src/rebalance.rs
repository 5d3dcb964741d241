//! Rebalancing: what is asked for when units are to be spread more evenly.

use std::collections::BTreeSet;

use fleet_unitfile::UnitName;

/// How much may be moved about for the sake of balance, and for what gain.
///
/// ```
/// use fleet_scheduler::Rebalance;
///
/// let timid = Rebalance { gain: 3, ..Rebalance::within(10) };
/// assert_eq!((timid.budget, timid.keep_up), (10, 0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// How many units one plan moves at most.
    pub budget: u32,
    /// By how many units more than one the machine that is left must be fuller, before, than the
    /// other one is afterwards. With 0, plain units end up so that no two machines differ by more
    /// than one; with 3, by more than four.
    pub gain: u32,
    /// How many instances of a template must be up at any time, as for a
    /// [`Drain`](crate::Drain::keep_up).
    pub keep_up: u32,
    /// The units that are placed and not up just now, as for a [`Drain`](crate::Drain::down).
    pub down: BTreeSet<UnitName>,
}

impl Rebalance {
    /// For every gain that there is, but with no more than so many moves.
    #[must_use]
    pub fn within(budget: u32) -> Self {
        Self { budget, ..Self::default() }
    }
}
