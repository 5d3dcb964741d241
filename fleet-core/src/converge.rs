//! Reconciliation of a machine: desired and known units in, tasks out.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_unitfile::{UnitHash, UnitName};

use crate::{Epoch, Generation, TargetState, Task, TaskReason, Unit};

/// A unit that is assigned to this machine, with its desired state. If that state is `Inactive`,
/// [`converge`] unloads the unit.
#[derive(Debug, Clone)]
pub struct DesiredUnit {
    /// The unit with its desired state.
    pub unit: Arc<Unit>,
    /// Epoch of the placement; zero for a global unit.
    pub epoch: Epoch,
}

/// A unit in this machine's service manager, with the state that the agent last requested for it.
///
/// [`converge`] compares desired states with these requests, not with the units' actual states. A
/// unit that has exited, or that an operator stopped on the machine, is therefore not started
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownUnit {
    /// Hash of the loaded unit file.
    pub hash: UnitHash,
    /// The state last requested: `Loaded` or `Launched`. `Inactive` means that the unit file is
    /// present but nothing was requested yet, for example after an interrupted load.
    ///
    /// The agent passes `Launched` for a loaded unit that an operator stops: a timer, a socket or
    /// another unit may have started it.
    pub requested: TargetState,
    /// Epoch of the placement for which the unit was loaded.
    pub epoch: Epoch,
    /// The generation that was last started.
    pub generation: Generation,
}

/// Returns the tasks that bring a machine from its known units to its desired units.
///
/// For each unit, the first row of this table that applies decides:
///
/// | desired state on this machine | last request to the service manager | tasks |
/// |---|---|---|
/// | none, `Inactive`, or a template | none: the unit is unknown | none |
/// | none, `Inactive`, or a template | any | unload |
/// | `Loaded` or `Launched` | none: the unit is unknown | load; start if `Launched` |
/// | `Loaded` or `Launched` | for a newer placement | none, because `desired` is outdated |
/// | `Loaded` or `Launched` | with another file hash | unload; the next pass loads the new file |
/// | `Loaded` or `Launched` | `Inactive` | load; start if `Launched` |
/// | `Launched` | `Loaded` | start |
/// | `Launched` | `Launched` with a lower generation | restart |
/// | `Loaded` | `Launched` | stop |
/// | any other combination | | none |
///
/// If one of the last four rows applies, a unit that was loaded for an older placement is also
/// loaded again. This records the newer placement.
///
/// The tasks are returned in this order: all unloads, all loads, one reload if anything was loaded
/// or unloaded, all stops, all restarts, all starts. Tasks of the same kind are ordered by unit
/// name. The service manager has therefore read all files before anything starts.
///
/// The caller must pass a `desired` that is complete at one revision, because any unit missing from
/// it is unloaded.
#[must_use]
pub fn converge(
    desired: &BTreeMap<UnitName, DesiredUnit>,
    known: &BTreeMap<UnitName, KnownUnit>,
) -> Vec<Task> {
    let wanted = |name: &UnitName| desired.get(name).filter(|wanted| wanted.unit.is_wanted());
    let gone = known.keys().filter(|name| wanted(name).is_none());
    // An unload also stops the unit.
    let unload =
        |name: &UnitName| Task::Unload { unit: name.clone(), reason: TaskReason::NotWantedHere };
    let mut tasks: Vec<Task> = gone.map(unload).collect();
    for (name, wanted) in desired.iter().filter(|(_, wanted)| wanted.unit.is_wanted()) {
        match known.get(name) {
            None => load_and_start(wanted, &mut tasks),
            Some(known) => reconcile(wanted, *known, &mut tasks),
        }
    }
    if tasks.iter().any(|task| matches!(task, Task::Load { .. } | Task::Unload { .. })) {
        tasks.push(Task::Reload);
    }
    tasks.sort_by(|one, other| (one.rank(), one.unit()).cmp(&(other.rank(), other.unit())));
    tasks
}

/// Adds a task that loads the unit and, if its desired state is `Launched`, a task that starts it.
fn load_and_start(wanted: &DesiredUnit, tasks: &mut Vec<Task>) {
    let (unit, reason) = (wanted.unit.clone(), TaskReason::NotLoaded);
    tasks.push(Task::Load { unit: unit.clone(), epoch: wanted.epoch, reason });
    if unit.desired == TargetState::Launched {
        tasks.push(Task::Start { unit, reason: TaskReason::NotStarted });
    }
}

/// Reconciles a known unit with its desired state.
fn reconcile(wanted: &DesiredUnit, known: KnownUnit, tasks: &mut Vec<Task>) {
    let unit = wanted.unit.clone();
    let name = unit.name.clone();
    if wanted.epoch < known.epoch && !unit.is_global() {
        return;
    }
    if known.hash != unit.hash() {
        tasks.push(Task::Unload { unit: name, reason: TaskReason::ContentDiffers });
        return;
    }
    if known.requested == TargetState::Inactive {
        return load_and_start(wanted, tasks);
    }
    if wanted.epoch > known.epoch {
        // Loading the same file for a newer placement records the new epoch and does not affect the
        // running unit.
        let reason = TaskReason::NewerPlacement;
        tasks.push(Task::Load { unit: unit.clone(), epoch: wanted.epoch, reason });
    }
    match (unit.desired, known.requested) {
        (TargetState::Launched, TargetState::Launched) if known.generation < unit.generation => {
            tasks.push(Task::Restart { unit, reason: TaskReason::RestartRequested });
        }
        (TargetState::Launched, TargetState::Loaded) => {
            tasks.push(Task::Start { unit, reason: TaskReason::NotStarted });
        }
        (TargetState::Loaded, TargetState::Launched) => {
            tasks.push(Task::Stop { unit: name, reason: TaskReason::NotWantedStarted });
        }
        _ => {}
    }
}
