//! The common part of sections 5 and 6 of the specification: eviction groups, running instances,
//! and the move of a group to another machine.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Machine;
use fleet_core::pattern::Peer;
use fleet_unitfile::UnitName;

use super::assign::with_unit;
use super::state::{PlacementState, lacks_a_peer, requirements, single};
use crate::HoldReason;

/// A group of units that are to leave their machine together, for a drain or a rebalancing.
#[derive(Debug)]
pub struct EvictionGroup<'g, 'a> {
    /// The state with the group in its place.
    pub before: &'g PlacementState<'a>,
    /// The state without the group.
    pub without: &'g PlacementState<'a>,
    /// The units of the group. Each comes after those that it names; units are otherwise sorted by
    /// name.
    pub units: &'g [UnitName],
    /// The machine that the group is to leave.
    pub machine: &'g Machine,
    /// Number of instances of a template that must stay up.
    pub min_available: u32,
    /// The units that are placed and not up.
    pub down: &'g BTreeSet<UnitName>,
    /// The units that the plan has moved so far for the drain or for balance, and the units that
    /// made room for them.
    pub moved: &'g BTreeSet<UnitName>,
    /// Number of units in the groups that the plan has moved so far.
    pub moved_count: usize,
    /// Upper limit of `moved_count`: `max_moves` of a drain, or the budget of a rebalancing.
    pub max_moves: u32,
    /// Maximum size of a group that moves for balance.
    pub max_group_size: u32,
    /// Threshold for a move; see [`Rebalance::gain`](crate::Rebalance::gain).
    pub gain: u32,
}

impl EvictionGroup<'_, '_> {
    /// Returns a reason if these units may not leave, because too few instances of a template would
    /// then be up.
    #[must_use]
    pub fn hold_reason(&self, leaving: &BTreeSet<UnitName>) -> Option<HoldReason> {
        let up = self.up();
        let leaves = |name: &&UnitName| leaving.contains(*name);
        let lost = per_template(up.iter().filter(leaves));
        let up = per_template(up.iter());
        lost.into_iter().find_map(|(template, lost)| {
            let (up, min_available) = (up[&template], self.min_available);
            (up < min_available.saturating_add(lost)).then_some(HoldReason::MinAvailable {
                template,
                up,
                min_available,
            })
        })
    }

    /// Returns the units that are up. A unit is up if all of these hold:
    ///
    /// - It is a single unit on the machine of its recorded placement, and that machine is present.
    /// - It is not listed as down.
    /// - This plan has not moved it.
    fn up(&self) -> BTreeSet<UnitName> {
        let cluster = self.before.cluster;
        let at_home = self.before.placements.iter().filter(|(name, at)| {
            let placement = cluster.placement(name.as_str());
            placement.is_some_and(|placement| placement.machine == **at)
        });
        let mut up: BTreeSet<UnitName> = at_home.map(|(name, _)| name.clone()).collect();
        up.retain(|name| {
            let fixed = !self.down.contains(name) && !self.moved.contains(name);
            fixed && single(cluster, name).is_some()
        });
        up
    }
}

fn per_template<'a>(names: impl Iterator<Item = &'a UnitName>) -> BTreeMap<UnitName, u32> {
    let mut counts = BTreeMap::new();
    for template in names.filter_map(UnitName::template) {
        *counts.entry(template).or_insert(0) += 1;
    }
    counts
}

/// Returns the eviction group of a unit: all units that must leave the machine together with this
/// unit.
///
/// If a member of the group names another unit there in `MachineOf=`, that unit is a member too. So
/// is each unit that would lack a peer after the group has left. The global units that fit on the
/// machine without the group count as peers.
pub(super) fn eviction_group(
    state: &PlacementState<'_>,
    head: UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let placed = state.placed_on(machine);
    let mut units = BTreeSet::from([head]);
    loop {
        let before = units.clone();
        for name in &before {
            units.extend(named(state, name).filter(|name| placed.contains(name)));
        }
        let rest = without(state, &units);
        let present = rest.units_on(machine);
        let lacks = |name: &UnitName| lacks_a_peer(state.cluster, name, &present);
        units.extend(rest.placed_on(machine).into_iter().filter(lacks));
        if units == before {
            return units;
        }
    }
}

/// Returns the units on a machine that `MachineOf=` ties to a unit by name, directly or through
/// others there, and the unit itself.
pub(super) fn tied_by_name(
    state: &PlacementState<'_>,
    unit: &UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let placed = state.placed_on(machine);
    let mut tied = BTreeSet::from([unit.clone()]);
    loop {
        let before = tied.len();
        for name in &placed {
            let names: Vec<UnitName> =
                named(state, name).filter(|other| placed.contains(other)).collect();
            if tied.contains(name) || names.iter().any(|other| tied.contains(other)) {
                tied.extend(names);
                tied.insert(name.clone());
            }
        }
        if tied.len() == before {
            return tied;
        }
    }
}

/// Returns the units that a unit's `MachineOf=` names, without patterns.
fn named(state: &PlacementState<'_>, name: &UnitName) -> impl Iterator<Item = UnitName> {
    let peers = requirements(state.cluster, name).machine_of.iter();
    peers.filter_map(|peer| match peer {
        Peer::Named(other) => Some(other.clone()),
        Peer::Matching(_) => None,
    })
}

/// Returns the state with some units on no machine.
pub(super) fn without<'a>(
    state: &PlacementState<'a>,
    units: &BTreeSet<UnitName>,
) -> PlacementState<'a> {
    let mut state = state.clone();
    state.placements.retain(|name, _| !units.contains(name));
    state
}

/// Returns the units in an order in which each follows the units that it names. Units are otherwise
/// sorted by name. In a cycle, the first unit by name comes first.
pub(super) fn in_order(state: &PlacementState<'_>, units: &BTreeSet<UnitName>) -> Vec<UnitName> {
    let mut left = units.clone();
    let mut order = Vec::new();
    while let Some(first) = left.first().cloned() {
        let is_next = |name: &&UnitName| !named(state, name).any(|other| left.contains(&other));
        let next = left.iter().find(is_next).cloned().unwrap_or(first);
        left.remove(&next);
        order.push(next);
    }
    order
}

/// Assigns a whole group to a machine, in rounds. Each round goes through the remaining units in
/// the order of the group and assigns those that the machine accepts.
///
/// Returns the new state, or `None` if a round assigns no unit.
pub(super) fn with_units<'a>(
    state: &PlacementState<'a>,
    units: &[UnitName],
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    let (mut state, mut arrived) = (state.clone(), Vec::new());
    while arrived.len() < units.len() {
        let before = arrived.len();
        for name in units {
            let unit = single(state.cluster, name)?;
            if arrived.contains(name) {
                continue;
            }
            if let Ok(next) = with_unit(&state, unit, machine, &arrived) {
                state = next;
                arrived.push(name.clone());
            }
        }
        if arrived.len() == before {
            return None;
        }
    }
    Some(state)
}
