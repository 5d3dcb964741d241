//! Rebalancing: the request to spread units more evenly.

use std::collections::BTreeSet;

use fleet_core::rebalancing::RebalanceLimits;
use fleet_core::{ActiveState, Snapshot, TargetState};
use fleet_unitfile::UnitName;

use crate::drain::down;

/// A request to spread units more evenly, with its limits.
///
/// ```
/// use fleet_scheduler::Rebalance;
///
/// let timid = Rebalance::with_budget(10).with_gain(3);
/// assert_eq!((timid.budget, timid.min_available), (10, 0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebalance {
    /// Maximum number of units that one plan moves.
    pub budget: u32,
    /// Maximum number of units in a group that moves together. With `None`, only the budget limits
    /// the size. The limit exists because all units of a group are in flight at the same time.
    pub max_group_size: Option<u32>,
    /// Required gain of a move. The gain is the number of units on the source before the move,
    /// minus the number on the target after it. It must be at least `gain` + 1.
    ///
    /// For example, a unit moves from five units to three if the field is 0, because 5 - 4 is at
    /// least 1. If the field is 1, it does not move.
    ///
    /// If all units are plain, two machines end up at most one unit apart with 0, and at most four
    /// with 3.
    pub gain: u32,
    /// Number of instances of each template that must stay up while units move, as for a
    /// [`Drain`](crate::Drain::min_available).
    pub min_available: u32,
    /// Placed units that are not up, as for a [`Drain`](crate::Drain::down).
    pub down: BTreeSet<UnitName>,
}

impl Rebalance {
    /// Creates a request for all worthwhile moves, up to this number of units.
    #[must_use]
    pub fn with_budget(budget: u32) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Sets the gain that a move must exceed.
    #[must_use]
    pub fn with_gain(self, gain: u32) -> Self {
        Self { gain, ..self }
    }

    /// Limits the size of a group that moves together.
    #[must_use]
    pub fn with_max_group_size(self, most: u32) -> Self {
        Self { max_group_size: Some(most), ..self }
    }

    /// Keeps that many instances of each template up.
    #[must_use]
    pub fn keep_available(self, min_available: u32) -> Self {
        Self { min_available, ..self }
    }

    /// Sets the placed units that are not up.
    #[must_use]
    pub fn with_down(self, down: impl IntoIterator<Item = UnitName>) -> Self {
        Self { down: down.into_iter().collect(), ..self }
    }

    /// Returns the request for the moves that the cluster's rebalance order allows now. Returns
    /// `None` if there is no order.
    ///
    /// If the order sets a minimum of available instances, the function reads the reported state of
    /// every placed unit.
    #[must_use]
    pub fn from_order(snapshot: &Snapshot) -> Option<Self> {
        let order = snapshot.rebalancing.as_ref()?;
        Some(Self { budget: order.moves_allowed(snapshot), ..Self::remaining(snapshot)? })
    }

    /// Returns the request for all remaining moves of the cluster's rebalance order, without regard
    /// to the units that are in flight. Returns `None` if there is no order.
    #[must_use]
    pub fn remaining(snapshot: &Snapshot) -> Option<Self> {
        let order = snapshot.rebalancing.as_ref()?;
        let RebalanceLimits { max_in_flight, gain, min_available, .. } = order.limits;
        let down = if min_available > 0 { down(snapshot) } else { BTreeSet::new() };
        Some(Self {
            budget: order.moves_left(),
            max_group_size: Some(max_in_flight),
            gain,
            min_available,
            down,
        })
    }

    /// Returns a copy of this request without the `down` units that may still come up. Returns
    /// `None` if there is no such unit.
    ///
    /// If a plan for the copy moves units and a plan for this request does not, the order is
    /// waiting for units to come up.
    #[must_use]
    pub fn assuming_recovery(&self, snapshot: &Snapshot) -> Option<Self> {
        let down = self.down.iter().filter(|unit| !may_come_up(snapshot, unit));
        let down: BTreeSet<UnitName> = down.cloned().collect();
        (down.len() < self.down.len()).then(|| Self { down, ..self.clone() })
    }
}

/// Returns whether a placed unit that is not up may still come up. This requires that the unit's
/// desired state is launched and that its run has not ended successfully. A failed unit counts,
/// because it may be restarted or repaired.
fn may_come_up(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let name = unit.as_str();
    let is_launched = snapshot.unit(name).is_some_and(|it| it.desired == TargetState::Launched);
    let placement = snapshot.placement(name);
    let state = placement.and_then(|at| snapshot.state(name, at.machine.as_str()));
    let has_ended = state.is_some_and(|state| {
        let systemd = &state.systemd;
        let is_over = systemd.active == ActiveState::Inactive && systemd.result.is_some();
        is_over && state.requested == TargetState::Launched
    });
    is_launched && !has_ended
}
