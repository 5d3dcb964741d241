//! Units of all stanzas, including stanzas with errors. They are the input for the checks of the
//! whole set of units (such as the check for missing targets).
//!
//! These checks run even if single stanzas have errors, so that all errors are reported at once.
//! From a stanza with errors, they use the targets and dependencies that could be read.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, FileSet, Stanza, finish};
use crate::graph::{InitUnit, Name, Target};

/// Origin of each unit of the checked set.
#[derive(Debug, Default)]
pub(super) struct CandidateUnits {
    /// Index of the stanza of each unit.
    pub(super) stanzas: BTreeMap<Name, usize>,
    /// Whether the provided targets of all units are known. Otherwise no target can be reported as
    /// missing.
    pub(super) is_complete: bool,
}

impl CandidateUnits {
    /// Returns the units of all stanzas with their origins.
    pub(super) fn of(files: &FileSet) -> (Vec<InitUnit>, Self) {
        let stanzas = || files.stanzas.iter().map(|(_, stanza)| stanza);
        let named: BTreeSet<&Name> = stanzas().filter_map(|stanza| stanza.name.as_ref()).collect();
        // Targets of earlier stanzas of the same name; the first one keeps them.
        let mut provided: BTreeMap<&Name, BTreeSet<&Target>> = BTreeMap::new();
        let (mut units, mut all) = (Vec::with_capacity(files.stanzas.len()), BTreeMap::new());
        let mut free = (0_u64..).map(placeholder_name).filter(|name| !named.contains(name));
        for (index, stanza) in stanzas().enumerate() {
            let own = stanza.name.clone().filter(|it| !all.contains_key(it));
            let Some(name) = own.or_else(|| free.next()) else { continue };
            let mut unit = unit(stanza, &name);
            if let Some(claimed) = stanza.name.as_ref().map(|it| provided.entry(it).or_default()) {
                unit.provides.retain(|target| !claimed.contains(target));
                claimed.extend(stanza.provides.iter().map(|(target, _)| target));
            }
            all.insert(name, index);
            units.push(unit);
        }
        (units, Self { stanzas: all, is_complete: is_complete(files) })
    }
}

/// Returns the unit of a stanza. For a stanza with errors, the unit has only the targets and
/// dependencies that could be read.
fn unit(stanza: &Stanza, name: &Name) -> InitUnit {
    if let Some(unit) = &stanza.unit {
        return InitUnit { name: name.clone(), ..unit.clone() };
    }
    let provides = stanza.provides.iter().map(|(target, _)| target.clone());
    InitUnit {
        edges: finish::edges(&stanza.edges),
        ..InitUnit::new_virtual(name.clone(), provides)
    }
}

/// Returns a placeholder name for a stanza that has no name, or has a name that is already taken.
fn placeholder_name(number: u64) -> Name {
    Name::new(&format!("unnamed-{number}")).expect("letters, a dash and digits make a name")
}

/// Returns whether the provided targets of all units are known.
fn is_complete(files: &FileSet) -> bool {
    let lost = |code| matches!(code, Code::OutsideStanza | Code::TooLarge | Code::Unreadable);
    !files.stanzas.iter().any(|(_, stanza)| stanza.provides_incomplete)
        && !files.diagnostics.iter().flatten().any(|it| lost(it.code))
}
