//! `MachineMetadata=`: of each key that the unit names, the machine has one of the values named.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Metadata, Refusal, Requirements, Rule};

use super::{Denial, PlacementQuery};

/// What a unit names: keys, each with the values that would do.
type RequiredMetadata = BTreeMap<String, BTreeSet<String>>;

/// Whether the machine lacks what the unit asks for, here or by an expression.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let filters = &query.index.filters;
    let metadata = &query.facts().metadata;
    match filters.refusal(query.class.filter, query.machine, metadata)? {
        Rule::MachineMetadata => Some(Denial::Metadata),
        _ => Some(Denial::Expression),
    }
}

/// Whether metadata lacks something that is wanted.
pub(crate) fn lacks(wanted: &RequiredMetadata, metadata: &Metadata) -> bool {
    first_missing(wanted, metadata).is_some()
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let told = refusal(&query.class.requirements, query.facts());
    told.unwrap_or(Refusal::Cordon {})
}

/// The first key that does not match, and what the machine has of it.
pub(super) fn missing<'a>(query: &PlacementQuery<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let metadata = &query.facts().metadata;
    let (key, _) = first_missing(&query.class.requirements.metadata, metadata)?;
    Some((key, metadata.get(key).map(String::as_str)))
}

/// What the machine lacks: the first key, in order, of which it has none of the values.
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
