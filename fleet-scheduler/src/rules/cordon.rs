//! `Cordon`: a cordoned machine takes no unit that is not placed there.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    query.facts().cordoned.then_some(Denial::Cordon)
}

pub(super) fn refusal() -> Refusal {
    Refusal::Cordon {}
}
