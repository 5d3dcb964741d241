//! Rebalancing: requests to spread the units of a cluster more evenly, and their progress.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use crate::{ActiveState, MachineId, Snapshot, TargetState, UnitState};

/// A request to move units from fuller machines to emptier ones, until no further move reaches the
/// required [`gain`](RebalanceLimits::gain).
///
/// The request stays in the cluster until it is completed or withdrawn. A new leader therefore
/// continues it at the point where the previous leader stopped.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of orders that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalancing {
    /// Limits on the moves.
    pub limits: RebalanceLimits,
    /// Number of units moved so far.
    pub moved: u32,
    /// The most recent moves, including those in flight.
    pub moves: BTreeMap<UnitName, RecentMove>,
}

/// Limits of a rebalancing request.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of orders that a new field has to become a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceLimits {
    /// Maximum number of moves in flight at the same time. A move is in flight from the time the
    /// unit leaves its machine until the unit is active on the other machine.
    pub max_in_flight: u32,
    /// Minimum gain in balance per move. A unit moves only to a machine with at least `gain + 2`
    /// fewer units than the unit's present machine. With a gain of 0, for example, machines with
    /// five and three units end up with four each.
    pub gain: u32,
    /// Minimum number of active instances of a template.
    pub min_available: u32,
    /// Maximum total number of moves; `None` for no limit.
    pub max_moves: Option<u32>,
}

/// A unit that was moved by a rebalancing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentMove {
    /// The machine that the unit left.
    pub from: MachineId,
    /// The machine that the unit moved to.
    pub to: MachineId,
    /// Whether the unit was active when it left its machine. The move of an inactive unit
    /// interrupts nothing, so it does not count as in flight.
    pub was_active: bool,
}

impl Default for RebalanceLimits {
    /// One move at a time, for any gain, without a total limit.
    fn default() -> Self {
        Self { max_in_flight: 1, gain: 0, min_available: 0, max_moves: None }
    }
}

impl RebalanceLimits {
    /// Upper bound of `max_in_flight`.
    pub const MAX_IN_FLIGHT: u32 = 100;
}

impl Rebalancing {
    /// Makes a request without any moves so far.
    #[must_use]
    pub fn new(limits: RebalanceLimits) -> Self {
        Self { limits, moved: 0, moves: BTreeMap::new() }
    }

    /// Returns the moves in flight, in the order of the unit names. A move is in flight if the unit
    /// was active before it and is not yet known to be active on the new machine. A unit that ran
    /// to completion there has arrived; a unit that failed has not.
    pub fn in_flight<'a>(
        &'a self,
        cluster: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a UnitName, &'a RecentMove)> {
        self.moves
            .iter()
            .filter(|(unit, moving)| moving.was_active && is_in_flight(cluster, unit, moving))
    }

    /// Returns the number of moves that may start now.
    #[must_use]
    pub fn moves_allowed(&self, cluster: &Snapshot) -> u32 {
        let in_flight = u32::try_from(self.in_flight(cluster).count()).unwrap_or(u32::MAX);
        self.limits.max_in_flight.saturating_sub(in_flight).min(self.moves_left())
    }

    /// Returns the number of moves that remain under the total limit.
    #[must_use]
    pub fn moves_left(&self) -> u32 {
        self.limits.max_moves.map_or(u32::MAX, |most| most.saturating_sub(self.moved))
    }
}

/// Returns `true` if a moved unit is not yet known to be active on its new machine. Returns `false`
/// if the unit has arrived, was placed elsewhere since, or is no longer to be launched.
fn is_in_flight(cluster: &Snapshot, unit: &UnitName, moving: &RecentMove) -> bool {
    let placement = cluster.placement(unit.as_str());
    let Some(placement) = placement.filter(|placement| placement.machine == moving.to) else {
        return false;
    };
    let is_launched = |desired| desired == TargetState::Launched;
    if !cluster.unit(unit.as_str()).is_some_and(|unit| is_launched(unit.desired)) {
        return false;
    }
    let state = cluster.state(unit.as_str(), moving.to.as_str());
    !state.is_some_and(|state| state.epoch == placement.epoch && has_arrived(state))
}

fn has_arrived(state: &UnitState) -> bool {
    match state.systemd.active {
        ActiveState::Active | ActiveState::Reloading => true,
        ActiveState::Inactive => {
            state.requested == TargetState::Launched && state.systemd.result.is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fleet_unitfile::UnitFile;

    use super::*;
    use crate::unit::LoadState;
    use crate::{Epoch, Generation, SystemdState, Unit};

    fn cluster(desired: TargetState, machine: &str, epoch: u64) -> Snapshot {
        let (mut cluster, file) = (Snapshot::default(), UnitFile::parse("").unwrap());
        let name: UnitName = "a.service".parse().unwrap();
        cluster.put_unit(Unit::new(name.clone(), file, crate::Requirements::default(), desired));
        cluster.place(name, machine.parse().unwrap(), Epoch(epoch));
        cluster
    }

    fn reported(cluster: &mut Snapshot, epoch: u64, active: ActiveState, result: Option<&str>) {
        let unit = cluster.unit("a.service").unwrap().clone();
        let systemd = SystemdState {
            result: result.map(str::to_owned),
            ..SystemdState::new(LoadState::Loaded, active, "x")
        };
        cluster.put_state(UnitState {
            unit: unit.name.clone(),
            machine: "m2".parse().unwrap(),
            hash: unit.hash(),
            requested: TargetState::Launched,
            epoch: Epoch(epoch),
            generation: Generation(0),
            systemd,
            problem: None,
            health: None,
            output: Vec::new(),
        });
    }

    fn order(was_active: bool) -> Rebalancing {
        let [from, to]: [MachineId; 2] = ["m1", "m2"].map(|id| id.parse().unwrap());
        let limits =
            RebalanceLimits { max_in_flight: 2, max_moves: Some(4), ..RebalanceLimits::default() };
        let moves =
            BTreeMap::from([("a.service".parse().unwrap(), RecentMove { from, to, was_active })]);
        Rebalancing { moved: 3, moves, ..Rebalancing::new(limits) }
    }

    #[test]
    fn move_is_in_flight_until_the_unit_is_active() {
        use ActiveState::{Activating, Active, Failed, Inactive, Reloading};
        for (epoch, active, result, expected) in [
            (5, Active, None, 0),
            (5, Reloading, None, 0),
            (5, Inactive, Some("success"), 0),
            (5, Inactive, None, 1),
            (5, Activating, Some("success"), 1),
            (5, Failed, Some("exit-code"), 1),
            (4, Active, None, 1), // from when it was there before
        ] {
            let mut cluster = cluster(TargetState::Launched, "m2", 5);
            assert_eq!(order(true).in_flight(&cluster).count(), 1, "nothing is known");
            reported(&mut cluster, epoch, active, result);
            assert_eq!(order(true).in_flight(&cluster).count(), expected, "{epoch} {active}");
        }
    }

    #[test]
    fn unwanted_or_inactive_units_are_not_in_flight() {
        let launched = TargetState::Launched;
        for (desired, machine, was_active) in [
            (TargetState::Loaded, "m2", true),
            (launched, "m1", true),
            (launched, "m3", true),
            (launched, "m2", false),
        ] {
            let cluster = cluster(desired, machine, 5);
            assert_eq!(order(was_active).in_flight(&cluster).count(), 0, "{desired} {machine}");
        }
        assert_eq!(order(true).in_flight(&Snapshot::default()).count(), 0, "it is gone");
    }

    #[test]
    fn moves_allowed_is_bounded_by_free_and_remaining_moves() {
        let cluster = cluster(TargetState::Launched, "m2", 5);
        assert_eq!((order(true).moves_allowed(&cluster), order(true).moves_left()), (1, 1));
        assert_eq!(order(false).moves_allowed(&cluster), 1, "one is left of four");
        let limits = RebalanceLimits { max_in_flight: 2, ..RebalanceLimits::default() };
        let free = Rebalancing { limits, ..order(false) };
        assert_eq!((free.moves_allowed(&cluster), free.moves_left()), (2, u32::MAX));
        let mut shared = cluster.clone();
        shared.rebalancing = Some(Arc::new(free));
        assert!(shared.rebalancing.is_some() && cluster.rebalancing.is_none());
    }
}
