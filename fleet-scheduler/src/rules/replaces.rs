//! `Replaces=`: what a unit names there leaves the machine on which the unit is placed, and does
//! not come back beside it. Two units that name each other do not replace each other.

use std::collections::BTreeSet;

use super::Denial;
use crate::board::Board;
use crate::roster::{Kind, MachineNo, Roster, UnitNo};

/// The first unit on the machine that replaces this one.
pub(crate) fn denial(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    let roster = board.roster();
    let entry = roster.unit(unit);
    if entry.kind != Kind::Single {
        return None;
    }
    let replacers = entry.matched_by.iter().flat_map(|p| board.replacers(machine, *p));
    let with = replacers.filter(|other| replaces_by_number(roster, *other, unit)).min()?;
    Some(Denial::Replaces { with, theirs: true })
}

/// The units on the machine that would have to leave it for this one, in order.
pub(crate) fn replaced(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> BTreeSet<UnitNo> {
    let roster = board.roster();
    let patterns = &roster.unit(unit).replaces;
    let matching = patterns.iter().flat_map(|pattern| board.matching(machine, *pattern));
    let may_move = |other: &UnitNo| roster.unit(*other).kind != Kind::Global;
    let leaves = |other: &UnitNo| may_move(other) && replaces_by_number(roster, unit, *other);
    matching.filter(leaves).collect()
}

fn replaces_by_number(roster: &Roster<'_>, one: UnitNo, other: UnitNo) -> bool {
    let names = |from: UnitNo, to: UnitNo| {
        let matched_by = &roster.unit(to).matched_by;
        roster.unit(from).replaces.iter().any(|pattern| matched_by.binary_search(pattern).is_ok())
    };
    one != other && names(one, other) && !names(other, one)
}
