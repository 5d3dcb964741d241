//! Desired × known → tasks: the table by which a machine reaches its desired state.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_unitfile::{UnitHash, UnitName};

use crate::{Epoch, Generation, TargetState, Task, TaskReason, Unit};

/// A unit that was given to this machine. It should have it as the unit's desired state says:
/// loaded, launched, or, if that is inactive, not at all.
#[derive(Debug, Clone)]
pub struct DesiredUnit {
    /// The unit with its desired state.
    pub unit: Arc<Unit>,
    /// The epoch of its placement; zero for a global unit.
    pub epoch: Epoch,
}

/// A unit that this machine's service manager has, with what was last asked of it.
///
/// What was asked decides, not what runs: a unit that ran and ended is not started again, and one
/// that a person stopped is not either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownUnit {
    /// The hash of the loaded unit file.
    pub hash: UnitHash,
    /// What was last asked: loaded or launched; inactive if its file is there and nothing was asked
    /// yet, for example after a load that was cut short.
    pub requested: TargetState,
    /// The epoch of the placement that it was loaded for.
    pub epoch: Epoch,
    /// The generation that was last started.
    pub generation: Generation,
}

/// The tasks that take a machine from what it knows to what is desired of it.
///
/// | desired here | known | tasks |
/// |---|---|---|
/// | no, inactive, or a template | no | none |
/// | no, inactive, or a template | yes | unload |
/// | yes | no | load; start if launched |
/// | yes | for a newer placement | none: the order has been overtaken |
/// | yes | with another hash | unload; the next pass, which sees it gone, loads it |
/// | yes | for an older placement | load again, which records the placement and disturbs nothing |
/// | yes | inactive: its file is there, and nothing was asked yet | load; start if launched |
/// | launched | loaded | start |
/// | launched | launched, of a lower generation | restart |
/// | loaded | launched | stop |
/// | as known | | none |
///
/// The order is the same for every input: all unloads, all loads, one reload if anything was loaded
/// or unloaded, all stops, all restarts, all starts; by name within each. So all files are in place
/// and read before anything starts. Whoever calls this answers for `desired` being complete at one
/// revision: what is missing from it is unloaded.
#[must_use]
pub fn converge(
    desired: &BTreeMap<UnitName, DesiredUnit>,
    known: &BTreeMap<UnitName, KnownUnit>,
) -> Vec<Task> {
    let wanted = |name: &UnitName| desired.get(name).filter(|wanted| wanted.unit.is_wanted());
    let gone = known.keys().filter(|name| wanted(name).is_none());
    let unload =
        |name: &UnitName| Task::Unload { unit: name.clone(), reason: TaskReason::NotWantedHere };
    let mut tasks: Vec<Task> = gone.map(unload).collect();
    for (name, wanted) in desired.iter().filter(|(_, wanted)| wanted.unit.is_wanted()) {
        match known.get(name) {
            None => bring(wanted, &mut tasks),
            Some(known) => adjust(wanted, *known, &mut tasks),
        }
    }
    if tasks.iter().any(|task| matches!(task, Task::Load { .. } | Task::Unload { .. })) {
        tasks.push(Task::Reload);
    }
    tasks.sort_by(|one, other| (one.rank(), one.unit()).cmp(&(other.rank(), other.unit())));
    tasks
}

/// Loads a unit that is not known here, and starts it if that is wanted.
fn bring(wanted: &DesiredUnit, tasks: &mut Vec<Task>) {
    let (unit, reason) = (wanted.unit.clone(), TaskReason::NotLoaded);
    tasks.push(Task::Load { unit: unit.clone(), epoch: wanted.epoch, reason });
    if unit.desired == TargetState::Launched {
        tasks.push(Task::Start { unit, reason: TaskReason::NotStarted });
    }
}

/// Takes a unit that is known here to what is wanted of it.
fn adjust(wanted: &DesiredUnit, known: KnownUnit, tasks: &mut Vec<Task>) {
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
        return bring(wanted, tasks);
    }
    if wanted.epoch > known.epoch {
        // The same file under a newer order: handing it over again records the new epoch and
        // disturbs nothing that runs.
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
