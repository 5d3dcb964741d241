//! Keeps units on absent machines from being placed elsewhere too early. Such a unit is *held*
//! while its machine may soon be back, or while its machine may still run the unit. Pure: no I/O,
//! no clock.
//!
//! The planner gets a snapshot in which every held unit has `Reschedule=never`, so it leaves the
//! unit where it is placed. The placements in that snapshot are the real ones. So the plan for all
//! other units is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::requirements::{OnPartition, Reschedule};
use fleet_core::{MachineId, Reason, Snapshot, Timestamp, Unit};
use fleet_scheduler::{Plan, StepAction};
use fleet_store::mirror::{ChangeSet, Delta};
use fleet_unitfile::UnitName;

use crate::stop_deadline::stop_deadline;

/// Time that an engine waits for absent machines after its mirror has become current.
///
/// If the store was out of reach for longer than the leases last, all machines have lost their
/// presence and rejoin one by one. Without the wait, the first machine to rejoin would be given the
/// units of all other machines. A machine tries to join at least every ten seconds, and the value
/// adds some margin.
///
/// A machine that was lost while this engine watched is not awaited: see [`AbsentMachines::lost`].
const GRACE: Duration = Duration::from_secs(15);

/// Units of absent machines, as of the last evaluation.
#[derive(Debug)]
pub(crate) struct AbsentMachines {
    presence_ttl: Duration,
    /// Machines with placements but no presence, each with the time at which this engine noticed
    /// the absence. The machine's lease ended before that time.
    since: BTreeMap<MachineId, Timestamp>,
    /// Machines that were present at the last evaluation.
    present: BTreeSet<MachineId>,
    /// Machines that this engine has seen present, and that were lost after the mirror had been
    /// current for a whole lease. They have renewed their lease since the store is in reach, and
    /// then failed to: the loss has nothing to do with the start of the engine.
    lost: BTreeSet<MachineId>,
    held: BTreeMap<UnitName, Reason>,
    /// Time at which the first hold on one of these units ends.
    next_evaluation: Option<Timestamp>,
    /// Number of gaps in the mirror at the last evaluation.
    gaps: u64,
}

/// Time of an evaluation, and state of the mirror at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MirrorStatus {
    /// A time after the delta was read.
    pub(crate) now: Timestamp,
    /// Time for which the mirror has been current.
    pub(crate) current_for: Duration,
    /// Number of times that the mirror has become current.
    pub(crate) gaps: u64,
}

impl AbsentMachines {
    /// Creates the state without absent machines. `presence_ttl` is the time for which a machine
    /// stays present without renewal.
    pub(crate) fn new(presence_ttl: Duration) -> Self {
        let (since, held) = (BTreeMap::new(), BTreeMap::new());
        let (present, lost) = (BTreeSet::new(), BTreeSet::new());
        Self { presence_ttl, since, present, lost, held, next_evaluation: None, gaps: 0 }
    }

    /// Updates the held units. Returns a copy of `delta` for the planner in which every held unit
    /// has `Reschedule=never`.
    pub(crate) fn hold(&mut self, delta: &Delta, status: MirrorStatus) -> Delta {
        let concerns_missing = self.update_absent(delta, status);
        if concerns_missing
            || self.next_evaluation.is_some_and(|next_evaluation| next_evaluation <= status.now)
        {
            let before = std::mem::take(&mut self.held);
            self.update_held(&delta.snapshot, status);
            let changed = |unit: &&UnitName| before.contains_key(*unit) != self.is_held(unit);
            let changed = before.keys().chain(self.held.keys()).filter(changed);
            return self.with_held(delta, changed.cloned().collect());
        }
        self.with_held(delta, BTreeSet::new())
    }

    /// Returns the earliest time at which a held unit may be released. [`hold`](Self::hold) has to
    /// be called again at that time, even if nothing has changed. Returns `None` if no such time is
    /// known.
    pub(crate) fn next_evaluation(&self) -> Option<Timestamp> {
        self.next_evaluation
    }

    /// Sets the reasons of held units in the plan. Also drops each step that removes the placement
    /// of a unit that may still run, even if the unit is no longer wanted. Without its placement,
    /// such a unit could be started elsewhere while it still runs.
    pub(crate) fn explain(&self, plan: &mut Plan) {
        let may_run =
            |unit: &UnitName| matches!(self.held.get(unit), Some(Reason::MayStillRun { .. }));
        let removes = |action: &StepAction| matches!(action, StepAction::Remove { .. });
        plan.steps.retain(|step| !(removes(&step.action) && may_run(&step.unit)));
        for (unit, reason) in &self.held {
            if let Some(entry) = plan.unplaced.get_mut(unit) {
                *entry = Arc::new(reason.clone());
            }
        }
    }

    fn is_held(&self, unit: &UnitName) -> bool {
        self.held.contains_key(unit)
    }

    /// Updates the absent machines. Returns whether any hold may have changed.
    fn update_absent(&mut self, delta: &Delta, status: MirrorStatus) -> bool {
        let snapshot = &*delta.snapshot;
        let gap = std::mem::replace(&mut self.gaps, status.gaps) != status.gaps;
        let Some(changes) = delta.changes.as_ref().filter(|_| !gap) else {
            // A machine may have been back during the gap and may have resumed its units.
            let machines = snapshot.placements().map(|(_, placement)| &placement.machine);
            let missing = machines.filter(|machine| is_absent(snapshot, machine));
            self.since = missing.map(|machine| (machine.clone(), status.now)).collect();
            self.present = snapshot.machines().map(|machine| machine.id.clone()).collect();
            self.lost.clear();
            return true;
        };
        let mut concerned = false;
        for machine in &changes.machines {
            concerned |= self.since.remove(machine).is_some();
            self.lost.remove(machine);
            if !is_absent(snapshot, machine) {
                self.present.insert(machine.clone());
                continue;
            }
            self.since.insert(machine.clone(), status.now);
            if self.present.remove(machine) && status.current_for >= self.presence_ttl {
                self.lost.insert(machine.clone());
            }
            concerned = true;
        }
        for unit in changes.placements.iter().chain(&changes.units) {
            concerned |= self.is_held(unit);
            let placement = snapshot.placement(unit.as_str());
            let machine = placement.map(|placement| &placement.machine);
            if let Some(machine) = machine.filter(|machine| is_absent(snapshot, machine)) {
                self.since.entry(machine.clone()).or_insert(status.now);
                concerned = true;
            }
        }
        concerned
    }

    /// Computes the held units, and the time at which the first hold ends.
    fn update_held(&mut self, snapshot: &Snapshot, status: MirrorStatus) {
        self.next_evaluation = None;
        let settled = status.now.after(GRACE.saturating_sub(status.current_for));
        let is_settled = status.current_for >= GRACE;
        for (machine, since) in self.since.clone() {
            let is_lost = self.lost.contains(&machine);
            for (name, _) in snapshot.placements_on(&machine) {
                let unit = snapshot.unit(name.as_str());
                let stays = |unit: &Arc<Unit>| unit.requirements.reschedule == Reschedule::Never;
                let waits_anyway = unit.is_some_and(stays);
                let limit = unit.and_then(|unit| self.limit(unit));
                let over = limit.map(|limit| limit.map(|limit| since.after(limit)));
                let may_run = over.is_some_and(|over| over.is_none_or(|over| over > status.now));
                let machine = machine.clone();
                let (reason, until) = match (limit, over) {
                    (Some(limit), Some(over)) if may_run => {
                        (Reason::MayStillRun { machine, limit }, over)
                    }
                    _ if is_settled || is_lost || waits_anyway => continue,
                    _ => (Reason::MachineAwaited { machine }, Some(settled)),
                };
                self.held.insert(name.clone(), reason);
                self.next_evaluation = self.next_evaluation.into_iter().chain(until).min();
            }
        }
        self.since.retain(|machine, _| snapshot.placements_on(machine).next().is_some());
    }

    /// Returns the time for which a unit may still run on its machine after the machine was lost:
    ///
    /// - `None`: the unit has no `OnPartition=stop`, so it is not held for this reason.
    /// - `Some(None)`: the unit will be stopped, but the stop has no time limit.
    /// - `Some(Some(time))`: the unit has certainly ended after `time`.
    fn limit(&self, unit: &Unit) -> Option<Option<Duration>> {
        let stops = unit.requirements.on_partition == OnPartition::Stop;
        stops.then(|| stop_deadline(unit, self.presence_ttl))
    }

    /// Returns a copy of `delta` in which every held unit has `Reschedule=never`. `changed` names
    /// the units that have just become held or are no longer held; they are added to the changed
    /// units of the delta.
    fn with_held(&self, delta: &Delta, changed: BTreeSet<UnitName>) -> Delta {
        if self.held.is_empty() && changed.is_empty() {
            return delta.clone();
        }
        let mut snapshot = delta.snapshot.as_ref().clone();
        for unit in self.held.keys() {
            if let Some(unit) = delta.snapshot.unit(unit.as_str()) {
                snapshot.put_unit(pinned(unit));
            }
        }
        let with = |changes: &ChangeSet| {
            let mut changes = changes.clone();
            changes.units.extend(changed.iter().cloned());
            changes
        };
        let mut adjusted = delta.clone();
        adjusted.changes = delta.changes.as_ref().map(with);
        adjusted.snapshot = Arc::new(snapshot);
        adjusted
    }
}

fn is_absent(snapshot: &Snapshot, machine: &MachineId) -> bool {
    snapshot.machine(machine.as_str()).is_none()
}

/// Returns a copy of the unit with `Reschedule=never`.
fn pinned(unit: &Unit) -> Unit {
    let requirements = unit.requirements.as_ref().clone();
    let requirements = requirements.with_reschedule(Reschedule::Never);
    Unit { requirements: Arc::new(requirements), ..unit.clone() }
}
