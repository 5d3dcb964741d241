//! The order to spread the units of a cluster more evenly, and how far it has come.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use crate::{ActiveState, MachineId, Snapshot, TargetState, UnitState};

/// An order to move units from full machines to emptier ones, until no move is worth it.
///
/// It stays in the cluster until it is carried out or somebody takes it back, so another engine
/// goes on with it where the one before had to leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalancing {
    /// How much may be moved, and for what.
    pub limits: RebalanceLimits,
    /// How many units were moved for it.
    pub moved: u32,
    /// The units that were moved last, those under way among them.
    pub moves: BTreeMap<UnitName, InFlightMove>,
}

/// What is asked for when a cluster is to be rebalanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceLimits {
    /// How many units may be under way at the same time: from when they leave a machine until they
    /// are up on the other.
    pub max_in_flight: u32,
    /// By how many units more than one a machine that is left must be fuller than the other.
    pub gain: u32,
    /// How many instances of a template must be up at any time.
    pub min_available: u32,
    /// How many units may be moved in all; nothing for as many as it takes.
    pub max_moves: Option<u32>,
}

/// A unit that was moved for the sake of balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightMove {
    /// The machine that it left.
    pub from: MachineId,
    /// The machine that it went to.
    pub to: MachineId,
    /// Whether it was up when it left. Who was not is disturbed by no move.
    pub was_active: bool,
}

impl Default for RebalanceLimits {
    /// One unit after the other, for every gain that there is, as many as it takes.
    fn default() -> Self {
        Self { max_in_flight: 1, gain: 0, min_available: 0, max_moves: None }
    }
}

impl RebalanceLimits {
    /// The highest number of units that may be under way at the same time.
    pub const MAX_IN_FLIGHT: u32 = 100;
}

impl Rebalancing {
    /// An order of which nothing was done yet.
    #[must_use]
    pub fn new(limits: RebalanceLimits) -> Self {
        Self { limits, moved: 0, moves: BTreeMap::new() }
    }

    /// The units that were up before they were moved and are not up again, as far as is known, in
    /// order of their names. Who ran and ended well there has arrived, too; who failed has not.
    pub fn in_flight<'a>(
        &'a self,
        cluster: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a UnitName, &'a InFlightMove)> {
        self.moves
            .iter()
            .filter(|(unit, moving)| moving.was_active && is_awaited(cluster, unit, moving))
    }

    /// How many units may be moved now.
    #[must_use]
    pub fn moves_allowed(&self, cluster: &Snapshot) -> u32 {
        let in_flight = u32::try_from(self.in_flight(cluster).count()).unwrap_or(u32::MAX);
        self.limits.max_in_flight.saturating_sub(in_flight).min(self.moves_left())
    }

    /// How many units may be moved in all from now on.
    #[must_use]
    pub fn moves_left(&self) -> u32 {
        self.limits.max_moves.map_or(u32::MAX, |most| most.saturating_sub(self.moved))
    }
}

/// Whether a unit belongs where it was moved to and has yet to come up there. One that has been
/// given another machine since, or is wanted no more, is no business of the order.
fn is_awaited(cluster: &Snapshot, unit: &UnitName, moving: &InFlightMove) -> bool {
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
    use crate::{Epoch, Generation, LoadState, SystemdState, Unit};

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
        });
    }

    fn order(was_active: bool) -> Rebalancing {
        let [from, to]: [MachineId; 2] = ["m1", "m2"].map(|id| id.parse().unwrap());
        let limits =
            RebalanceLimits { max_in_flight: 2, max_moves: Some(4), ..RebalanceLimits::default() };
        let moves =
            BTreeMap::from([("a.service".parse().unwrap(), InFlightMove { from, to, was_active })]);
        Rebalancing { moved: 3, moves, ..Rebalancing::new(limits) }
    }

    #[test]
    fn a_unit_is_under_way_until_its_new_machine_says_that_it_is_up() {
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
    fn who_is_not_wanted_there_or_was_not_up_is_not_waited_for() {
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
    fn what_may_be_moved_is_what_is_free_and_left() {
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
