//! Applies a plan to a snapshot, for previews and tests.

use fleet_core::{Epoch, Snapshot};
use fleet_unitfile::UnitName;

use crate::plan::Plan;
use crate::step::StepAction;

/// Returns the snapshot that results from carrying out a plan on the given snapshot.
///
/// The function changes the placements, replaces the reasons, and sets the next revision. Each new
/// placement gets the plan's revision as its epoch.
///
/// The function does not verify that the steps fit the snapshot; [`check`](crate::check) does.
#[must_use]
pub fn apply(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    let epoch = Epoch(plan.based_on.0);
    for step in &plan.steps {
        match &step.action {
            StepAction::Place { machine } | StepAction::Move { to: machine, .. } => {
                after.place(step.unit.clone(), machine.clone(), epoch);
            }
            StepAction::Remove { .. } => after.unplace(step.unit.as_str()),
        }
    }
    let explained: Vec<UnitName> = after.reasons().map(|(unit, _)| unit.clone()).collect();
    for unit in explained.iter().filter(|unit| !plan.unplaced.contains_key(*unit)) {
        after.remove_reason(unit.as_str());
    }
    for (unit, reason) in &plan.unplaced {
        after.put_reason(unit.clone(), reason.as_ref().clone());
    }
    after.revision = plan.based_on.next();
    after
}
