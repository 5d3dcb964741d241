//! Custom rules, checked after all built-in rules in the order of the policy.

use fleet_core::Refusal;

use super::{Denial, PlacementQuery};
use crate::index::ClusterView;
use crate::policy::Candidate;
use crate::policy::View;

pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let rules = &query.index.policy.rules;
    (0..rules.len()).find(|at| ask(query, *at).is_some()).map(Denial::Custom)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>, at: usize) -> Refusal {
    let rule = query.index.policy.rules[at].name().into();
    let detail = ask(query, at).unwrap_or_default().into();
    Refusal::Custom { rule, detail }
}

fn ask(query: &PlacementQuery<'_>, at: usize) -> Option<String> {
    let index = query.index;
    let requirements = &query.class.requirements;
    let unit = Candidate { name: query.name(), requirements };
    let source = ClusterView { index, leaving: query.leaving };
    index.policy.rules[at].refuse(&View::new(&source), unit, query.facts())
}
