//! Sections 5 and 6 of the letter, what they share: who leaves together, who is up, and how a
//! company comes to another machine.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Peer};
use fleet_unitfile::UnitName;

use super::come::with_unit;
use super::state::{PlacementState, demands, lacks_a_peer, single};
use crate::HoldReason;

/// A company that is to leave its machine for a drain or for balance.
#[derive(Debug)]
pub struct EvictionGroup<'g, 'a> {
    /// Who is where with the company in its place.
    pub before: &'g PlacementState<'a>,
    /// Who is where without it.
    pub without: &'g PlacementState<'a>,
    /// Its units: each after those that it names, then by name.
    pub company: &'g [UnitName],
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
    /// How many units a company may have that moves for balance.
    pub max_group_size: u32,
    /// By how much more than one unit a move must be worth it.
    pub gain: u32,
}

impl EvictionGroup<'_, '_> {
    /// Why these units may not leave the machines where they are placed: too few instances of a
    /// template would be up.
    #[must_use]
    pub fn held_up(&self, leaving: &BTreeSet<UnitName>) -> Option<HoldReason> {
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
        let at_home = self.before.places.iter().filter(|(name, at)| {
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

/// The company of a unit: with those on its machine that it names, and those that would lack a unit
/// if the company were gone and the global units were fitted in anew.
pub(super) fn company(
    state: &PlacementState<'_>,
    head: UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let placed = state.placed_on(machine);
    let mut company = BTreeSet::from([head]);
    loop {
        let before = company.clone();
        for name in &before {
            company.extend(named(state, name).filter(|name| placed.contains(name)));
        }
        let rest = without(state, &company);
        let there = rest.on(machine);
        let lacks = |name: &UnitName| lacks_a_peer(state.cluster, name, &there);
        company.extend(rest.placed_on(machine).into_iter().filter(lacks));
        if company == before {
            return company;
        }
    }
}

/// The units that a unit's `MachineOf=` names, patterns left out.
fn named(state: &PlacementState<'_>, name: &UnitName) -> impl Iterator<Item = UnitName> {
    let peers = demands(state.cluster, name).machine_of.iter();
    peers.filter_map(|peer| match peer {
        Peer::Named(other) => Some(other.clone()),
        Peer::Matching(_) => None,
    })
}

/// The state in which some units are nowhere.
pub(super) fn without<'a>(
    state: &PlacementState<'a>,
    company: &BTreeSet<UnitName>,
) -> PlacementState<'a> {
    let mut state = state.clone();
    state.places.retain(|name, _| !company.contains(name));
    state
}

/// Each after those that it names, then by name; who can come after nobody comes as named.
pub(super) fn in_order(state: &PlacementState<'_>, company: &BTreeSet<UnitName>) -> Vec<UnitName> {
    let mut left = company.clone();
    let mut order = Vec::new();
    while let Some(first) = left.first().cloned() {
        let is_next = |name: &&UnitName| !named(state, name).any(|other| left.contains(&other));
        let next = left.iter().find(is_next).cloned().unwrap_or(first);
        left.remove(&next);
        order.push(next);
    }
    order
}

/// The state with all of a company put on a machine, in rounds: in each those that the machine
/// takes, in the order of the company.
pub(super) fn with_company<'a>(
    state: &PlacementState<'a>,
    company: &[UnitName],
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    let (mut state, mut come) = (state.clone(), Vec::new());
    while come.len() < company.len() {
        let before = come.len();
        for name in company {
            let unit = single(state.cluster, name)?;
            if come.contains(name) {
                continue;
            }
            if let Ok(next) = with_unit(&state, unit, machine, &come) {
                state = next;
                come.push(name.clone());
            }
        }
        if come.len() == before {
            return None;
        }
    }
    Some(state)
}
