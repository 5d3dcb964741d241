//! `ReserveCPU=`, `ReserveMemory=`, `ReserveDisk=`: all on a machine together reserve no more than
//! it offers.

use fleet_core::{Refusal, Resource};

use super::{Denial, Question};

pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    shortage(question).map(|_| Denial::Reserve)
}

pub(super) fn told(question: &Question<'_>) -> Refusal {
    let offers = &question.facts().offers;
    let (resource, total) = shortage(question).unwrap_or((Resource::Cpu, 0));
    let wanted = question.class.requirements.reserve[resource];
    let offered = offers[resource];
    let used = total.saturating_sub(u128::from(wanted));
    let free = offered.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX));
    Refusal::Reserve { resource, wanted, free, offered }
}

/// The first resource that is short, and what would be reserved of it in all.
fn shortage(question: &Question<'_>) -> Option<(Resource, u128)> {
    let own = &question.class.requirements.reserve;
    if own.is_zero() {
        // Nobody is let in beyond what is offered, so there is no shortage without it either.
        return None;
    }
    let mut sum = question.desk.used();
    sum.add(own);
    for unit in question.leaving {
        sum.sub(&question.index.class(*unit).requirements.reserve);
    }
    sum.first_over(&question.facts().offers)
}
