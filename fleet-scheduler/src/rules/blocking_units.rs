//! Finds the units that keep another unit away from machines, for many machines at once.
//!
//! A check of each machine would look at every unit there. Instead, this search visits the possible
//! blockers in the order of their names, and records the first blocker of each machine. Usually a
//! few blockers are enough for all machines, so the search ends early.

use std::sync::Arc;

use fleet_core::Refusal;

use super::{Denial, conflicts, replaces};
use crate::index::{Cluster, MachineNo, UnitKind, UnitNo};

/// A search for the units that keep one unit away from machines.
#[derive(Debug)]
struct BlockerSearch<'a> {
    index: &'a Cluster,
    unit: UnitNo,
    refusals: Vec<Option<Arc<Refusal>>>,
}

/// Returns refusals, indexed by machine number, for the machines that refuse the unit because of
/// another unit there. The entry is `None` for all other machines, and for those where the search
/// ended before it found the blocker.
pub(super) fn refusals(
    index: &Cluster,
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
    let refusals = vec![None; index.machines.slots.len()];
    let mut search = BlockerSearch { index, unit, refusals };
    search.by_conflicts(conflicts);
    let all_units = index.units.with_prefix("").map(|(_, unit)| unit);
    search.among(all_units, replaced, |other| replaces::refusal_with(index, other, unit));
    search.refusals
}

impl BlockerSearch<'_> {
    /// Finds the blockers on machines that refuse the unit by `Conflicts=`. The unit's own patterns
    /// come first, in the order written, and then those of other units.
    fn by_conflicts(&mut self, mut machines: Vec<MachineNo>) {
        let (index, unit) = (self.index, self.unit);
        for pattern in index.class(unit).conflicts.iter().copied() {
            let is_there = |machine: &MachineNo| {
                index.machines.slots[*machine].occupancy.counts_of(pattern).matching > 0
            };
            let (there, others) = machines.into_iter().partition(is_there);
            machines = others;
            let refusal_of = |other| Some(conflicts::refusal_with(index, other, pattern, false));
            self.among(index.matching(pattern), there, refusal_of);
        }
        let all_units = index.units.with_prefix("").map(|(_, unit)| unit);
        self.among(all_units, machines, |other| {
            let pattern = conflicts::keeps_away(index, other, unit)?;
            Some(conflicts::refusal_with(index, other, pattern, true))
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
        let occupancy = |machine: &MachineNo| &self.index.machines.slots[*machine].occupancy;
        let most = machines.iter().map(|machine| occupancy(machine).units.len()).sum();
        let mut open = vec![false; self.refusals.len()];
        machines.iter().for_each(|machine| open[machine.at()] = true);
        for other in units.take(most) {
            let slot = &self.index.units.slots[other];
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
