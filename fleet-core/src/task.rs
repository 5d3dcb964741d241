//! Reconciliation of a machine: desired and known units in, tasks in the order of their execution
//! out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fleet_unitfile::{UnitHash, UnitName};

use crate::{Epoch, Generation, TargetState, Unit};

/// An operation that an agent requests from its service manager.
///
/// A task holds all data needed to execute it, so the agent has no decisions to make. Every task is
/// idempotent. See [`converge`] for the order.
///
/// All tasks are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// executor that has to handle a new one.
#[derive(Debug, Clone)]
pub enum Task {
    /// Stops the unit, waits until it has stopped, and removes its file.
    Unload {
        /// The unit.
        unit: UnitName,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Passes the unit file to the service manager.
    Load {
        /// The unit with its file.
        unit: Arc<Unit>,
        /// Epoch of the placement.
        epoch: Epoch,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Makes the service manager read all files that were passed to it. The task occurs at most
    /// once, after all loads and before all starts.
    Reload,
    /// Stops the unit and keeps it loaded.
    Stop {
        /// The unit.
        unit: UnitName,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Starts the unit and records its generation as started.
    Start {
        /// The unit.
        unit: Arc<Unit>,
        /// The reason for the task.
        reason: TaskReason,
    },
    /// Stops the unit if it runs, starts it again, and records its generation as started.
    Restart {
        /// The unit.
        unit: Arc<Unit>,
        /// The reason for the task.
        reason: TaskReason,
    },
}

impl Task {
    /// Returns the unit of the task; `None` for a reload.
    #[must_use]
    pub fn unit(&self) -> Option<&UnitName> {
        match self {
            Self::Unload { unit, .. } | Self::Stop { unit, .. } => Some(unit),
            Self::Load { unit, .. } | Self::Start { unit, .. } | Self::Restart { unit, .. } => {
                Some(&unit.name)
            }
            Self::Reload => None,
        }
    }

    /// Returns the position in the order of tasks; a lower rank comes first.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Unload { .. } => 0,
            Self::Load { .. } => 1,
            Self::Reload => 2,
            Self::Stop { .. } => 3,
            Self::Restart { .. } => 4,
            Self::Start { .. } => 5,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unload { unit, reason } => write!(f, "unload {unit}: {reason}"),
            Self::Load { unit, reason, .. } => write!(f, "load {}: {reason}", unit.name),
            Self::Reload => f.write_str("reload"),
            Self::Stop { unit, reason } => write!(f, "stop {unit}: {reason}"),
            Self::Start { unit, reason } => write!(f, "start {}: {reason}", unit.name),
            Self::Restart { unit, reason } => write!(f, "restart {}: {reason}", unit.name),
        }
    }
}

/// The reason for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskReason {
    /// The unit is loaded here, but should not be.
    NotWantedHere,
    /// The unit should be here and is not loaded.
    NotLoaded,
    /// A different unit file is loaded under the unit's name.
    ContentDiffers,
    /// The unit is loaded for an older placement, and a newer placement of the unit exists.
    NewerPlacement,
    /// The unit is loaded and should be started.
    NotStarted,
    /// The unit was started and should only be loaded.
    NotWantedStarted,
    /// A restart was requested since the last start.
    RestartRequested,
}

impl fmt::Display for TaskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWantedHere => "it is loaded but not wanted here",
            Self::NotLoaded => "it is wanted here but not loaded",
            Self::ContentDiffers => "another unit file is loaded under its name",
            Self::NewerPlacement => "a newer placement asks for it",
            Self::NotStarted => "it is loaded but should be started",
            Self::NotWantedStarted => "it is started but should only be loaded",
            Self::RestartRequested => "a restart was requested",
        })
    }
}

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
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of known units that a new field has to become a part of.
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
