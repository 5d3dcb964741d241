//! The stanzas as units for the checks of the whole set, those with errors too.
//!
//! What is wrong with the whole set is told together with what is wrong with each stanza, so that
//! nobody mends the one only to be told of the other. A stanza with errors counts with what could
//! be read of what it provides and depends on.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, FileSet, Stanza, finish};
use crate::graph::{InitUnit, Name, Target};

/// Of which stanza each unit was made.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Which stanza each of them is, as an index.
    pub(super) stanzas: BTreeMap<Name, usize>,
    /// Whether it is known what each of them provides; if not, nobody can say that a target is
    /// missing.
    pub(super) are_complete: bool,
}

impl Candidates {
    /// The units of all stanzas, and what they stand for.
    pub(super) fn of(sources: &FileSet) -> (Vec<InitUnit>, Self) {
        let stanzas = || sources.stanzas.iter().map(|(_, stanza)| stanza);
        let named: BTreeSet<&Name> = stanzas().filter_map(|stanza| stanza.name.as_ref()).collect();
        // What several stanzas of one name provide: the first to say so.
        let mut provided: BTreeMap<&Name, BTreeSet<&Target>> = BTreeMap::new();
        let (mut units, mut all) = (Vec::with_capacity(sources.stanzas.len()), BTreeMap::new());
        let mut free = (0_u64..).map(nameless).filter(|name| !named.contains(name));
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
        (units, Self { stanzas: all, are_complete: are_complete(sources) })
    }
}

/// The unit of a stanza; of one with errors, what depends on it and what it depends on.
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

/// A name for what has none, or one that is taken.
fn nameless(number: u64) -> Name {
    Name::new(&format!("unnamed-{number}")).expect("letters, a dash and digits make a name")
}

/// Whether it is known what each unit provides.
fn are_complete(sources: &FileSet) -> bool {
    let lost = |code| matches!(code, Code::OutsideStanza | Code::TooLarge);
    !sources.stanzas.iter().any(|(_, stanza)| stanza.provides_more)
        && !sources.diagnostics.iter().flatten().any(|it| lost(it.code))
}
