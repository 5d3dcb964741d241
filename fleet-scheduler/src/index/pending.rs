//! The pending plan, which is either applied or rolled back.

use fleet_core::Epoch;

use super::units::{UnitKind, WaitState};
use super::{Cluster, LogPosition, MachineNo, UnitNo};
use crate::plan::Plan;
use crate::plan::{Step, StepAction};

/// A plan that has not been applied.
#[derive(Debug, Default)]
pub(crate) struct PendingPlan {
    /// The units of its steps, in the same order.
    pub(crate) units: Vec<UnitNo>,
    /// The units that were tried and have no machine.
    pub(crate) tried: Vec<UnitNo>,
    /// The machines that the recheck changed.
    pub(crate) changed_machines: Vec<MachineNo>,
}

impl Cluster {
    /// Applies a plan: records its steps as if each of them had been observed, and sets the revision
    /// that follows that of the plan. New placements get the plan's revision as their epoch.
    ///
    /// The call costs almost nothing if this cluster has just made the plan.
    pub fn apply(&mut self, plan: &Plan) {
        let epoch = Epoch(plan.based_on.0);
        self.revision = plan.based_on.next();
        let pending = self.pending.take();
        if let Some(pending) = pending {
            if self.matches_steps(&pending.units, &plan.steps) {
                return self.commit(&pending.units, plan, epoch);
            }
            self.pending = Some(pending);
        }
        self.rewind();
        for step in &plan.steps {
            match step.to() {
                Some(machine) => self.place(step.unit.clone(), machine.clone(), epoch),
                None => self.unplace(step.unit.as_str()),
            }
        }
    }

    /// Returns whether the steps are those that the index has just made.
    fn matches_steps(&self, units: &[UnitNo], steps: &[Step]) -> bool {
        let is_taken = |(unit, step): (&UnitNo, &Step)| {
            let slot = &self.units.slots[*unit];
            let now = slot.machine.some().map(|machine| self.machines.id(machine));
            *slot.name() == step.unit && now == step.to()
        };
        units.len() == steps.len() && units.iter().zip(steps).all(is_taken)
    }

    fn commit(&mut self, units: &[UnitNo], plan: &Plan, epoch: Epoch) {
        for (unit, step) in units.iter().zip(&plan.steps) {
            let slot = &mut self.units.slots[*unit];
            let (old, new) = (slot.placed, slot.machine);
            slot.placed = new;
            slot.epoch = epoch;
            if let Some(new) = new.some() {
                self.machines.slots[new].named += 1;
            }
            if let Some(old) = old.some() {
                let machine = &mut self.machines.slots[old];
                machine.named -= 1;
                if !machine.is_present() {
                    machine.stranded.remove(unit);
                    self.machines.forget_if_idle(old);
                }
            }
            if matches!(step.action, StepAction::Remove { .. }) {
                self.unwanted.remove(&step.unit);
                self.units.forget_if_idle(*unit);
            }
        }
        self.log.clear();
        self.touched = false;
    }

    /// Rolls back the last plan, if it was not applied.
    pub(crate) fn rewind(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        self.touched = true;
        let mut moved: Vec<UnitNo> =
            self.since(LogPosition::START).iter().map(|e| e.unit).collect();
        moved.dedup();
        self.undo_to(LogPosition::START);
        for unit in moved {
            let slot = &self.units.slots[unit];
            if slot.machine != MachineNo::NONE {
                self.forget_waiting(unit);
            } else if slot.kind == UnitKind::Single && slot.wait == WaitState::No {
                self.enqueue(unit);
            }
        }
        for unit in pending.tried {
            self.requeue(unit);
            if self.units.slots[unit].wait == WaitState::Stranded {
                self.retry_queue.push(unit); // Its reason is due again.
            }
        }
        for machine in pending.changed_machines {
            self.mark_dirty(machine);
        }
    }
}
