//! `Replaces=`: when the unit is placed on a machine, the units that it names leave that machine,
//! and do not come back. If two units name each other, neither replaces the other.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};
use crate::state::{MachineNo, State, UnitKind, UnitNo};

/// Returns a denial if a unit on the machine replaces this one.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    if !is_named(query) {
        return None;
    }
    // A unit that replaces nothing cannot be part of a mutual pair, so the replacer need not be
    // found.
    let replaced = query.class.replaces.is_empty() || replacer(query).is_some();
    replaced.then_some(Denial::Replaced)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let with = replacer(query).unwrap_or(query.unit);
    Refusal::Replaces { with: query.state.units.name(with).clone(), by_other: true }
}

/// Returns the refusal of a machine that runs `with`, if `with` replaces the unit.
pub(super) fn refusal_with(state: &State, with: UnitNo, unit: UnitNo) -> Option<Refusal> {
    let replaces = replaces_by_number(state, with, unit);
    replaces.then(|| Refusal::Replaces { with: state.units.name(with).clone(), by_other: true })
}

/// Returns whether a `Replaces=` of a unit on the machine names the unit.
fn is_named(query: &PlacementQuery<'_>) -> bool {
    let is_global = query.state.units[query.unit].kind == UnitKind::Global;
    let mut matched = query.class.matched.iter();
    !is_global && matched.any(|pattern| query.occupancy.counts_of(*pattern).replacers > 0)
}

/// Returns the first unit on the machine that replaces this one.
fn replacer(query: &PlacementQuery<'_>) -> Option<UnitNo> {
    let state = query.state;
    query.first_other(|other| replaces_by_number(state, other, query.unit))
}

/// Returns the units on the machine that would have to leave for the given unit, sorted by name.
pub(crate) fn replaced(state: &State, unit: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
    let patterns = &state.class(unit).replaces;
    let occupancy = &state.machines[machine].occupancy;
    if patterns.iter().all(|pattern| occupancy.counts_of(*pattern).matching == 0) {
        return Vec::new();
    }
    let there = occupancy.units.iter().copied();
    let mut replaced: Vec<UnitNo> =
        there.filter(|other| replaces_by_number(state, unit, *other)).collect();
    state.units.sort(&mut replaced);
    replaced
}

/// Returns whether a unit should leave a machine because a unit that replaces it is there too.
pub(crate) fn is_to_leave(state: &State, unit: UnitNo, machine: MachineNo) -> bool {
    denial(&PlacementQuery::new(state, unit, machine)).is_some()
}

/// Returns whether one unit replaces the other, and the reverse does not hold.
pub(crate) fn replaces_by_number(state: &State, one: UnitNo, other: UnitNo) -> bool {
    let (a, b) = (state.class(one), state.class(other));
    one != other && b.matches_any(&a.replaces) && !a.matches_any(&b.replaces)
}
