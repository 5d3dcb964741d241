//! "Replacement" and "Separation": units that move away from a unit that replaces them.

use std::collections::BTreeSet;

use fleet_core::{Machine, Unit};
use fleet_unitfile::UnitName;

use super::rules::{RuleQuery, replaces};
use super::state::{PlacementState, is_unreadable, lacks_a_peer, single};
use crate::testing::naive::rules;

/// Returns the units on a machine that a unit replaces, sorted by name. Global units are never
/// replaced.
pub(super) fn replaced(
    state: &PlacementState<'_>,
    by: &UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let mut present = state.placed_on(machine);
    present.retain(|name| replaces(state.cluster, by, name));
    present
}

/// Returns the units that have to leave a machine if a unit comes to it. These are the units that
/// it replaces there, and their displaced groups (units that would then lack a peer).
pub(super) fn leaving(
    state: &PlacementState<'_>,
    by: &Unit,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let heads = replaced(state, &by.name, machine).into_iter();
    heads.flat_map(|head| (state.rule_set.displaced_group)(state, head, machine)).collect()
}

/// Moves away all units that a unit replaces on a machine, with their displaced groups. Returns the
/// new state, or `None` if one of these units cannot move.
pub(super) fn make_room<'a>(
    state: &PlacementState<'a>,
    by: &Unit,
    machine: &Machine,
    arrived: &[UnitName],
) -> Option<PlacementState<'a>> {
    let mut state = state.clone();
    for head in replaced(&state, &by.name, machine) {
        if state.placed_on(machine).contains(&head) {
            state = moved_away(&state, &head, machine, arrived)?;
        }
    }
    Some(state)
}

/// Moves a unit and its displaced group to the first other machine that accepts the whole group.
/// Returns the new state, or `None` if there is no such machine or if a unit of the group must
/// stay.
fn moved_away<'a>(
    state: &PlacementState<'a>,
    head: &UnitName,
    from: &Machine,
    arrived: &[UnitName],
) -> Option<PlacementState<'a>> {
    let group = (state.rule_set.displaced_group)(state, head.clone(), from);
    let stays = |name: &UnitName| (state.rule_set.is_immovable)(state, name, arrived);
    if group.iter().any(stays) {
        return None;
    }
    let mut without = state.clone();
    without.placements.retain(|name, _| !group.contains(name));
    let first = single(state.cluster, head)?;
    let machines = (state.rule_set.machine_order)(&without, first).into_iter();
    let mut others = machines.filter(|machine| machine.id != from.id);
    others.find_map(|machine| with_displaced(&without, group.clone(), machine))
}

/// Returns whether a unit must stay on its machine, because it is unreadable or because it belongs
/// to the group that has just come there.
pub(super) fn is_immovable(
    state: &PlacementState<'_>,
    name: &UnitName,
    arrived: &[UnitName],
) -> bool {
    is_unreadable(state.cluster, name) || arrived.contains(name)
}

/// Returns the displaced group of a unit. It contains the unit, and all units on its machine that
/// would lack a peer of their `MachineOf=` if the group left.
pub(super) fn displaced_group(
    state: &PlacementState<'_>,
    head: UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let mut group = BTreeSet::from([head]);
    loop {
        let before = group.clone();
        let rest: BTreeSet<UnitName> =
            state.units_on(machine).difference(&group).cloned().collect();
        let follows = |name: &&UnitName| lacks_a_peer(state.cluster, name, &rest);
        group.extend(rest.iter().filter(follows).cloned());
        if group == before {
            return group;
        }
    }
}

/// Assigns a whole displaced group to a machine, in any order in which the machine accepts its
/// units. Returns the new state, or `None` if there is no such order or if one of the units would
/// replace a unit there.
fn with_displaced<'a>(
    state: &PlacementState<'a>,
    group: BTreeSet<UnitName>,
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    let (cluster, leaving) = (state.cluster, &BTreeSet::new());
    let mut state = state.clone();
    let mut left = group;
    while !left.is_empty() {
        let present = &state.units_on(machine);
        let next = left.iter().find(|name| {
            let Some(unit) = single(cluster, name) else { return false };
            let query = RuleQuery { cluster, unit, machine, present, leaving };
            let replaces_none = replaced(&state, name, machine).is_empty();
            let refused = state.rule_set.refusal(query).is_some();
            replaces_none && !refused && rules::refusal(&state, unit, machine, leaving).is_none()
        });
        let next = next?.clone();
        left.remove(&next);
        state.placements.insert(next, machine.id.clone());
    }
    Some(state)
}

/// Moves replaced units away from their replacers, where possible. Returns the new state, or `None`
/// if no unit moved. A replacer that another unit on its machine replaces is handled last.
pub(super) fn separate_replaced<'a>(before: &PlacementState<'a>) -> Option<PlacementState<'a>> {
    let mut state = before.clone();
    for only_staying in [true, false] {
        for replacer in before.placements.keys() {
            let at = state.placements.get(replacer).and_then(|id| state.machine(id)).cloned();
            let Some(machine) = at else { continue };
            if only_staying && is_to_leave(&state, replacer, &machine) {
                continue;
            }
            for other in replaced(&state, replacer, &machine) {
                state = separated(&state, &other, &machine).unwrap_or(state);
            }
        }
    }
    (state.placements != before.placements).then_some(state)
}

/// Returns whether a unit shares a machine with one that replaces it.
fn is_to_leave(state: &PlacementState<'_>, name: &UnitName, machine: &Machine) -> bool {
    let present = state.placed_on(machine);
    present.iter().any(|other| replaces(state.cluster, other, name))
}

/// Moves `head` and its displaced group away from `machine`, where another unit replaces `head`.
/// Returns the new state, or `None` if `head` is not on `machine` or cannot move, or if a unit on
/// `machine` would then lack a peer.
fn separated<'a>(
    state: &PlacementState<'a>,
    head: &UnitName,
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    if !state.placed_on(machine).contains(head) {
        return None;
    }
    let after = moved_away(state, head, machine, &[])?;
    let present = after.units_on(machine);
    let one_lacks_a_peer = present.iter().any(|name| lacks_a_peer(state.cluster, name, &present));
    (!one_lacks_a_peer).then_some(after)
}
