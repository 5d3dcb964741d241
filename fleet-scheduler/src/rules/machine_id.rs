//! `MachineID=`: the unit runs only on the machine with this ID.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let pin = query.class.pin.some()?;
    (pin != query.machine).then_some(Denial::MachineId)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let wanted = query.class.requirements.machine_id.as_ref();
    let wanted = wanted.unwrap_or(&query.facts().id).clone();
    Refusal::MachineId { wanted }
}
