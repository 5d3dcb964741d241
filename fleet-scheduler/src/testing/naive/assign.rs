//! Section 3, second half: the assignment of groups to machines.

use fleet_core::refusal::Rule;
use fleet_core::{Machine, Unit};
use fleet_unitfile::UnitName;

use super::affinity::groups;
use super::custom;
use super::replace::{make_room, separate_replaced};
use super::rules::RuleQuery;
use super::state::{PlacementState, lacks_a_peer, single};

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
    if let Some(at) = custom::refusal(state, unit, machine, leaving) {
        return Err((Rule::Custom, at));
    }
    let held = (Rule::Replaces, 0);
    let mut after = make_room(state, unit, machine, arrived).ok_or(held)?;
    after.placements.insert(unit.name.clone(), machine.id.clone());
    let present = after.units_on(machine);
    let one_lacks_a_peer = present.iter().any(|name| lacks_a_peer(cluster, name, &present));
    if one_lacks_a_peer { Err(held) } else { Ok(after) }
}
