//! Telling one unit what every machine says, without saying the same thing twice.

use std::sync::Arc;

use fleet_core::Refusal;

use super::{Denial, PlacementQuery, blocking_units, max_per_machine, metadata};
use crate::index::{Index, Lookup, MachineNo, UnitNo};

/// What makes a refusal of one unit differ from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RefusalKey<'a> {
    Cordon,
    MachineId,
    /// The key that does not match, and what the machine has of it.
    Metadata(&'a str, Option<&'a str>),
    /// The place of the peer that is missing.
    MachineOf(usize),
    /// How many instances there are, and how many there may be.
    MaxPerMachine(u32, u32),
}

/// Tells what machines say to one unit.
#[derive(Debug)]
pub(crate) struct RefusalExplainer<'a> {
    index: &'a Index,
    unit: UnitNo,
    explained: Lookup<RefusalKey<'a>, Arc<Refusal>>,
    blockers: Vec<Option<Arc<Refusal>>>,
}

impl<'a> RefusalExplainer<'a> {
    /// For a unit that is nowhere and to which the machines have answered so.
    pub(crate) fn new(
        index: &'a Index,
        unit: UnitNo,
        denials: &[(MachineNo, Option<Denial>)],
    ) -> Self {
        let blockers = blocking_units::refusals(index, unit, denials);
        Self { index, unit, explained: Lookup::default(), blockers }
    }

    /// What a machine says.
    pub(crate) fn explain(&mut self, machine: MachineNo, denial: Denial) -> Arc<Refusal> {
        let query = PlacementQuery::new(self.index, self.unit, machine);
        if let Some(explained) = self.blockers.get_mut(machine.at()).and_then(Option::take) {
            return explained;
        }
        let Some(refusal_key) = refusal_key(&query, denial) else {
            return Arc::new(query.refusal(denial));
        };
        if let Some(explained) = self.explained.get(&refusal_key) {
            return explained.clone();
        }
        let explained = Arc::new(query.refusal(denial));
        self.explained.insert(refusal_key, explained.clone());
        explained
    }
}

/// What makes the refusal of a machine differ from those of others; `None` if each is another.
fn refusal_key<'a>(query: &PlacementQuery<'a>, denial: Denial) -> Option<RefusalKey<'a>> {
    match denial {
        Denial::Cordon => Some(RefusalKey::Cordon),
        Denial::MachineId => Some(RefusalKey::MachineId),
        Denial::Metadata => {
            let (key, found) = metadata::missing(query)?;
            Some(RefusalKey::Metadata(key, found))
        }
        Denial::MachineOf(at) => Some(RefusalKey::MachineOf(at)),
        Denial::MaxPerMachine => {
            let (there, limit) = max_per_machine::count(query)?;
            Some(RefusalKey::MaxPerMachine(there, limit))
        }
        _ => None,
    }
}
