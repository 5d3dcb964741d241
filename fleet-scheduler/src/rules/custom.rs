//! The rules of an embedder, asked after all others in the order of the policy.

use fleet_core::Refusal;

use super::{Denial, Question};
use crate::index::Seen;
use crate::policy::Candidate;
use crate::view::View;

pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let rules = &question.index.policy.rules;
    (0..rules.len()).find(|at| ask(question, *at).is_some()).map(Denial::Custom)
}

pub(super) fn told(question: &Question<'_>, at: usize) -> Refusal {
    let rule = question.index.policy.rules[at].name().into();
    let detail = ask(question, at).unwrap_or_default().into();
    Refusal::Custom { rule, detail }
}

fn ask(question: &Question<'_>, at: usize) -> Option<String> {
    let index = question.index;
    let requirements = &question.class.requirements;
    let unit = Candidate { name: question.name(), requirements };
    let seen = Seen { index, leaving: question.leaving };
    index.policy.rules[at].refuse(&View::new(&seen), unit, question.facts())
}
