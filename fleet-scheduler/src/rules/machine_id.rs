//! `MachineID=`: the unit runs on the machine that it names, by its whole ID.

use fleet_core::Refusal;

use super::{Denial, Question};

pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let pin = question.class.pin.some()?;
    (pin != question.machine).then_some(Denial::MachineId)
}

pub(super) fn told(question: &Question<'_>) -> Refusal {
    let wanted = question.class.requirements.machine_id.as_ref();
    let wanted = wanted.unwrap_or(&question.facts().id).clone();
    Refusal::MachineId { wanted }
}
