//! Rebalancing: what is asked for when units are to be spread more evenly.

use std::collections::BTreeSet;

use fleet_core::{ActiveState, RebalanceLimits, Snapshot, TargetState};
use fleet_unitfile::UnitName;

use crate::drain::down;

/// How much may be moved about for the sake of balance, and for what gain.
///
/// ```
/// use fleet_scheduler::Rebalance;
///
/// let timid = Rebalance { gain: 3, ..Rebalance::with_budget(10) };
/// assert_eq!((timid.budget, timid.min_available), (10, 0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// How many units one plan moves at most.
    pub budget: u32,
    /// How many units a company may have that moves, if there is a bound beside the budget: those
    /// that can only move together are as many under way at the same time.
    pub max_group_size: Option<u32>,
    /// By how many units more than one the machine that is left must be fuller, before, than the
    /// other one is afterwards. With 0, plain units end up so that no two machines differ by more
    /// than one; with 3, by more than four.
    pub gain: u32,
    /// How many instances of a template must be up at any time, as for a
    /// [`Drain`](crate::Drain::min_available).
    pub min_available: u32,
    /// The units that are placed and not up just now, as for a [`Drain`](crate::Drain::down).
    pub down: BTreeSet<UnitName>,
}

impl Rebalance {
    /// For every gain that there is, but with no more than so many moves.
    #[must_use]
    pub fn with_budget(budget: u32) -> Self {
        Self { budget, ..Self::default() }
    }

    /// What may be moved now for the order that people gave; nothing if there is none. Who is up
    /// is known from what was published, and looked up only if there is a minimum: that costs what
    /// is placed.
    #[must_use]
    pub fn from_order(snapshot: &Snapshot) -> Option<Self> {
        let order = snapshot.rebalancing.as_ref()?;
        Some(Self { budget: order.moves_allowed(snapshot), ..Self::remaining(snapshot)? })
    }

    /// What is left to be moved for the order, as if all of it could be at the same time; nothing
    /// if there is none.
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

    /// The same if everybody were up who may yet come up; nothing if nobody may. Where this moves
    /// units and what is wanted moves none, the order waits for them.
    #[must_use]
    pub fn assuming_recovery(&self, snapshot: &Snapshot) -> Option<Self> {
        let down = self.down.iter().filter(|unit| !may_come_up(snapshot, unit));
        let down: BTreeSet<UnitName> = down.cloned().collect();
        (down.len() < self.down.len()).then(|| Self { down, ..self.clone() })
    }
}

/// Whether a unit that is placed and not up is to run and has not done its work. One that failed
/// is started again, or mended.
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
