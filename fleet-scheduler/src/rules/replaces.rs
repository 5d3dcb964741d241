//! `Replaces=`: what a unit names there leaves the machine on which the unit is placed, and does
//! not come back beside it. Two units that name each other do not replace each other.

use fleet_core::Refusal;

use super::{Denial, Question};
use crate::index::{Index, Kind, MachineNo, UnitNo};

/// Whether somebody on the machine replaces the unit.
pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    if !is_named(question) {
        return None;
    }
    // Who replaces nobody cannot be one of two that name each other: nobody need be looked for.
    let replaced = question.class.replaces.is_empty() || replacer(question).is_some();
    replaced.then_some(Denial::Replaced)
}

pub(super) fn told(question: &Question<'_>) -> Refusal {
    let with = replacer(question).unwrap_or(question.unit);
    Refusal::Replaces { with: question.index.units.name(with).clone(), by_other: true }
}

/// The refusal of a machine where that unit is, if it replaces this one.
pub(super) fn told_of(index: &Index, with: UnitNo, unit: UnitNo) -> Option<Refusal> {
    let replaces = replaces_by_number(index, with, unit);
    replaces.then(|| Refusal::Replaces { with: index.units.name(with).clone(), by_other: true })
}

/// Whether a `Replaces=` of somebody on the machine names the unit.
fn is_named(question: &Question<'_>) -> bool {
    let is_global = question.index.units.slots[question.unit].kind == Kind::Global;
    let mut matched = question.class.matched.iter();
    !is_global && matched.any(|pattern| question.desk.of(*pattern).replacers > 0)
}

/// The first unit on the machine that replaces this one.
fn replacer(question: &Question<'_>) -> Option<UnitNo> {
    let index = question.index;
    question.first_other(|other| replaces_by_number(index, other, question.unit))
}

/// The units on the machine that would have to leave it for this one, by name.
pub(crate) fn replaced(index: &Index, unit: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
    let patterns = &index.class(unit).replaces;
    let desk = &index.machines.slots[machine].desk;
    if patterns.iter().all(|pattern| desk.of(*pattern).matching == 0) {
        return Vec::new();
    }
    let there = desk.units.iter().copied();
    let mut replaced: Vec<UnitNo> =
        there.filter(|other| replaces_by_number(index, unit, *other)).collect();
    index.units.sort(&mut replaced);
    replaced
}

/// Whether a unit is beside one that replaces it.
pub(crate) fn is_to_leave(index: &Index, unit: UnitNo, machine: MachineNo) -> bool {
    denial(&Question::new(index, unit, machine)).is_some()
}

/// Whether one unit replaces the other, and not the other way round too.
pub(crate) fn replaces_by_number(index: &Index, one: UnitNo, other: UnitNo) -> bool {
    let (a, b) = (index.class(one), index.class(other));
    one != other && b.matches_any(&a.replaces) && !a.matches_any(&b.replaces)
}
