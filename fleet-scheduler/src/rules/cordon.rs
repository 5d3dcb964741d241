//! `Cordon`: a cordoned machine takes no unit that is not placed there.

use fleet_core::Refusal;

use super::{Denial, Question};

pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    question.facts().cordoned.then_some(Denial::Cordon)
}

pub(super) fn refusal() -> Refusal {
    Refusal::Cordon {}
}
