//! Reports the remaining work of a drain. Pure.

use fleet_core::{ActiveState, MachineId, Snapshot};
use fleet_scheduler::{Cluster, Drain, DrainPlan, Policy, Step, StepAction, share};

use crate::wire::{DrainReport, HeldUnit, UnitMove};

/// Reports the remaining work of a drain on one machine. The moves are taken from a plan that
/// covers all machines being drained.
pub(crate) fn drain_report(snapshot: &Snapshot, id: &MachineId, min_available: u32) -> DrainReport {
    let drain = Drain::from_intents(snapshot, snapshot.machines().map(AsRef::as_ref));
    let plan = drain.map(|drain| Cluster::load(Policy::default(), snapshot).drain(&drain));
    let (moves, held) = plan.map(|plan| of_machine(&plan, snapshot, id)).unwrap_or_default();
    let global = share(snapshot, id).units.into_values().filter(|(unit, _)| unit.is_global());
    DrainReport {
        global: global.map(|(unit, _)| unit.name.to_string()).collect(),
        held,
        min_available,
        leaving: leaving(snapshot, id),
        machine_id: id.to_string(),
        moves,
    }
}

/// Returns the units that move away from a machine next, and the units that cannot move yet, each
/// with the reason.
fn of_machine(
    plan: &DrainPlan,
    snapshot: &Snapshot,
    id: &MachineId,
) -> (Vec<UnitMove>, Vec<HeldUnit>) {
    let away = |step: &Step| match &step.action {
        StepAction::Move { from, to } if from == id => {
            Some(UnitMove { to: to.to_string(), unit: step.unit.to_string() })
        }
        _ => None,
    };
    let on_it = plan.held.iter().filter(|(unit, _)| {
        snapshot.placement(unit.as_str()).is_some_and(|placement| placement.machine == *id)
    });
    let held =
        on_it.map(|(unit, why)| HeldUnit { reason: why.to_string(), unit: unit.to_string() });
    (plan.plan.steps.iter().filter_map(away).collect(), held.collect())
}

/// Returns the units that are still active on a machine although the machine should no longer run
/// them.
fn leaving(snapshot: &Snapshot, id: &MachineId) -> Vec<String> {
    let belongs = share(snapshot, id).units;
    let runs = |active| !matches!(active, ActiveState::Inactive | ActiveState::Failed);
    let states = snapshot.states().filter(|state| state.machine == *id);
    let leaving = states.filter(|state| {
        let placed = snapshot.placement(state.unit.as_str());
        let is_here = placed.is_some_and(|placement| placement.machine == *id);
        runs(state.systemd.active) && !is_here && !belongs.contains_key(&state.unit)
    });
    leaving.map(|state| state.unit.to_string()).collect()
}
