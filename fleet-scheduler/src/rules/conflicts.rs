//! `Conflicts=`: two units do not share a machine if a pattern of either unit matches the other. A
//! unit never conflicts with itself.

use fleet_core::{Pattern, Refusal};

use super::{Denial, PlacementQuery};
use crate::policy::Candidate;
use crate::state::{PatternNo, State, UnitNo};

/// Returns a denial if a unit on the machine conflicts with this one.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let (class, occupancy) = (query.class, query.occupancy);
    if occupancy.has_no_patterns() {
        return None;
    }
    let ours = class.conflicts.iter().any(|pattern| occupancy.counts_of(*pattern).matching > 0);
    let theirs =
        || class.matched.iter().any(|pattern| occupancy.counts_of(*pattern).conflicting > 0);
    (ours || theirs()).then_some(Denial::Conflicts)
}

/// Returns the refusal that names one conflict on the machine:
///
/// - If a pattern of the unit matches another unit there: the first such pattern, in the order
///   written, and the first unit by name that it matches.
/// - Otherwise: the first unit there, by name, that has a pattern matching this unit, and that
///   pattern.
pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let (state, occupancy, unit) = (query.state, query.occupancy, query.unit);
    let mut ours = query.class.conflicts.iter().filter(|p| occupancy.counts_of(**p).matching > 0);
    let ours = ours.find_map(|pattern| {
        Some((query.first_other(|other| pattern_matches(state, *pattern, other))?, *pattern, false))
    });
    let theirs = || {
        let with = query.first_other(|other| keeps_away(state, other, unit).is_some())?;
        Some((with, keeps_away(state, with, unit)?, true))
    };
    match ours.or_else(theirs) {
        Some((with, pattern, theirs)) => refusal_with(state, with, pattern, theirs),
        None => Refusal::Cordon {},
    }
}

/// Returns the first pattern in the `Conflicts=` of another unit, in the order written, that
/// matches this unit.
pub(super) fn keeps_away(state: &State, other: UnitNo, unit: UnitNo) -> Option<PatternNo> {
    let mut patterns = state.class(other).conflicts.iter().copied();
    patterns.find(|pattern| pattern_matches(state, *pattern, unit))
}

/// Returns the refusal of a machine because of a conflict with the unit `with` there.
pub(super) fn refusal_with(
    state: &State,
    with: UnitNo,
    pattern: PatternNo,
    theirs: bool,
) -> Refusal {
    let (with, pattern) = (state.units.name(with), state.patterns[pattern].pattern());
    Refusal::Conflicts { with: with.clone(), pattern: pattern.clone(), by_other: theirs }
}

fn pattern_matches(state: &State, pattern: PatternNo, unit: UnitNo) -> bool {
    state.class(unit).matched.binary_search(&pattern).is_ok()
}

/// Returns the conflict of `unit` with the `others`, which are sorted by name.
pub(crate) fn refusal(unit: Candidate<'_>, others: &[Candidate<'_>]) -> Option<Refusal> {
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

fn refused(with: &Candidate<'_>, pattern: &Pattern, theirs: bool) -> Refusal {
    Refusal::Conflicts { with: with.name.clone(), pattern: pattern.clone(), by_other: theirs }
}
