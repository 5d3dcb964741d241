//! The planner: finds the changes of placements that bring every wanted unit to a suitable machine.
//!
//! The planner follows `docs/explain/placement.md` section by section. [`keep`] finds the units
//! that stay, [`assign`] finds the machines for the others, and [`replace`] finds the moves that
//! replacements need. [`steps`] and [`reasons`] produce the plan.
//!
//! Terms:
//!
//! - *Single unit*: a wanted unit that runs on one machine. A global unit runs on each machine that
//!   its rules allow.
//! - *Peer*: a unit or pattern that a unit names in `MachineOf=`. The unit runs only where the peer
//!   is.
//! - *Tied*: connected to other units by `MachineOf=`, in either direction. Waiting units that are
//!   tied to each other are placed as a group.
//! - *Parked*: refused by every machine. A parked unit is queued again only after a change that may
//!   make a machine accept it.
//! - *Displaced group*: a unit that another one replaces, with the units on its machine that would
//!   lack a peer without the group. It moves to another machine before the replacer arrives.
//! - *Eviction group*: like a displaced group, but with the units there that its members name as
//!   peers. It leaves its machine as a whole, for a drain or a rebalancing.

mod assign;
mod attempt_limit;
mod candidates;
mod departures;
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

use fleet_core::{Reason, Snapshot};
use fleet_unitfile::UnitName;

use crate::index::{Cluster, MachineNo, PendingPlan, UnitKind, UnitNo};
use crate::plan::Plan;
use queue::AttemptQueue;

/// The result of a decision, once every unit that fits has been placed.
#[derive(Debug, Default)]
struct Decision {
    /// The units that were tried and have no machine.
    tried: Vec<UnitNo>,
    /// The machines that the recheck changed.
    changed_machines: Vec<MachineNo>,
    /// The reasons of the units that were tried and have no machine.
    unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

impl Cluster {
    /// Decides which placements have to change. The plan equals the one that
    /// [`plan`](crate::plan()) makes from a snapshot of the same state.
    ///
    /// The call does not record the planned placements. To do so once the plan is carried out, call
    /// [`apply`](Self::apply), or record the placements as they are observed.
    pub fn plan(&mut self) -> Plan {
        let mut plan = self.plan_affected();
        self.explain_the_others(&mut plan.unplaced);
        plan
    }

    /// Makes the same steps as [`plan`](Self::plan), but gives reasons only for the units that the
    /// changes since the last plan affect. It is faster if many units wait for a machine.
    pub fn plan_affected(&mut self) -> Plan {
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

    /// Rechecks all dirty machines and places every unit that fits.
    fn decide(&mut self) -> Decision {
        let mut queue = AttemptQueue::default();
        let changed_machines = self.recheck_machines();
        self.place_and_separate(&mut queue);
        let tried = self.still_waiting(queue.tried);
        let mut unplaced = self.reasons_of(&tried);
        self.explain_given_up(&queue.given_up, &mut unplaced);
        Decision { tried, changed_machines, unplaced }
    }

    /// Plans the changes that are needed anyway, followed by the moves that `more` makes. Rolls all
    /// of them back, and returns the plan together with the result of `more`.
    fn plan_then<T>(&mut self, more: impl FnOnce(&mut Self) -> T) -> (Plan, T) {
        let quiet = !self.touched && self.unwanted.is_empty();
        let decided = if quiet { Decision::default() } else { self.decide() };
        let Decision { tried, changed_machines, mut unplaced } = decided;
        self.explain_the_others(&mut unplaced);
        let result = more(self);
        let (_, steps) = self.steps(&tried);
        self.pending = Some(PendingPlan { tried, changed_machines, ..PendingPlan::default() });
        self.rewind();
        (Plan { based_on: self.revision(), steps, unplaced }, result)
    }

    /// Stores a plan until it is applied or rolled back. A plan without steps or moves needs no
    /// rollback, so it is not stored.
    fn keep_pending(&mut self, pending: PendingPlan) {
        let is_global = |unit: UnitNo| self.units.slots[unit].kind == UnitKind::Global;
        if pending.units.is_empty() && self.log.iter().all(|entry| is_global(entry.unit)) {
            self.log.clear();
            self.touched = !self.retry_queue.is_empty();
        } else {
            self.pending = Some(pending);
        }
    }

    /// Returns the units that have no machine, without duplicates, sorted by name.
    fn still_waiting(&self, mut units: Vec<UnitNo>) -> Vec<UnitNo> {
        units.retain(|unit| {
            let slot = &self.units.slots[*unit];
            slot.is_waiting() || self.stranded.contains(unit)
        });
        self.units.sort(&mut units);
        units.dedup();
        units
    }

    /// Sets the reason of the units that were parked without an attempt.
    fn explain_given_up(&self, given_up: &[UnitNo], reasons: &mut BTreeMap<UnitName, Arc<Reason>>) {
        for unit in given_up {
            if let Some(reason) = reasons.get_mut(self.units.name(*unit)) {
                *reason = Arc::new(Reason::AttemptLimit);
            }
        }
    }

    /// Adds the reasons of the units that wait for a machine and have none yet.
    fn explain_the_others(&mut self, reasons: &mut BTreeMap<UnitName, Arc<Reason>>) {
        let mut all: Vec<UnitNo> =
            self.stranded.iter().chain(&self.unsatisfiable).copied().collect();
        for class in &self.classes.parked {
            all.extend(self.classes.slots[*class].parked.values());
        }
        all.extend(self.groups.values().flat_map(|group| &group.members));
        all.retain(|unit| !reasons.contains_key(self.units.name(*unit)));
        let others = self.still_waiting(all);
        reasons.append(&mut self.reasons_of(&others));
        // An attempt on a machine may have queued units that its rollback does not take back.
        self.touched |= !self.retry_queue.is_empty();
    }
}

/// Decides which machine runs which unit.
///
/// A unit is wanted if its desired state is loaded or launched and it is not a template. The
/// decision has four stages:
///
/// 1. Removes placements of units that are no longer wanted or are global.
/// 2. Keeps a placement if its machine is present and still passes every rule. To move units for
///    other reasons, use [`Cluster::rebalance`] or [`Cluster::drain`].
/// 3. Places wanted units without a machine, in the order of their names. Units that `MachineOf=`
///    ties together go to one machine. Of the machines that pass every [`Rule`](fleet_core::Rule),
///    the one with the fewest wanted units is chosen, global units included. Among equal machines,
///    it is the one with the lowest ID. If the new unit replaces units there, they move to another
///    machine that passes every rule. If one of them cannot move, the machine refuses the new unit.
/// 4. Separates units that were placed on the same machine before one of them began to replace the
///    other. The replaced unit moves if another machine accepts it.
///
/// The plan depends only on the snapshot, so equal snapshots give equal plans. If a plan was
/// [applied](crate::apply), the plan of the resulting state has no steps.
///
/// A placed unit with an unreadable record stays, because it is unknown whether the unit is wanted.
/// Other units are placed as if the unreadable unit were running.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    Cluster::from(snapshot).plan()
}
