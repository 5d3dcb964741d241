//! Custom rules, checked after all built-in rules in the order of the policy.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};
use crate::policy::Candidate;
use crate::policy::View;
use crate::state::StateView;

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let rules = &query.state.policy.rules;
    (0..rules.len()).find(|at| ask(query, *at).is_some()).map(Denial::Custom)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>, at: usize) -> Refusal {
    let rule = query.state.policy.rules[at].name().into();
    let detail = ask(query, at).unwrap_or_default().into();
    Refusal::Custom { rule, detail }
}

fn ask(query: &PlacementQuery<'_>, at: usize) -> Option<String> {
    let state = query.state;
    let requirements = &query.class.requirements;
    let unit = Candidate { name: query.name(), requirements };
    let source = StateView { state, leaving: query.leaving };
    state.policy.rules[at].refuse(&View::new(&source), unit, query.facts())
}
