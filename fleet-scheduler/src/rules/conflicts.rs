//! `Conflicts=`: no unit is beside another that matches its pattern, whichever of the two came
//! first. A unit never conflicts with itself.

use fleet_core::{Pattern, Refusal};

use super::{Denial, Party};
use crate::board::Board;
use crate::roster::{MachineNo, PatternNo, Roster, UnitNo};

/// A unit on the machine that must not be beside this one: by the patterns of this one, in the
/// order written, or else the first one that keeps this one away.
pub(crate) fn denial(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    by_own_pattern(board, unit, machine).or_else(|| by_their_pattern(board, unit, machine))
}

fn by_own_pattern(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    board.roster().unit(unit).conflicts.iter().find_map(|pattern| {
        let with = board.matching(machine, *pattern).find(|other| *other != unit)?;
        Some(Denial::Conflicts { with, pattern: *pattern, theirs: false })
    })
}

fn by_their_pattern(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    if !board.has_keepers(machine) {
        return None;
    }
    let matched_by = &board.roster().unit(unit).matched_by;
    let keeper = |pattern| board.keepers(machine, pattern).find(|other| *other != unit);
    let with = matched_by.iter().filter_map(|pattern| keeper(*pattern)).min()?;
    Some(Denial::Conflicts { with, pattern: covering(board.roster(), with, unit)?, theirs: true })
}

/// The conflict between two units, if there is one.
pub(crate) fn between(roster: &Roster<'_>, unit: UnitNo, with: UnitNo) -> Option<Denial> {
    let denial = |pattern, theirs| Denial::Conflicts { with, pattern, theirs };
    let ours = covering(roster, unit, with).map(|pattern| denial(pattern, false));
    ours.or_else(|| covering(roster, with, unit).map(|pattern| denial(pattern, true)))
}

/// The first pattern of `from` that matches the name of `to`.
fn covering(roster: &Roster<'_>, from: UnitNo, to: UnitNo) -> Option<PatternNo> {
    let matched_by = &roster.unit(to).matched_by;
    let mut patterns = roster.unit(from).conflicts.iter();
    patterns.find(|pattern| matched_by.binary_search(pattern).is_ok()).copied()
}

/// Everybody on the machine who must not be beside this unit; some perhaps twice.
pub(crate) fn rivals(
    board: &Board<'_>,
    unit: UnitNo,
    machine: MachineNo,
) -> impl Iterator<Item = UnitNo> {
    let entry = board.roster().unit(unit);
    let ours = entry.conflicts.iter().flat_map(move |pattern| board.matching(machine, *pattern));
    let theirs = entry.matched_by.iter().flat_map(move |pattern| board.keepers(machine, *pattern));
    ours.chain(theirs).filter(move |other| *other != unit)
}

/// Why `unit` must not be beside the `others`, who are in the order of their names.
pub(crate) fn refusal(unit: Party<'_>, others: &[Party<'_>]) -> Option<Refusal> {
    let others = || others.iter().filter(|other| other.name != unit.name);
    let ours = unit.requirements.conflicts.iter().find_map(|pattern| {
        let with = others().find(|other| pattern.matches(other.name))?;
        Some(refused(with, pattern, false))
    });
    let theirs = || {
        others().find_map(|other| {
            let mut patterns = other.requirements.conflicts.iter();
            let pattern = patterns.find(|pattern| pattern.matches(unit.name))?;
            Some(refused(other, pattern, true))
        })
    };
    ours.or_else(theirs)
}

fn refused(with: &Party<'_>, pattern: &Pattern, theirs: bool) -> Refusal {
    Refusal::Conflicts { with: with.name.clone(), pattern: pattern.clone(), theirs }
}
