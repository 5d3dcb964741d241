//! `Conflicts=`: no unit is beside another that matches its pattern, whichever of the two came
//! first. A unit never conflicts with itself.

use fleet_core::{Pattern, Refusal};

use super::{Denial, Party, Question};
use crate::index::{Index, Kind, MachineNo, PatternNo, UnitNo};

/// A unit that another one's pattern matches.
pub(super) type Meeting = (UnitNo, PatternNo);

/// Whether somebody on the machine must not be beside this unit.
pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let (class, desk) = (question.class, question.desk);
    if desk.has_no_patterns() {
        return None;
    }
    let ours = class.conflicts.iter().any(|pattern| desk.of(*pattern).matching > 0);
    let theirs = || class.matched.iter().any(|pattern| desk.of(*pattern).keepers > 0);
    (ours || theirs()).then_some(Denial::Conflicts)
}

/// By the patterns of the unit, in the order written, or else by the first unit that keeps it away.
pub(super) fn told(question: &Question<'_>) -> Refusal {
    let (index, desk) = (question.index, question.desk);
    let mut ours = question.class.conflicts.iter().filter(|p| desk.of(**p).matching > 0);
    let ours = ours.find_map(|pattern| {
        Some((question.first_other(|other| covers(index, *pattern, other))?, *pattern, false))
    });
    let theirs = || {
        let own = |other| {
            let mut patterns = index.class(other).conflicts.iter();
            patterns.find(|pattern| covers(index, **pattern, question.unit))
        };
        let with = question.first_other(|other| own(other).is_some())?;
        Some((with, *own(with)?, true))
    };
    let Some((with, pattern, theirs)) = ours.or_else(theirs) else { return Refusal::Cordon {} };
    let (with, pattern) = (index.units.name(with), index.patterns.slots[pattern].pattern());
    Refusal::Conflicts { with: with.clone(), pattern: pattern.clone(), theirs }
}

/// Whom a unit meets first on machines where a pattern of its own keeps it away, by the machine's
/// number. Machines where nobody was met soon are left out; the unit must be nowhere.
///
/// The units that a pattern matches are gone through by name: that looks at far fewer of them than
/// to go from machine to machine.
pub(super) fn met(index: &Index, unit: UnitNo, machines: Vec<MachineNo>) -> Vec<Option<Meeting>> {
    let mut met = vec![None; index.machines.slots.len()];
    let mut rest = machines;
    for pattern in &index.class(unit).conflicts {
        let desk = |machine: &MachineNo| &index.machines.slots[*machine].desk;
        let is_there = |machine: &MachineNo| desk(machine).of(*pattern).matching > 0;
        let (there, others) = rest.into_iter().partition::<Vec<_>, _>(is_there);
        rest = others;
        let loads: usize = there.iter().map(|machine| desk(machine).units.len()).sum();
        let mut open = vec![false; met.len()];
        there.iter().for_each(|machine| open[machine.at()] = true);
        meet(index, (*pattern, loads), (open, there.len()), &mut met);
    }
    met
}

/// Goes through at most that many units that a pattern matches, until nobody is left to be met.
fn meet(
    index: &Index,
    (pattern, most): (PatternNo, usize),
    (mut open, mut left): (Vec<bool>, usize),
    met: &mut [Option<Meeting>],
) {
    for other in index.matching(pattern).take(most) {
        let slot = &index.units.slots[other];
        if left == 0 || slot.kind == Kind::Global {
            // A global unit is on many machines, and may come first on any of them.
            return;
        }
        let at = slot.seat.some().map(MachineNo::at);
        if let Some(at) = at.filter(|at| std::mem::take(&mut open[*at])) {
            met[at] = Some((other, pattern));
            left -= 1;
        }
    }
}

/// The refusal of a machine where somebody is met.
pub(super) fn told_of(index: &Index, (with, pattern): Meeting) -> Refusal {
    let (with, pattern) = (index.units.name(with), index.patterns.slots[pattern].pattern());
    Refusal::Conflicts { with: with.clone(), pattern: pattern.clone(), theirs: false }
}

fn covers(index: &Index, pattern: PatternNo, unit: UnitNo) -> bool {
    index.class(unit).matched.binary_search(&pattern).is_ok()
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
