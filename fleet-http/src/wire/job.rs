//! Jobs: reports of their state and of their attempts.

use fleet_core::job::{
    AttemptEnd, AttemptRecord, JobOutcome, JobPhase, JobRecord, JobSettings, JobState,
};
use fleet_core::unit::ExitStatus;
use fleet_core::{MachineId, Snapshot, TargetState, Unit};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

use super::Time;
use super::entity::{is_false, is_zero};

/// The job of a unit, in brief.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSummary {
    /// Number of the last attempt that has begun; zero before the first one.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempt: u64,
    /// Whether the job has ended.
    #[serde(skip_serializing_if = "is_false")]
    pub has_ended: bool,
    /// Hash of the unit file from which the job was made.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Number that distinguishes the job from earlier ones of the unit. Zero before the leader has
    /// made the job.
    #[serde(skip_serializing_if = "is_zero")]
    pub origin: u64,
    /// The phase: `not started`, `pending`, `running`, or the outcome: `succeeded`, `failed`,
    /// `deadline exceeded` or `stopped`.
    pub phase: String,
    /// The phase as a clause, with its cause.
    pub text: String,
}

/// A page of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobPage {
    /// The jobs, ordered by name, without the output of their attempts.
    pub jobs: Vec<JobEntity>,
    /// Token that requests the next page; empty on the last page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
}

/// A job. Times are by the clock of the leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = Job)]
#[non_exhaustive]
pub struct JobEntity {
    /// The last ten ended attempts, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<JobAttempt>,
    /// Whether an interrupted attempt uses up a retry like a failed one.
    #[serde(skip_serializing_if = "is_false")]
    pub count_lost: bool,
    /// Creation of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// Maximum time from the creation to the end, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Number of attempts that failed by themselves.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Number of attempts that were interrupted.
    #[serde(skip_serializing_if = "is_zero")]
    pub interrupted: u64,
    /// Time for which the ended job is kept, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_for_ms: Option<u64>,
    /// The machine of the current attempt.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Name of the unit.
    pub name: String,
    /// Reason that the current attempt has not begun or not started.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Maximum number of further attempts after failed ones.
    pub retries: u64,
    /// Earliest begin of the next attempt, after one that has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Begin of the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The state in brief.
    #[serde(flatten)]
    pub summary: JobSummary,
}

/// An ended attempt of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobAttempt {
    /// Begin of the attempt.
    pub begin: Time,
    /// The time at which the leader recorded the end.
    pub end: Time,
    /// Exit code of the main process, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The machine of the attempt.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Number of the attempt.
    pub number: u64,
    /// The last lines of its output, as far as the machine has reported them. Omitted in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Signal that ended the main process, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the attempt succeeded.
    #[serde(skip_serializing_if = "is_false")]
    pub success: bool,
    /// The end as a clause.
    pub text: String,
}

/// A job with its unit, as a snapshot shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobView<'a> {
    unit: &'a Unit,
    /// The record, unless the unit is to be started again and the leader has not noticed yet.
    record: Option<&'a JobRecord>,
    snapshot: &'a Snapshot,
}

impl<'a> JobView<'a> {
    /// Returns the job of a unit; `None` if the unit is no job.
    pub(crate) fn new(unit: &'a Unit, snapshot: &'a Snapshot) -> Option<Self> {
        if !unit.is_job() || unit.name.is_template() {
            return None;
        }
        let record = snapshot.job(unit.name.as_str()).map(|record| &**record);
        Some(Self { unit, record: record.filter(|record| !record.is_outdated(unit)), snapshot })
    }

    /// Returns the phase as a word.
    pub(crate) fn phase(&self) -> String {
        match self.record.map(|record| &record.state.phase) {
            Some(JobPhase::Ended { outcome, .. }) => outcome.to_string(),
            Some(JobPhase::Running { .. }) => "running".to_owned(),
            Some(JobPhase::Pending { .. }) => "pending".to_owned(),
            None if self.unit.desired == TargetState::Launched => "pending".to_owned(),
            None => "not started".to_owned(),
        }
    }

    /// Returns the machine of the current attempt, or the one on which the unit is placed.
    pub(crate) fn machine(&self) -> Option<&'a str> {
        let current = self.record.and_then(|record| record.state.current_attempt());
        let placement = self.snapshot.placement(self.unit.name.as_str());
        current
            .map(|(machine, _)| machine)
            .or(placement.map(|it| &it.machine))
            .map(MachineId::as_str)
    }

    pub(crate) fn summary(&self) -> JobSummary {
        let phase = self.phase();
        let Some(JobRecord { hash, state, .. }) = self.record else {
            let text = phase.clone();
            return JobSummary { phase, text, ..JobSummary::default() };
        };
        JobSummary {
            attempt: state.last_attempt.into(),
            has_ended: state.outcome().is_some(),
            hash: hash.to_string(),
            origin: state.origin.0,
            phase,
            text: text(state),
        }
    }

    /// Converts the job. `has_output` is `false` for lists.
    pub(crate) fn entity(&self, has_output: bool) -> JobEntity {
        let settings = self.unit.requirements.job.as_ref().map(|job| &job.settings);
        let JobSettings { retries, deadline, keep_for, count_lost } =
            settings.cloned().unwrap_or_default();
        let entity = JobEntity {
            count_lost,
            deadline_ms: deadline.map(millis),
            keep_for_ms: keep_for.map(millis),
            name: self.unit.name.to_string(),
            reason: self.reason(),
            retries: retries.into(),
            summary: self.summary(),
            ..JobEntity::default()
        };
        let Some(JobRecord { state, .. }) = self.record else { return entity };
        let current = state.current_attempt();
        let since = match state.phase {
            JobPhase::Pending { since } | JobPhase::Running { since, .. } => since,
            JobPhase::Ended { at, .. } => at,
        };
        JobEntity {
            attempts: state.attempts.iter().map(|it| attempt(it, has_output)).collect(),
            created: Some(state.created.into()),
            failed: state.failed.into(),
            interrupted: state.interrupted.into(),
            machine_id: current.map_or_else(String::new, |(machine, _)| machine.to_string()),
            retry_at: settings.and_then(|it| state.retry_at(it)).map(Time::from),
            since: Some(since.into()),
            ..entity
        }
    }

    /// Returns why the next attempt has not begun, or why the current one has not started.
    fn reason(&self) -> String {
        let name = self.unit.name.as_str();
        let reason = match self.record.map(|record| &record.state.phase) {
            Some(JobPhase::Ended { .. }) => None,
            Some(JobPhase::Running { machine, .. }) => {
                let state = self.snapshot.state(name, machine.as_str());
                state.and_then(|state| state.problem.clone())
            }
            Some(JobPhase::Pending { .. }) | None => {
                let is_unplaced = self.snapshot.placement(name).is_none();
                self.snapshot.reason(name).filter(|_| is_unplaced).map(ToString::to_string)
            }
        };
        reason.filter(|_| self.unit.is_wanted()).unwrap_or_default()
    }
}

/// Describes the phase with its cause.
fn text(state: &JobState) -> String {
    let last = state.attempts.last();
    match (&state.phase, last) {
        (JobPhase::Pending { .. }, Some(AttemptRecord { number, how, .. })) => {
            format!("pending: attempt {number} {}", clause(how))
        }
        (JobPhase::Ended { outcome: JobOutcome::Failed, .. }, Some(last)) => {
            format!("failed: attempt {} {}", last.number, clause(&last.how))
        }
        (phase, _) => phase.to_string(),
    }
}

/// Returns the end of an attempt as a predicate.
fn clause(how: &AttemptEnd) -> String {
    match how {
        AttemptEnd::Exited { status: ExitStatus::Signal(signal), .. } => {
            format!("was ended by signal {signal}")
        }
        AttemptEnd::Exited { status: ExitStatus::Unknown, .. } => {
            "ended with an unknown status".to_owned()
        }
        AttemptEnd::NotStarted { reason } => format!("did not start: {reason}"),
        AttemptEnd::MachineLost => "lost its machine".to_owned(),
        AttemptEnd::Exited { .. } => how.to_string(),
        AttemptEnd::Interrupted
        | AttemptEnd::Moved
        | AttemptEnd::Stopped
        | AttemptEnd::DeadlineExceeded => format!("was {how}"),
    }
}

fn attempt(record: &AttemptRecord, has_output: bool) -> JobAttempt {
    let (exit_code, signal) = match record.how {
        AttemptEnd::Exited { status: ExitStatus::Code(code), .. } => (Some(code), None),
        AttemptEnd::Exited { status: ExitStatus::Signal(signal), .. } => (None, Some(signal)),
        _ => (None, None),
    };
    JobAttempt {
        begin: record.begin.into(),
        end: record.end.into(),
        exit_code,
        machine_id: record.machine.to_string(),
        number: record.number.into(),
        output: if has_output { record.output.clone() } else { Vec::new() },
        signal,
        success: matches!(record.how, AttemptEnd::Exited { success: true, .. }),
        text: record.how.to_string(),
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
