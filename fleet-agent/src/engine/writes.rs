//! Writes of a plan, and repairs of stored placements.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Snapshot};
use fleet_scheduler::{Plan, StepAction};
use fleet_store::{PlacementWrites, RemovePlacement, SetPlacement};
use fleet_unitfile::UnitName;

/// Converts a plan to writes. The plan contains the reasons of all units without a machine. So any
/// other stored reason is outdated, and the writes remove it.
pub(super) fn writes(snapshot: &Snapshot, plan: &Plan) -> PlacementWrites {
    let mut writes = PlacementWrites::default();
    let epoch = Epoch(plan.based_on.0);
    for step in &plan.steps {
        let (unit, previous) = (step.unit.clone(), snapshot.placement(step.unit.as_str()).cloned());
        match (&step.action, previous) {
            (StepAction::Place { machine } | StepAction::Move { to: machine, .. }, previous) => {
                writes.set.push(SetPlacement { unit, machine: machine.clone(), epoch, previous });
            }
            (StepAction::Remove { .. }, Some(previous)) => {
                writes.remove.push(RemovePlacement { unit, previous });
            }
            (StepAction::Remove { .. }, None) => {}
        }
    }
    for (unit, reason) in &plan.unplaced {
        if snapshot.reason(unit.as_str()).is_none_or(|published| published != reason) {
            writes.reasons.push((unit.clone(), Some(reason.as_ref().clone())));
        }
    }
    let outdated = snapshot.reasons().filter(|(unit, _)| !plan.unplaced.contains_key(*unit));
    writes.reasons.extend(outdated.map(|(unit, _)| (unit.clone(), None)));
    writes
}

/// Adds the deletion of superseded placements to `writes`. Skips each unit whose placement `writes`
/// already changes; a later pass deletes its superseded placements.
pub(super) fn remove_superseded(
    writes: &mut PlacementWrites,
    snapshot: &Snapshot,
    superseded: Vec<RemovePlacement>,
) {
    if superseded.is_empty() {
        return;
    }
    let planned = writes.set.iter().map(|place| &place.unit);
    let planned = planned.chain(writes.remove.iter().map(|unplace| &unplace.unit));
    let planned: BTreeSet<UnitName> = planned.cloned().collect();
    let counts = |removal: &RemovePlacement| {
        snapshot.placement(removal.unit.as_str()) == Some(&removal.previous)
    };
    let superseded = superseded.into_iter().filter(|removal| !planned.contains(&removal.unit));
    writes.remove.extend(superseded.filter(|removal| !counts(removal)));
}
