//! Section 3: unsatisfiable units, affinity groups, the order in which machines are tried ("Choice
//! of the machine"), and the assignment of groups to machines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::refusal::Rule;
use fleet_core::requirements::Spread;
use fleet_core::{Machine, Unit};
use fleet_unitfile::UnitName;

use super::replace::{make_room, separate_replaced};
use super::rules::RuleQuery;
use super::state::{PlacementState, lacks_a_peer, requirements, single};
use crate::policy::Ranking;
use crate::testing::naive::rules;

/// Places every group that fits on some machine.
pub(super) fn assign_all(mut state: PlacementState<'_>) -> PlacementState<'_> {
    loop {
        while let Some(next) = next_group_placed(&state) {
            state = next;
        }
        let Some(separated) = separate_replaced(&state) else { return state };
        state = separated;
    }
}

/// Places the first group that some machine accepts on the first machine that accepts it. Returns
/// the new state, or `None` if no machine accepts any group.
fn next_group_placed<'a>(state: &PlacementState<'a>) -> Option<PlacementState<'a>> {
    groups(state).iter().find_map(|group| {
        let first = single(state.cluster, group.first()?)?;
        (state.rule_set.machine_order)(state, first)
            .into_iter()
            .find_map(|machine| with_group(state, group, machine).ok())
    })
}

/// The first unit of a group that a machine refuses, and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupRefusal {
    pub(super) unit: UnitName,
    pub(super) rule: RuleIndex,
}

/// A rule; for a custom rule with its index in the policy.
pub(super) type RuleIndex = (Rule, usize);

/// Assigns the units of a group to a machine one after the other. Returns the new state, or the
/// first refusal.
pub(super) fn with_group<'a>(
    state: &PlacementState<'a>,
    group: &[UnitName],
    machine: &Machine,
) -> Result<PlacementState<'a>, GroupRefusal> {
    let mut state = state.clone();
    for (index, name) in group.iter().enumerate() {
        let refused = |rule| GroupRefusal { unit: name.clone(), rule };
        let Some(unit) = single(state.cluster, name) else { continue };
        state = with_unit(&state, unit, machine, &group[..index]).map_err(refused)?;
    }
    Ok(state)
}

/// Moves away the units that a unit replaces on a machine, and then assigns the unit to that
/// machine. Returns the new state, or the rule by which the machine refuses the unit.
///
/// `arrived` lists the units of the same group that have just been assigned to the machine. These
/// must not move away.
pub(super) fn with_unit<'a>(
    state: &PlacementState<'a>,
    unit: &Unit,
    machine: &Machine,
    arrived: &[UnitName],
) -> Result<PlacementState<'a>, RuleIndex> {
    let (rule_set, cluster) = (state.rule_set, state.cluster);
    let present = &state.units_on(machine);
    let leaving = &super::replace::leaving(state, unit, machine);
    let query = RuleQuery { cluster, unit, machine, present, leaving };
    if let Some(rule) = rule_set.refusal(query) {
        return Err((rule, 0));
    }
    if let Some(at) = rules::refusal(state, unit, machine, leaving) {
        return Err((Rule::Custom, at));
    }
    let held = (Rule::Replaces, 0);
    let mut after = make_room(state, unit, machine, arrived).ok_or(held)?;
    after.placements.insert(unit.name.clone(), machine.id.clone());
    let present = after.units_on(machine);
    let one_lacks_a_peer = present.iter().any(|name| lacks_a_peer(cluster, name, &present));
    if one_lacks_a_peer { Err(held) } else { Ok(after) }
}

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

/// Returns all machines in the order in which they are tried.
pub(super) fn order<'a>(state: &PlacementState<'a>, unit: &Unit) -> Vec<&'a Machine> {
    let mut machines: Vec<&Machine> = state.cluster.machines().map(AsRef::as_ref).collect();
    machines.sort_by_key(|machine| {
        (Reverse(score(state, unit, machine)), ranking(state, unit, machine), machine.id.clone())
    });
    machines
}

/// Returns the score of a machine for a unit. It adds the weights of all preferences that the
/// machine satisfies and the custom scores. It subtracts the spread penalty, and the penalty for
/// failures of the unit on the machine.
pub(super) fn score(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let prefer = unit.requirements.prefer.iter();
    let liked = prefer.filter(|preference| preference.expression.eval(&machine.metadata));
    let likes: i64 = liked.map(|preference| i64::from(preference.weight)).sum();
    let spread = unit.requirements.spread.iter();
    let spread_penalty: i64 =
        spread.map(|spread| spread_penalty(state, unit, machine, spread)).sum();
    let failures = unit.requirements.failed_on.get(&machine.id).copied().unwrap_or_default();
    // Larger than all weights together.
    let failures = i64::from(failures) * (1 << 40);
    likes - failures - spread_penalty + rules::score(state, unit, machine)
}

/// Returns the penalty of a machine for one spread key. It is the weight times the number of
/// instances of the unit's template on machines with the same value of the key.
fn spread_penalty(
    state: &PlacementState<'_>,
    unit: &Unit,
    machine: &Machine,
    spread: &Spread,
) -> i64 {
    let value = |machine: &Machine| machine.metadata.get(&spread.key).cloned();
    let alike = state.cluster.machines().filter(|other| value(other) == value(machine));
    i64::from(spread.weight) * alike.map(|other| instances(state, unit, other)).sum::<i64>()
}

/// Counts the instances of the unit's template on a machine.
pub(super) fn instances(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let Some(template) = unit.name.template() else { return 0 };
    let present = state.units_on(machine).into_iter();
    count(present.filter(|name| name.template().as_ref() == Some(&template)))
}

/// Returns the rank of a machine, lower first.
fn ranking(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> (i64, i64) {
    let load = count(state.units_on(machine).into_iter());
    match state.policy.ranking {
        Ranking::LeastLoaded => (load, 0),
        Ranking::BinPacking => (-load, 0),
        Ranking::Spread => (instances(state, unit, machine), load),
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> i64 {
    all.fold(0, |sum, _| sum + 1)
}
