//! `MachineMetadata=`: for each named key, the machine has one of the named values.

use fleet_core::refusal::Rule;
use fleet_core::{Machine, Refusal, Requirements};

use super::{Denial, PlacementQuery};
use crate::state::first_missing;

/// Returns a denial if the machine lacks required metadata or fails the expression.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let filters = &query.state.filters;
    let metadata = &query.facts().metadata;
    match filters.refusal(query.class.filter, query.machine, metadata)? {
        Rule::MachineMetadata => Some(Denial::Metadata),
        _ => Some(Denial::Expression),
    }
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let refusal = refusal(&query.class.requirements, query.facts());
    refusal.unwrap_or(Refusal::Cordon {})
}

/// Returns the first required key that has no accepted value on the machine, and the value that it
/// has there, if any.
pub(super) fn missing<'a>(query: &PlacementQuery<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let metadata = &query.facts().metadata;
    let (key, _) = first_missing(&query.class.requirements.metadata, metadata)?;
    Some((key, metadata.get(key).map(String::as_str)))
}

/// Returns the refusal for the first required key, in alphabetical order, that has no accepted
/// value on the machine. Returns `None` if there is no such key.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let (key, values) = first_missing(&requirements.metadata, &machine.metadata)?;
    Some(Refusal::MachineMetadata {
        key: key.clone(),
        wanted: values.iter().cloned().collect(),
        found: machine.metadata.get(key).cloned(),
    })
}
