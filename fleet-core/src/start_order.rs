//! Start order across machines: the units of a `StartAfter=` that are not active yet.

use std::fmt;

use fleet_unitfile::UnitName;

use crate::job::{JobOutcome, JobPhase};
use crate::{ActiveState, MachineId, Snapshot, TargetState, Unit, UnitState};

/// A unit of a `StartAfter=` that has not run yet, so the start has to wait.
///
/// `Display` writes the unit and its state: `db.service (StartAfter=), which is activating on m2`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartBlocker {
    /// The unit to wait for.
    pub unit: UnitName,
    /// The reason why it has not run yet.
    pub cause: BlockerCause,
}

/// The reason why a unit of a `StartAfter=` has not run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockerCause {
    /// The unit does not exist.
    Unknown,
    /// The stored unit cannot be decoded.
    Unreadable,
    /// The desired state of the unit is not launched.
    NotLaunched(TargetState),
    /// The unit has no machine.
    NoMachine,
    /// The machine has not started the present version of the unit for its present placement.
    NotStarted(MachineId),
    /// The unit was started on the machine, and is in this state.
    State(MachineId, ActiveState),
    /// The unit is a job that has not succeeded. `None` if the job does not exist yet.
    Job(Option<JobPhase>),
    /// The unit is a schedule, which never runs itself.
    Schedule,
}

impl fmt::Display for StartBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (StartAfter=), which ", self.unit)?;
        match &self.cause {
            BlockerCause::Unknown => f.write_str("does not exist"),
            BlockerCause::Unreadable => f.write_str("cannot be read"),
            BlockerCause::NotLaunched(state) => write!(f, "is to be {state} only"),
            BlockerCause::NoMachine => f.write_str("has no machine"),
            BlockerCause::NotStarted(machine) => {
                write!(f, "is not started on {} yet", machine.short())
            }
            BlockerCause::State(machine, ActiveState::Failed) => {
                write!(f, "has failed on {}", machine.short())
            }
            BlockerCause::Job(Some(JobPhase::Ended { outcome, .. })) => {
                write!(f, "has not succeeded: {outcome}")
            }
            BlockerCause::Job(Some(JobPhase::Running { machine, .. })) => {
                write!(f, "is running on {}", machine.short())
            }
            BlockerCause::Job(Some(JobPhase::Pending { .. }) | None) => f.write_str("is pending"),
            BlockerCause::Schedule => f.write_str("is a schedule and never runs itself"),
            BlockerCause::State(machine, state) => write!(f, "is {state} on {}", machine.short()),
        }
    }
}

/// Returns the units of the `StartAfter=` of `unit` that have not run yet, in the order written.
/// The unit may be started once there are none.
///
/// A unit has run if its machine reports the present version, placement and generation of the unit
/// as active, or as inactive after a successful run. A global unit needs one such machine only. A
/// job has run once it has succeeded.
///
/// The cost depends on the number of named units, and for a global one on that of its machines.
#[must_use]
pub fn start_blockers(snapshot: &Snapshot, unit: &Unit) -> Vec<StartBlocker> {
    let blocker = |name: &UnitName| {
        let cause = cause(snapshot, name)?;
        Some(StartBlocker { unit: name.clone(), cause })
    };
    unit.requirements.start_after.iter().filter_map(blocker).collect()
}

/// Returns the reason why a unit has not run yet; `None` if it has.
fn cause(snapshot: &Snapshot, name: &UnitName) -> Option<BlockerCause> {
    let name = name.as_str();
    let Some(unit) = snapshot.unit(name) else {
        let is_unreadable = snapshot.fault(name).is_some();
        return Some(if is_unreadable { BlockerCause::Unreadable } else { BlockerCause::Unknown });
    };
    if unit.is_schedule() {
        return Some(BlockerCause::Schedule);
    }
    if unit.is_job() {
        return cause_of_job(snapshot, unit);
    }
    if unit.desired != TargetState::Launched {
        return Some(BlockerCause::NotLaunched(unit.desired));
    }
    if unit.is_global() {
        return cause_of_global(snapshot, unit);
    }
    let Some(placement) = snapshot.placement(name) else { return Some(BlockerCause::NoMachine) };
    let state = snapshot.state(name, placement.machine.as_str());
    match state.filter(|state| state.epoch == placement.epoch && is_started(unit, state)) {
        Some(state) => cause_of_state(state),
        None => Some(BlockerCause::NotStarted(placement.machine.clone())),
    }
}

fn cause_of_job(snapshot: &Snapshot, unit: &Unit) -> Option<BlockerCause> {
    let job = snapshot.job(unit.name.as_str()).filter(|job| !job.is_outdated(unit));
    match job.map(|job| &job.state.phase) {
        Some(JobPhase::Ended { outcome: JobOutcome::Succeeded, .. }) => None,
        phase => Some(BlockerCause::Job(phase.cloned())),
    }
}

fn cause_of_global(snapshot: &Snapshot, unit: &Unit) -> Option<BlockerCause> {
    let mut cause = BlockerCause::NoMachine;
    for state in snapshot.states_of(unit.name.as_str()) {
        if is_started(unit, state) {
            cause = cause_of_state(state)?;
        } else if cause == BlockerCause::NoMachine {
            cause = BlockerCause::NotStarted(state.machine.clone());
        }
    }
    Some(cause)
}

/// Returns whether a machine has started the present version and generation of the unit.
fn is_started(unit: &Unit, state: &UnitState) -> bool {
    state.requested == TargetState::Launched
        && state.hash == unit.hash()
        && state.generation >= unit.generation
}

/// Returns the reason why a started unit has not run yet; `None` if it has.
fn cause_of_state(state: &UnitState) -> Option<BlockerCause> {
    let active = state.systemd.active;
    let has_run = match active {
        ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing => true,
        // An earlier run leaves no result once the generation is recorded as started.
        ActiveState::Inactive => state.systemd.result.as_deref() == Some("success"),
        _ => false,
    };
    (!has_run).then(|| BlockerCause::State(state.machine.clone(), active))
}
