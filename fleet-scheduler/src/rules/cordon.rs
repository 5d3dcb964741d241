//! `Cordon`: a cordoned machine accepts only units that are already there.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    query.facts().cordoned.then_some(Denial::Cordon)
}

pub(super) fn refusal() -> Refusal {
    Refusal::Cordon {}
}
