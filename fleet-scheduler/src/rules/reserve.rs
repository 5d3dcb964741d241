//! `ReserveCPU=`, `ReserveMemory=`, `ReserveDisk=`: the reservations on a machine do not exceed its
//! offer.

use fleet_core::{Refusal, Resource};

use super::{Denial, PlacementQuery};

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    shortage(query).map(|_| Denial::Reserve)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
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
