//! Rules about one unit and one machine: `Cordon`, `MachineID=`, `MachineMetadata=`,
//! `MachineMetadataExpr=`, `MaxPerMachine=` and the reservations.

use fleet_core::refusal::Rule;
use fleet_core::{Machine, Refusal, Requirements, Resource};

use super::{Denial, PlacementQuery};
use crate::state::{NO_LIMIT, UnitNo, first_missing, limit};

/// `Cordon`: a cordoned machine accepts only units that are already there.
pub(super) fn cordon_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    query.facts().cordoned.then_some(Denial::Cordon)
}

pub(super) fn cordon_refusal() -> Refusal {
    Refusal::Cordon {}
}

/// `MachineID=`: the unit runs only on the machine with this ID.
pub(super) fn machine_id_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let pin = query.class.pin.some()?;
    (pin != query.machine).then_some(Denial::MachineId)
}

pub(super) fn machine_id_refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let wanted = query.class.requirements.machine_id.as_ref();
    let wanted = wanted.unwrap_or(&query.facts().id).clone();
    Refusal::MachineId { wanted }
}

/// `MachineMetadata=` and `MachineMetadataExpr=`: for each named key, the machine has one of the
/// named values, and the expression is true for its metadata. Both are part of the filter of the
/// unit's class.
pub(super) fn metadata_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let filters = &query.state.filters;
    let metadata = &query.facts().metadata;
    match filters.refusal(query.class.filter, query.machine, metadata)? {
        Rule::MachineMetadata => Some(Denial::Metadata),
        _ => Some(Denial::Expression),
    }
}

pub(super) fn metadata_refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let refusal = metadata_refusal(&query.class.requirements, query.facts());
    refusal.unwrap_or(Refusal::Cordon {})
}

/// Returns the first required key that has no accepted value on the machine, and the value that it
/// has there, if any.
pub(super) fn missing_metadata<'a>(
    query: &PlacementQuery<'a>,
) -> Option<(&'a str, Option<&'a str>)> {
    let metadata = &query.facts().metadata;
    let (key, _) = first_missing(&query.class.requirements.metadata, metadata)?;
    Some((key, metadata.get(key).map(String::as_str)))
}

/// Returns the refusal for the first required key, in alphabetical order, that has no accepted
/// value on the machine. Returns `None` if there is no such key.
pub(crate) fn metadata_refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let (key, values) = first_missing(&requirements.metadata, &machine.metadata)?;
    Some(Refusal::MachineMetadata {
        key: key.clone(),
        wanted: values.iter().cloned().collect(),
        found: machine.metadata.get(key).cloned(),
    })
}

pub(super) fn expression_refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let refusal = expression_refusal(&query.class.requirements, query.facts());
    refusal.unwrap_or(Refusal::Cordon {})
}

/// Returns a refusal that names the first false part of the expression. Returns `None` if the
/// expression is true for the machine.
pub(crate) fn expression_refusal(
    requirements: &Requirements,
    machine: &Machine,
) -> Option<Refusal> {
    let expression = requirements.metadata_expr.as_ref()?;
    let part = expression.first_false(&machine.metadata)?;
    Some(Refusal::MachineMetadataExpr { failed: part.part.into(), found: part.found.into() })
}

/// `MaxPerMachine=`: limits the instances of a template on a machine. If these instances set
/// different limits, the lowest one applies.
pub(super) fn max_per_machine_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let (there, limit) = instance_count(query)?;
    (there >= limit).then_some(Denial::MaxPerMachine)
}

pub(super) fn max_per_machine_refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let name = query.name();
    let (there, limit) = instance_count(query).unwrap_or((0, NO_LIMIT));
    let template = name.template().unwrap_or_else(|| name.clone());
    Refusal::MaxPerMachine { template, limit, count: there }
}

/// Returns the number of instances that stay on the machine, and the smallest limit set by these
/// instances and the unit. Returns `None` if the unit is no instance, or if nothing needs the
/// count of its template's instances.
pub(super) fn instance_count(query: &PlacementQuery<'_>) -> Option<(u32, u32)> {
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

/// `ReserveCPU=`, `ReserveMemory=`, `ReserveDisk=`: the reservations on a machine do not exceed its
/// offer.
pub(super) fn reserve_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    shortage(query).map(|_| Denial::Reserve)
}

pub(super) fn reserve_refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let offers = &query.facts().offers;
    let (resource, total) = shortage(query).unwrap_or((Resource::Cpu, 0));
    let wanted = query.class.requirements.reserve[resource];
    let offered = offers[resource];
    let used = total.saturating_sub(u128::from(wanted));
    let free = offered.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX));
    Refusal::Reserve { resource, wanted, free, offered }
}

/// Returns the first resource that would be exceeded, and its total reservation.
fn shortage(query: &PlacementQuery<'_>) -> Option<(Resource, u128)> {
    let own = &query.class.requirements.reserve;
    if own.is_zero() {
        // Reservations never exceed the offer, so a unit without any cannot cause a shortage.
        return None;
    }
    let mut sum = query.occupancy.used();
    sum.add(own);
    for unit in query.leaving {
        sum.sub(&query.state.class(*unit).requirements.reserve);
    }
    sum.first_over(&query.facts().offers)
}
