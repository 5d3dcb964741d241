//! `MaxPerMachine=`: limits the instances of a template on a machine. If these instances set
//! different limits, the lowest one applies.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};
use crate::state::{NO_LIMIT, UnitNo, limit};

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let (there, limit) = count(query)?;
    (there >= limit).then_some(Denial::MaxPerMachine)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let name = query.name();
    let (there, limit) = count(query).unwrap_or((0, NO_LIMIT));
    let template = name.template().unwrap_or_else(|| name.clone());
    Refusal::MaxPerMachine { template, limit, count: there }
}

/// Returns the number of instances that stay on the machine, and the smallest limit set by these
/// instances and the unit. Returns `None` if the unit is no instance, or if nothing needs the count
/// of its template's instances.
pub(super) fn count(query: &PlacementQuery<'_>) -> Option<(u32, u32)> {
    let template = query.class.template.some()?;
    let own = limit(&query.class.requirements);
    let counts = query.occupancy.counts_of(template);
    if query.leaving.is_empty() {
        return Some((counts.matching, counts.limit.min(own)));
    }
    let state = query.state;
    let leaves = |unit: &UnitNo| query.leaving.contains(unit);
    let staying = query.occupancy.units.iter().copied().filter(|unit| !leaves(unit));
    let staying: Vec<UnitNo> = staying.collect();
    let is_instance = |unit: &&UnitNo| state.class(**unit).template == template;
    let gone = query.leaving.iter().filter(is_instance).count();
    let there = counts.matching - u32::try_from(gone).unwrap_or(0);
    Some((there, state.smallest_limit(&staying, template).min(own)))
}
