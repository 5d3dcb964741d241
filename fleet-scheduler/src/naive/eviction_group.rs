//! Sections 5 and 6 of the rule_set, what they share: who leaves together, who is up, and how a
//! units comes to another machine.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Peer};
use fleet_unitfile::UnitName;

use super::assign::with_unit;
use super::state::{PlacementState, lacks_a_peer, requirements, single};
use crate::HoldReason;

/// A units that is to leave its machine for a drain or for balance.
#[derive(Debug)]
pub struct EvictionGroup<'g, 'a> {
    /// Who is where with the units in its place.
    pub before: &'g PlacementState<'a>,
    /// Who is where without it.
    pub without: &'g PlacementState<'a>,
    /// Its units: each after those that it names, then by name.
    pub units: &'g [UnitName],
    /// The machine that it is to leave.
    pub machine: &'g Machine,
    /// How many instances of a template must be up.
    pub min_available: u32,
    /// The units that are placed and not up.
    pub down: &'g BTreeSet<UnitName>,
    /// The units that have been moved for the drain or for balance, or have had to make room.
    pub moved: &'g BTreeSet<UnitName>,
    /// How many units companies have moved so far.
    pub count: usize,
    /// How many they may move: at once for a drain, the whole budget for balance.
    pub most: u32,
    /// How many units a units may have that moves for balance.
    pub max_group_size: u32,
    /// By how much more than one unit a move must be worth it.
    pub gain: u32,
}

impl EvictionGroup<'_, '_> {
    /// Why these units may not leave the machines where they are placed: too few instances of a
    /// template would be up.
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

    /// The units that are up: single, on a machine that is present, not named as down, and not
    /// moved by this plan.
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

/// The units of a unit: with those on its machine that it names, and those that would lack a unit
/// if the units were gone and the global units were fitted in anew.
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
        let there = rest.units_on(machine);
        let lacks = |name: &UnitName| lacks_a_peer(state.cluster, name, &there);
        units.extend(rest.placed_on(machine).into_iter().filter(lacks));
        if units == before {
            return units;
        }
    }
}

/// The units that a unit's `MachineOf=` names, patterns left out.
fn named(state: &PlacementState<'_>, name: &UnitName) -> impl Iterator<Item = UnitName> {
    let peers = requirements(state.cluster, name).machine_of.iter();
    peers.filter_map(|peer| match peer {
        Peer::Named(other) => Some(other.clone()),
        Peer::Matching(_) => None,
    })
}

/// The state in which some units are nowhere.
pub(super) fn without<'a>(
    state: &PlacementState<'a>,
    units: &BTreeSet<UnitName>,
) -> PlacementState<'a> {
    let mut state = state.clone();
    state.placements.retain(|name, _| !units.contains(name));
    state
}

/// Each after those that it names, then by name; who can arrived after nobody comes as named.
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

/// The state with all of a units put on a machine, in rounds: in each those that the machine
/// takes, in the order of the units.
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
