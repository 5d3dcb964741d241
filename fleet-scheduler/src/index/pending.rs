//! The pending plan, which is either applied or rolled back.

use fleet_core::Epoch;

use super::undo_log::LogPosition;
use super::{Cluster, placements, retry_queue, undo_log};
use crate::plan::Plan;
use crate::plan::{Step, StepAction};
use crate::state::{MachineNo, State, UnitKind, UnitNo, WaitState};

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

/// Applies a plan: records its steps as if each of them had been observed.
pub(crate) fn apply(cluster: &mut Cluster, plan: &Plan) {
    let epoch = Epoch(plan.based_on.0);
    cluster.revision = plan.based_on.next();
    let pending = cluster.pending.take();
    if let Some(pending) = pending {
        if matches_steps(&cluster.state, &pending.units, &plan.steps) {
            return commit(cluster, &pending.units, plan, epoch);
        }
        cluster.pending = Some(pending);
    }
    rewind(cluster);
    for step in &plan.steps {
        match step.to() {
            Some(machine) => cluster.place(step.unit.clone(), machine.clone(), epoch),
            None => cluster.unplace(step.unit.as_str()),
        }
    }
}

/// Returns whether the steps are those that were planned last.
fn matches_steps(state: &State, units: &[UnitNo], steps: &[Step]) -> bool {
    let is_taken = |(unit, step): (&UnitNo, &Step)| {
        let slot = &state.units[*unit];
        let now = slot.machine.some().map(|machine| state.machines.id(machine));
        *slot.name() == step.unit && now == step.to()
    };
    units.len() == steps.len() && units.iter().zip(steps).all(is_taken)
}

fn commit(cluster: &mut Cluster, units: &[UnitNo], plan: &Plan, epoch: Epoch) {
    for (unit, step) in units.iter().zip(&plan.steps) {
        let slot = &mut cluster.state.units[*unit];
        let (old, new) = (slot.placed, slot.machine);
        slot.placed = new;
        slot.epoch = epoch;
        if let Some(new) = new.some() {
            cluster.state.machines[new].named += 1;
        }
        if let Some(old) = old.some() {
            let machine = &mut cluster.state.machines[old];
            machine.named -= 1;
            if !machine.is_present() {
                machine.stranded.remove(unit);
                cluster.state.machines.forget_if_idle(old);
            }
        }
        if matches!(step.action, StepAction::Remove { .. }) {
            cluster.unwanted.remove(&step.unit);
            cluster.state.units.forget_if_idle(*unit);
        }
    }
    cluster.log.clear();
    cluster.touched = false;
}

/// Rolls back the last plan, if it was not applied.
pub(crate) fn rewind(cluster: &mut Cluster) {
    let Some(pending) = cluster.pending.take() else { return };
    cluster.touched = true;
    let mut moved: Vec<UnitNo> =
        undo_log::since(cluster, LogPosition::START).iter().map(|e| e.unit).collect();
    moved.dedup();
    undo_log::undo_to(cluster, LogPosition::START);
    for unit in moved {
        let slot = &cluster.state.units[unit];
        if slot.machine != MachineNo::NONE {
            retry_queue::forget_waiting(cluster, unit);
        } else if slot.kind == UnitKind::Single && slot.wait == WaitState::No {
            retry_queue::enqueue(cluster, unit);
        }
    }
    for unit in pending.tried {
        retry_queue::requeue(cluster, unit);
        if cluster.state.units[unit].wait == WaitState::Stranded {
            cluster.retry_queue.push(unit); // Its reason is due again.
        }
    }
    for machine in pending.changed_machines {
        placements::mark_dirty(cluster, machine);
    }
}
