//! Jobs as a part of the cluster, and the observation of their attempts in a snapshot.

use fleet_unitfile::UnitHash;

use super::{
    AttemptId, AttemptProgress, AttemptReport, JobObservation, JobOutcome, JobPhase, JobState,
};
use crate::unit::ExitStatus;
use crate::{
    ActiveState, Generation, MachineId, Revision, Snapshot, SystemdState, TargetState, Timestamp,
    Unit, UnitState,
};

/// A job that the cluster stores.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of jobs that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Hash of the unit file from which the job was made.
    pub hash: UnitHash,
    /// Generation of the unit from which the job was made.
    pub generation: Generation,
    /// The state of the job.
    pub state: JobState,
}

impl AttemptId {
    /// Returns the generation with which an agent starts the attempt.
    ///
    /// Each attempt begins with a write to the store, which raises its revision by at least one. So
    /// a later attempt has a higher generation, also if it belongs to a later job of the same name.
    #[must_use]
    pub const fn generation(self) -> Generation {
        Generation(self.origin.0.saturating_add(self.number as u64))
    }
}

impl JobState {
    /// Returns the attempt that is bound to a machine, with its machine.
    #[must_use]
    pub fn current_attempt(&self) -> Option<(&MachineId, AttemptId)> {
        match &self.phase {
            JobPhase::Running { machine, attempt, .. } => {
                Some((machine, AttemptId { origin: self.origin, number: *attempt }))
            }
            JobPhase::Pending { .. } | JobPhase::Ended { .. } => None,
        }
    }

    /// Returns the outcome of a job that has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<JobOutcome> {
        match self.phase {
            JobPhase::Ended { outcome, .. } => Some(outcome),
            JobPhase::Pending { .. } | JobPhase::Running { .. } => None,
        }
    }

    /// Returns the attempt that was started with a generation. An attempt of an earlier job has no
    /// known number, and sorts before the attempts of this job.
    fn attempt_of(&self, generation: Generation) -> AttemptId {
        match generation.0.checked_sub(self.origin.0) {
            None | Some(0) => AttemptId { origin: Revision(generation.0), number: 0 },
            Some(number) => {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                AttemptId { origin: self.origin, number }
            }
        }
    }
}

impl JobRecord {
    /// Makes the record of a new job. `origin` is the revision of the snapshot that has the unit.
    #[must_use]
    pub fn new(unit: &Unit, origin: Revision, now: Timestamp) -> Self {
        let (hash, generation) = (unit.hash(), unit.generation);
        Self { hash, generation, state: JobState::new(origin, now) }
    }

    /// Returns whether a unit asks for another job than this one. That is the case if the unit is
    /// to be started, and this job has ended or was made from another file or generation.
    #[must_use]
    pub fn is_outdated(&self, unit: &Unit) -> bool {
        let is_same = (self.hash, self.generation) == (unit.hash(), unit.generation);
        unit.desired == TargetState::Launched && !(is_same && self.state.outcome().is_none())
    }

    /// Returns the facts about the job in a snapshot.
    ///
    /// A machine counts as lost once it is absent and the unit is no longer placed on it. The
    /// leader moves the unit after the grace period, unless `Reschedule=never`.
    #[must_use]
    pub fn observe(&self, unit: &Unit, snapshot: &Snapshot) -> JobObservation {
        let name = unit.name.as_str();
        let is_absent = |machine: &MachineId| snapshot.machine(machine.as_str()).is_none();
        let placed = snapshot.placement(name).map(|placement| placement.machine.clone());
        let bound = self.state.current_attempt().map(|(machine, _)| machine);
        let reports: Vec<_> =
            snapshot.states_of(name).filter_map(|state| self.report(state)).collect();
        let machines = reports.iter().map(|report| &report.machine).chain(bound);
        let lost = machines.filter(|it| is_absent(it) && placed.as_ref() != Some(*it));
        let lost = lost.cloned().collect();
        // An attempt that is bound to an absent machine could not begin.
        let placed = placed.filter(|machine| !is_absent(machine) || bound == Some(machine));
        let stop_requested = unit.desired != TargetState::Launched;
        JobObservation { placed, lost, reports, stop_requested }
    }

    /// Returns the report that a published state amounts to; `None` if the machine has begun no
    /// attempt.
    fn report(&self, state: &UnitState) -> Option<AttemptReport> {
        if state.generation == Generation::ZERO {
            return None;
        }
        let machine = state.machine.clone();
        let attempt = self.state.attempt_of(state.generation);
        let (progress, output) = (progress(state), state.output.clone());
        Some(AttemptReport { machine, attempt, progress, output })
    }
}

/// Returns the progress of the attempt that the agent has recorded last.
fn progress(state: &UnitState) -> AttemptProgress {
    let not_started = |reason: &String| AttemptProgress::NotStarted { reason: reason.clone() };
    let SystemdState { active, result, exit, .. } = &state.systemd;
    if !active.has_ended() {
        return AttemptProgress::Active;
    }
    match (state.requested, &state.problem) {
        (TargetState::Inactive, problem) => {
            let default = || format!("its file is {}", state.systemd.load);
            not_started(&problem.clone().unwrap_or_else(default))
        }
        // The machine has restarted, or its agent has stopped the unit.
        (TargetState::Loaded, _) => AttemptProgress::Interrupted,
        (TargetState::Launched, problem) => match (result.as_deref(), problem) {
            (Some(result), Some(problem)) if result != "success" && exit.is_none() => {
                not_started(problem)
            }
            // No daemon has seen the exit.
            (Some(result), _) if result != "success" && *exit == Some(ExitStatus::Unknown) => {
                AttemptProgress::Interrupted
            }
            (Some(result), _) => {
                let status = exit.unwrap_or(ExitStatus::Unknown);
                // systemd counts some signals as a success of a service, but not of a job.
                let is_signal = matches!(status, ExitStatus::Signal(_));
                let is_down = *active == ActiveState::Inactive;
                let success = is_down && result == "success" && !is_signal;
                AttemptProgress::Exited { status, success }
            }
            (None, Some(problem)) => not_started(problem),
            (None, None) => AttemptProgress::Active,
        },
    }
}
