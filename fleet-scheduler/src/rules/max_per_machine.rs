//! `MaxPerMachine=`: of one template, no more instances are on a machine than any of them allows.

use fleet_core::Refusal;

use super::{Denial, Question};
use crate::index::{NO_LIMIT, UnitNo, limit};

pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let (there, limit) = count(question)?;
    (there >= limit).then_some(Denial::MaxPerMachine)
}

pub(super) fn told(question: &Question<'_>) -> Refusal {
    let name = question.name();
    let (there, limit) = count(question).unwrap_or((0, NO_LIMIT));
    let template = name.template().unwrap_or_else(|| name.clone());
    Refusal::MaxPerMachine { template, limit, count: there }
}

/// How many instances are there that do not leave, and the smallest number that these or the unit
/// allow; `None` if nobody minds.
pub(super) fn count(question: &Question<'_>) -> Option<(u32, u32)> {
    let template = question.class.template.some()?;
    let own = limit(&question.class.requirements);
    let counts = question.desk.of(template);
    if question.leaving.is_empty() {
        return Some((counts.matching, counts.limit.min(own)));
    }
    let index = question.index;
    let leaves = |unit: &UnitNo| question.leaving.contains(unit);
    let staying = question.desk.units.iter().copied().filter(|unit| !leaves(unit));
    let staying: Vec<UnitNo> = staying.collect();
    let is_instance = |unit: &&UnitNo| index.class(**unit).template == template;
    let gone = question.leaving.iter().filter(is_instance).count();
    let there = counts.matching - u32::try_from(gone).unwrap_or(0);
    Some((there, index.smallest_limit(&staying, template).min(own)))
}
