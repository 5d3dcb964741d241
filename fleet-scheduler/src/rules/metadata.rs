//! `MachineMetadata=`: of each key that the unit names, the machine has one of the values named.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Metadata, Refusal, Requirements, Rule};

use super::{Denial, Question};

/// What a unit names: keys, each with the values that would do.
type Wanted = BTreeMap<String, BTreeSet<String>>;

/// Whether the machine lacks what the unit asks for, here or by an expression.
pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let filters = &question.index.filters;
    let metadata = &question.facts().metadata;
    match filters.refusal(question.class.filter, question.machine, metadata)? {
        Rule::MachineMetadata => Some(Denial::Metadata),
        _ => Some(Denial::Expression),
    }
}

/// Whether metadata lacks something that is wanted.
pub(crate) fn lacks(wanted: &Wanted, metadata: &Metadata) -> bool {
    first_missing(wanted, metadata).is_some()
}

pub(super) fn told(question: &Question<'_>) -> Refusal {
    let told = refusal(&question.class.requirements, question.facts());
    told.unwrap_or(Refusal::Cordon {})
}

/// The first key that does not match, and what the machine has of it.
pub(super) fn missing<'a>(question: &Question<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let metadata = &question.facts().metadata;
    let (key, _) = first_missing(&question.class.requirements.metadata, metadata)?;
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
    wanted: &'a Wanted,
    metadata: &Metadata,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    wanted.iter().find(|(key, values)| {
        let found = metadata.get(*key);
        !found.is_some_and(|value| values.contains(value))
    })
}
