//! The planner: what is done with an index to find out what has to change.
//!
//! It follows `docs/placement.md` section by section: [`settle`] finds who stays, [`place`] who
//! comes and where, [`replace`] who moves away for it, [`steps`] and [`reasons`] tell it.

mod assign;
mod candidates;
mod disruption_budget;
mod drain;
mod eviction_group;
mod globals;
#[cfg(test)]
mod incremental_tests;
mod keep;
mod queue;
mod reasons;
mod rebalance;
mod replace;
mod retry_hint;
mod search;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::Reason;
use fleet_unitfile::UnitName;

use crate::index::{Index, MachineNo, PendingPlan, UnitKind, UnitNo};
use crate::plan::Plan;
use queue::AttemptQueue;

/// What is known once all has been placed that can be.
#[derive(Debug, Default)]
struct Decision {
    /// The units that were tried and have no machine.
    tried: Vec<UnitNo>,
    /// The machines where anybody went or came when they were settled.
    changed_machines: Vec<MachineNo>,
    /// LeaveReason those that were tried have no machine.
    unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

impl Index {
    /// Decides what has to change.
    ///
    /// It is the plan that [`plan`](crate::plan()) makes of a snapshot of the same state, except
    /// that [`Plan::unplaced`] tells only of those units that this plan had to try: after a
    /// loading these are all that have no machine, later those to which something has happened.
    /// All are told by [`reasons`](Self::reasons).
    ///
    /// The index is afterwards as it was before; carry the plan out by [`apply`](Self::apply), or
    /// tell what was observed of it.
    pub fn plan(&mut self) -> Plan {
        self.rewind();
        let based_on = self.revision();
        if !self.touched && self.unwanted.is_empty() {
            return Plan { based_on, ..Plan::default() };
        }
        let Decision { tried, changed_machines, unplaced } = self.decide();
        let (units, steps) = self.steps(&tried);
        self.keep_pending(PendingPlan { units, tried, changed_machines });
        Plan { based_on, steps, unplaced }
    }

    /// Settles all machines and places whom it can.
    fn decide(&mut self) -> Decision {
        let mut queue = AttemptQueue::default();
        let changed_machines = self.recheck_machines();
        self.place_and_separate(&mut queue);
        let tried = self.still_waiting(queue.tried);
        let unplaced = self.reasons_of(&tried);
        Decision { tried, changed_machines, unplaced }
    }

    /// The plan that begins with what has to change anyway and goes on with what `more` moves. All
    /// is taken back.
    fn plan_then<T>(&mut self, more: impl FnOnce(&mut Self) -> T) -> (Plan, T) {
        let quiet = !self.touched && self.unwanted.is_empty();
        let decided = if quiet { Decision::default() } else { self.decide() };
        let Decision { tried, changed_machines, unplaced } = decided;
        let told = more(self);
        let (_, steps) = self.steps(&tried);
        self.pending = Some(PendingPlan { tried, changed_machines, ..PendingPlan::default() });
        self.rewind();
        (Plan { based_on: self.revision(), steps, unplaced }, told)
    }

    /// Keeps a plan until it is carried out or taken back. One that has no steps and moved nobody
    /// about has nothing to take back.
    fn keep_pending(&mut self, pending: PendingPlan) {
        let is_global = |unit: UnitNo| self.units.slots[unit].kind == UnitKind::Global;
        if pending.units.is_empty() && self.log.iter().all(|entry| is_global(entry.unit)) {
            self.log.clear();
            self.touched = false;
        } else {
            self.pending = Some(pending);
        }
    }

    /// Those of the units that have no machine, each once, by name.
    fn still_waiting(&self, mut units: Vec<UnitNo>) -> Vec<UnitNo> {
        units.retain(|unit| {
            let slot = &self.units.slots[*unit];
            slot.is_waiting() || self.stranded.contains(unit)
        });
        self.units.sort(&mut units);
        units.dedup();
        units
    }

    /// LeaveReason each unit that waits for a machine has none and would get none by a plan made now.
    ///
    /// Units of which a plan finds a machine are left out.
    pub fn reasons(&mut self) -> BTreeMap<UnitName, Arc<Reason>> {
        self.rewind();
        let mut queue = AttemptQueue::default();
        let changed_machines = self.recheck_machines();
        self.place_and_separate(&mut queue);
        let tried = self.still_waiting(queue.tried);
        let mut all: Vec<UnitNo> =
            self.stranded.iter().chain(&self.unsatisfiable).copied().collect();
        for class in &self.classes.parked {
            all.extend(self.classes.slots[*class].parked.values());
        }
        all.extend(self.groups.values().flat_map(|group| &group.members));
        let all = self.still_waiting(all);
        let reasons = self.reasons_of(&all);
        // Taken back in any case, so that the next plan tells what it would have told.
        self.pending = Some(PendingPlan { tried, changed_machines, ..PendingPlan::default() });
        reasons
    }
}
