//! `MachineID=`: the unit runs on the machine that it names, by its whole ID.

use fleet_core::{Machine, Refusal, Requirements};

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

/// Why the machine is not the one that is asked for, if it is not.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let wanted = requirements.machine_id.as_ref()?;
    (*wanted != machine.id).then(|| Refusal::MachineId { wanted: wanted.clone() })
}
