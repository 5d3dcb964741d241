//! What a plan, and the mending of what is stored, change in the store.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Snapshot};
use fleet_scheduler::{Action, Plan};
use fleet_store::{Place, PlacementWrites, Unplace};
use fleet_unitfile::UnitName;

/// What a plan changes in the store. It tells of all units that have no machine, so a reason that
/// it does not tell is outdated.
pub(super) fn writes(snapshot: &Snapshot, plan: &Plan) -> PlacementWrites {
    let mut writes = PlacementWrites::default();
    let epoch = Epoch(plan.based_on.0);
    for step in &plan.steps {
        let (unit, was) = (step.unit.clone(), snapshot.placement(step.unit.as_str()).cloned());
        match (&step.action, was) {
            (Action::Place { machine } | Action::Move { to: machine, .. }, was) => {
                writes.place.push(Place { unit, machine: machine.clone(), epoch, was });
            }
            (Action::Remove { .. }, Some(was)) => writes.unplace.push(Unplace { unit, was }),
            (Action::Remove { .. }, None) => {}
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

/// Takes away what else is placed of a unit that has a placement which counts. What may be
/// different by now from how it was when this was planned waits for the next pass.
pub(super) fn mend(writes: &mut PlacementWrites, snapshot: &Snapshot, strays: Vec<Unplace>) {
    if strays.is_empty() {
        return;
    }
    let planned = writes.place.iter().map(|place| &place.unit);
    let planned = planned.chain(writes.unplace.iter().map(|unplace| &unplace.unit));
    let planned: BTreeSet<UnitName> = planned.cloned().collect();
    let counts = |stray: &Unplace| snapshot.placement(stray.unit.as_str()) == Some(&stray.was);
    let strays = strays.into_iter().filter(|stray| !planned.contains(&stray.unit));
    writes.unplace.extend(strays.filter(|stray| !counts(stray)));
}
