//! `MachineMetadata=`: for each named key, the machine has one of the named values.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Metadata, Refusal, Requirements, Rule};

use super::{Denial, PlacementQuery};

/// Required metadata: keys, each with its accepted values.
type RequiredMetadata = BTreeMap<String, BTreeSet<String>>;

/// Returns a denial if the machine lacks required metadata or fails the expression.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let filters = &query.index.filters;
    let metadata = &query.facts().metadata;
    match filters.refusal(query.class.filter, query.machine, metadata)? {
        Rule::MachineMetadata => Some(Denial::Metadata),
        _ => Some(Denial::Expression),
    }
}

/// Returns whether the metadata fails the requirements.
pub(crate) fn lacks(wanted: &RequiredMetadata, metadata: &Metadata) -> bool {
    first_missing(wanted, metadata).is_some()
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

fn first_missing<'a>(
    wanted: &'a RequiredMetadata,
    metadata: &Metadata,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    wanted.iter().find(|(key, values)| {
        let found = metadata.get(*key);
        !found.is_some_and(|value| values.contains(value))
    })
}
