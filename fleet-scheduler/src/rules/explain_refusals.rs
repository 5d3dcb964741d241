//! Explains the refusals of one unit by all machines, and shares equal refusals.

use std::sync::Arc;

use fleet_core::Refusal;

use super::{Denial, PlacementQuery, blocking_units, max_per_machine, metadata};
use crate::index::{Cluster, Lookup, MachineNo, UnitNo};

/// The parts that distinguish one refusal of a unit from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RefusalKey<'a> {
    Cordon,
    MachineId,
    /// The key that does not match, and its value on the machine.
    Metadata(&'a str, Option<&'a str>),
    /// The index of the missing peer.
    MachineOf(usize),
    /// The number of instances, and the limit.
    MaxPerMachine(u32, u32),
}

/// Builds the refusals of one unit.
#[derive(Debug)]
pub(crate) struct RefusalExplainer<'a> {
    index: &'a Cluster,
    unit: UnitNo,
    explained: Lookup<RefusalKey<'a>, Arc<Refusal>>,
    blockers: Vec<Option<Arc<Refusal>>>,
}

impl<'a> RefusalExplainer<'a> {
    /// Creates an explainer for a unit that is on no machine. `denials` contains the denial of each
    /// machine, or `None` if the machine accepts the unit.
    pub(crate) fn new(
        index: &'a Cluster,
        unit: UnitNo,
        denials: &[(MachineNo, Option<Denial>)],
    ) -> Self {
        let blockers = blocking_units::refusals(index, unit, denials);
        Self { index, unit, explained: Lookup::default(), blockers }
    }

    /// Returns the refusal of a machine.
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

/// Returns a key that is equal for machines with equal refusals, so that these machines can share
/// one refusal. Returns `None` for a rule by which refusals usually differ from machine to machine.
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
