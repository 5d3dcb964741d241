//! Section 3, first half: unsatisfiable units and affinity groups.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::UnitName;

use super::state::{PlacementState, requirements};

/// Each waiting unit with the waiting units that it names.
type Ties = BTreeMap<UnitName, BTreeSet<UnitName>>;

/// Returns the groups of waiting units, ordered by the first name in each group. The units of a
/// group are in the order of their assignment.
pub(super) fn groups(state: &PlacementState<'_>) -> Vec<Vec<UnitName>> {
    let unsatisfiable = unsatisfiable(state);
    let mut ties = ties(state);
    ties.retain(|name, _| !unsatisfiable.contains(name));
    let mut groups = Vec::new();
    while let Some(first) = ties.keys().next().cloned() {
        let group = tied(first, &ties);
        groups.push(in_order(&group, &ties));
        ties.retain(|name, _| !group.contains(name));
    }
    groups
}

/// Returns the units with an unsatisfiable `MachineOf=`.
pub(super) fn unsatisfiable(state: &PlacementState<'_>) -> BTreeSet<UnitName> {
    let ties = ties(state);
    let mut unsatisfiable = BTreeSet::new();
    loop {
        let before = unsatisfiable.clone();
        for (name, named) in &ties {
            let names_unsatisfiable = !named.is_disjoint(&before);
            if names_no_unit(state, name) || leads_to_itself(name, &ties) || names_unsatisfiable {
                unsatisfiable.insert(name.clone());
            }
        }
        if unsatisfiable == before {
            return unsatisfiable;
        }
    }
}

/// Returns whether the `MachineOf=` of a unit has a peer that matches no participating unit.
/// Unknown units, inactive units and templates do not participate.
fn names_no_unit(state: &PlacementState<'_>, name: &UnitName) -> bool {
    let peers = &requirements(state.cluster, name).machine_of;
    peers.iter().any(|peer| state.peer_candidates(name, peer).is_empty())
}

fn leads_to_itself(name: &UnitName, ties: &Ties) -> bool {
    let mut reached = ties[name].clone();
    loop {
        let before = reached.clone();
        reached.extend(before.iter().flat_map(|name| ties[name].clone()));
        if reached == before {
            return reached.contains(name);
        }
    }
}

fn ties(state: &PlacementState<'_>) -> Ties {
    let waiting = state.waiting();
    waiting
        .iter()
        .map(|name| (name.clone(), (state.rule_set.waiting_peers)(state, name, &waiting)))
        .collect()
}

/// Returns the waiting units that a unit names in `MachineOf=`. A pattern stands for the first
/// waiting unit, by name, that it matches. If a matching unit is on a machine already, the pattern
/// stands for no waiting unit.
pub(super) fn named(
    state: &PlacementState<'_>,
    name: &UnitName,
    waiting: &BTreeSet<UnitName>,
) -> BTreeSet<UnitName> {
    let mut named = BTreeSet::new();
    for peer in &requirements(state.cluster, name).machine_of {
        let meant = state.peer_candidates(name, peer);
        if !meant.iter().any(|name| state.is_anywhere(name)) {
            named.extend(meant.into_iter().find(|name| waiting.contains(name)));
        }
    }
    named
}

/// Returns the group of a unit: the unit itself, and all units that are tied to it, directly or
/// through other units. Two units are tied if one of them names the other.
fn tied(first: UnitName, ties: &Ties) -> BTreeSet<UnitName> {
    let mut group = BTreeSet::from([first]);
    loop {
        let before = group.clone();
        for (name, named) in ties {
            if before.contains(name) {
                group.extend(named.clone());
            } else if !named.is_disjoint(&before) {
                group.insert(name.clone());
            }
        }
        if group == before {
            return group;
        }
    }
}

/// Returns each unit after those that it names, otherwise sorted by name.
fn in_order(group: &BTreeSet<UnitName>, ties: &Ties) -> Vec<UnitName> {
    let mut left = group.clone();
    let mut order = Vec::new();
    while let Some(next) = left.iter().find(|name| ties[*name].is_disjoint(&left)).cloned() {
        left.remove(&next);
        order.push(next);
    }
    order
}
