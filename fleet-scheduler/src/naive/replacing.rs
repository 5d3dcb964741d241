//! "Replacing" and "side by side" of the letter: who moves away from a unit that replaces it.

use std::collections::BTreeSet;

use fleet_core::{Machine, Unit};
use fleet_unitfile::UnitName;

use super::own;
use super::rules::{RuleQuery, replaces};
use super::state::{PlacementState, is_unreadable, lacks_a_peer, single};

/// The units on a machine that a unit replaces, by name. Global units are never replaced.
pub(super) fn replaced(
    state: &PlacementState<'_>,
    by: &UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let mut there = state.placed_on(machine);
    there.retain(|name| replaces(state.cluster, by, name));
    there
}

/// The units on a machine that a unit replaces, with their trains.
pub(super) fn leaving(
    state: &PlacementState<'_>,
    by: &Unit,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let heads = replaced(state, &by.name, machine).into_iter();
    heads.flat_map(|head| (state.letter.train)(state, head, machine)).collect()
}

/// The state in which all have moved away from a machine that a unit replaces there; `None` if one
/// of them cannot.
pub(super) fn make_room<'a>(
    state: &PlacementState<'a>,
    by: &Unit,
    machine: &Machine,
    come: &[UnitName],
) -> Option<PlacementState<'a>> {
    let mut state = state.clone();
    for head in replaced(&state, &by.name, machine) {
        if state.placed_on(machine).contains(&head) {
            state = moved_away(&state, &head, machine, come)?;
        }
    }
    Some(state)
}

/// The state in which a unit has moved away from a machine with its train, to the first other
/// machine that takes all of it.
fn moved_away<'a>(
    state: &PlacementState<'a>,
    head: &UnitName,
    from: &Machine,
    come: &[UnitName],
) -> Option<PlacementState<'a>> {
    let train = (state.letter.train)(state, head.clone(), from);
    let is_held = |name: &UnitName| (state.letter.is_held)(state, name, come);
    if train.iter().any(is_held) {
        return None;
    }
    let mut without = state.clone();
    without.places.retain(|name, _| !train.contains(name));
    let seen_by = single(state.cluster, head)?;
    let machines = (state.letter.order)(&without, seen_by).into_iter();
    let mut others = machines.filter(|machine| machine.id != from.id);
    others.find_map(|machine| with_train(&without, train.clone(), machine))
}

/// Unreadable units, and units of the group that has just come, do not move.
pub(super) fn is_held(state: &PlacementState<'_>, name: &UnitName, come: &[UnitName]) -> bool {
    is_unreadable(state.cluster, name) || come.contains(name)
}

/// A unit with those on its machine that follow it: who would lack a unit that its `MachineOf=`
/// names, if the train were gone, belongs to the train.
pub(super) fn train(
    state: &PlacementState<'_>,
    head: UnitName,
    machine: &Machine,
) -> BTreeSet<UnitName> {
    let mut train = BTreeSet::from([head]);
    loop {
        let before = train.clone();
        let rest: BTreeSet<UnitName> = state.on(machine).difference(&train).cloned().collect();
        let follows = |name: &&UnitName| lacks_a_peer(state.cluster, name, &rest);
        train.extend(rest.iter().filter(follows).cloned());
        if train == before {
            return train;
        }
    }
}

/// The state with all of a train put on a machine where none of it replaces anybody, in whichever
/// order it is taken.
fn with_train<'a>(
    state: &PlacementState<'a>,
    train: BTreeSet<UnitName>,
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    let (cluster, leaving) = (state.cluster, &BTreeSet::new());
    let mut state = state.clone();
    let mut left = train;
    while !left.is_empty() {
        let there = &state.on(machine);
        let next = left.iter().find(|name| {
            let Some(unit) = single(cluster, name) else { return false };
            let question = RuleQuery { cluster, unit, machine, there, leaving };
            let replaces_nobody = replaced(&state, name, machine).is_empty();
            let refused = state.letter.refusal(question).is_some();
            replaces_nobody && !refused && own::refusal(&state, unit, machine, leaving).is_none()
        });
        let next = next?.clone();
        left.remove(&next);
        state.places.insert(next, machine.id.clone());
    }
    Some(state)
}

/// The state in which those have moved away that are beside one that replaces them, if they can;
/// `None` if nobody did. First those whose replacer is not itself to leave.
pub(super) fn part_side_by_side<'a>(before: &PlacementState<'a>) -> Option<PlacementState<'a>> {
    let mut state = before.clone();
    for only_who_stays in [true, false] {
        for replacer in before.places.keys() {
            let at = state.places.get(replacer).and_then(|id| state.machine(id)).cloned();
            let Some(machine) = at else { continue };
            if only_who_stays && is_to_leave(&state, replacer, &machine) {
                continue;
            }
            for other in replaced(&state, replacer, &machine) {
                state = parted(&state, &other, &machine).unwrap_or(state);
            }
        }
    }
    (state.places != before.places).then_some(state)
}

/// Whether a unit is beside one that replaces it.
fn is_to_leave(state: &PlacementState<'_>, name: &UnitName, machine: &Machine) -> bool {
    let there = state.placed_on(machine);
    there.iter().any(|other| replaces(state.cluster, other, name))
}

/// The state in which a unit has moved away and nobody lacks anybody for it.
fn parted<'a>(
    state: &PlacementState<'a>,
    head: &UnitName,
    machine: &Machine,
) -> Option<PlacementState<'a>> {
    if !state.placed_on(machine).contains(head) {
        return None;
    }
    let after = moved_away(state, head, machine, &[])?;
    let there = after.on(machine);
    let one_lacks_a_peer = there.iter().any(|name| lacks_a_peer(state.cluster, name, &there));
    (!one_lacks_a_peer).then_some(after)
}
