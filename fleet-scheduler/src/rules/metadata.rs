//! `MachineMetadata=`: of each key that the unit names, the machine has one of the values named.

use std::collections::BTreeSet;

use fleet_core::{Machine, Refusal, Requirements};

use super::Denial;
use crate::roster::{MachineNo, Roster, UnitNo};

/// Whether the machine lacks what the unit asks for.
pub(super) fn denial(roster: &Roster<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    (!roster.has_metadata(unit, machine)).then_some(Denial::Metadata)
}

/// Whether the machine has all that is asked for.
pub(crate) fn passes(requirements: &Requirements, machine: &Machine) -> bool {
    first_missing(requirements, machine).is_none()
}

/// What the machine lacks: the first key, in order, of which it has none of the values.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let (key, values) = first_missing(requirements, machine)?;
    Some(Refusal::MachineMetadata {
        key: key.clone(),
        wanted: values.iter().cloned().collect(),
        found: machine.metadata.get(key).cloned(),
    })
}

fn first_missing<'a>(
    requirements: &'a Requirements,
    machine: &Machine,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    requirements.metadata.iter().find(|(key, values)| {
        let found = machine.metadata.get(*key);
        !found.is_some_and(|value| values.contains(value))
    })
}
