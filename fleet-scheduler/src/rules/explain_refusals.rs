//! Explains the refusals of one unit by all machines, and shares equal refusals.
//!
//! A check of each machine for the unit that is in the way would look at every unit there. Instead,
//! a search visits the possible blockers in the order of their names, and records the first blocker
//! of each machine. Usually a few blockers are enough for all machines, so the search ends early.

use std::sync::Arc;

use fleet_core::Refusal;

use super::{Denial, PlacementQuery, conflicts, replaces};
use crate::rules::machine;
use crate::state::{Lookup, MachineNo, State, UnitKind, UnitNo};

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
    state: &'a State,
    unit: UnitNo,
    explained: Lookup<RefusalKey<'a>, Arc<Refusal>>,
    blockers: Vec<Option<Arc<Refusal>>>,
}

impl<'a> RefusalExplainer<'a> {
    /// Creates an explainer for a unit that is on no machine. `denials` contains the denial of each
    /// machine, or `None` if the machine accepts the unit.
    pub(crate) fn new(
        state: &'a State,
        unit: UnitNo,
        denials: &[(MachineNo, Option<Denial>)],
    ) -> Self {
        let blockers = refusals(state, unit, denials);
        Self { state, unit, explained: Lookup::default(), blockers }
    }

    /// Returns the refusal of a machine.
    pub(crate) fn explain(&mut self, machine: MachineNo, denial: Denial) -> Arc<Refusal> {
        let query = PlacementQuery::new(self.state, self.unit, machine);
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
            let (key, found) = machine::missing_metadata(query)?;
            Some(RefusalKey::Metadata(key, found))
        }
        Denial::MachineOf(at) => Some(RefusalKey::MachineOf(at)),
        Denial::MaxPerMachine => {
            let (there, limit) = machine::instance_count(query)?;
            Some(RefusalKey::MaxPerMachine(there, limit))
        }
        _ => None,
    }
}

/// A search for the units that keep one unit away from machines.
#[derive(Debug)]
struct BlockerSearch<'a> {
    state: &'a State,
    unit: UnitNo,
    refusals: Vec<Option<Arc<Refusal>>>,
}

/// Returns refusals, indexed by machine number, for the machines that refuse the unit because of
/// another unit there. The entry is `None` for all other machines, and for those where the search
/// ended before it found the blocker.
pub(super) fn refusals(
    state: &State,
    unit: UnitNo,
    denials: &[(MachineNo, Option<Denial>)],
) -> Vec<Option<Arc<Refusal>>> {
    let (mut conflicts, mut replaced) = (Vec::new(), Vec::new());
    for (machine, denial) in denials {
        match denial {
            Some(Denial::Conflicts) => conflicts.push(*machine),
            Some(Denial::Replaced) => replaced.push(*machine),
            _ => {}
        }
    }
    if conflicts.is_empty() && replaced.is_empty() {
        return Vec::new();
    }
    let refusals = vec![None; state.machines.len()];
    let mut search = BlockerSearch { state, unit, refusals };
    search.by_conflicts(conflicts);
    let all_units = state.units.with_prefix("").map(|(_, unit)| unit);
    search.among(all_units, replaced, |other| replaces::refusal_with(state, other, unit));
    search.refusals
}

impl BlockerSearch<'_> {
    /// Finds the blockers on machines that refuse the unit by `Conflicts=`. The unit's own patterns
    /// come first, in the order written, and then those of other units.
    fn by_conflicts(&mut self, mut machines: Vec<MachineNo>) {
        let (state, unit) = (self.state, self.unit);
        for pattern in state.class(unit).conflicts.iter().copied() {
            let is_there = |machine: &MachineNo| {
                state.machines[*machine].occupancy.counts_of(pattern).matching > 0
            };
            let (there, others) = machines.into_iter().partition(is_there);
            machines = others;
            let refusal_of = |other| Some(conflicts::refusal_with(state, other, pattern, false));
            self.among(state.matching(pattern), there, refusal_of);
        }
        let all_units = state.units.with_prefix("").map(|(_, unit)| unit);
        self.among(all_units, machines, |other| {
            let pattern = conflicts::keeps_away(state, other, unit)?;
            Some(conflicts::refusal_with(state, other, pattern, true))
        });
    }

    /// Visits units in the order of their names, and records the first blocker of each machine.
    ///
    /// The search ends once every machine has a blocker. It also ends after as many units as there
    /// are on these machines, because a check of each machine would then have been no slower.
    fn among(
        &mut self,
        units: impl Iterator<Item = UnitNo>,
        machines: Vec<MachineNo>,
        refusal_of: impl Fn(UnitNo) -> Option<Refusal>,
    ) {
        let mut left = machines.len();
        if left == 0 {
            return;
        }
        let occupancy = |machine: &MachineNo| &self.state.machines[*machine].occupancy;
        let most = machines.iter().map(|machine| occupancy(machine).units.len()).sum();
        let mut open = vec![false; self.refusals.len()];
        machines.iter().for_each(|machine| open[machine.at()] = true);
        for other in units.take(most) {
            let slot = &self.state.units[other];
            if slot.kind == UnitKind::Global && refusal_of(other).is_some() {
                return; // A global unit is on many machines and may come first on any of them.
            }
            let Some(at) = slot.machine.some().map(MachineNo::at).filter(|at| open[*at]) else {
                continue;
            };
            if let Some(refusal) = refusal_of(other) {
                open[at] = false;
                self.refusals[at] = Some(Arc::new(refusal));
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }
}
