//! Encoding of jobs.

use fleet_core::job::{AttemptEnd, AttemptRecord, JobOutcome, JobPhase, JobRecord, JobState};
use fleet_core::{Generation, Revision, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, WireExit, decode, encode, parse, wire};

/// Times are in milliseconds since 1970 (UTC).
#[derive(Serialize, Deserialize)]
struct WireJob {
    v: u32,
    hash: String,
    generation: u64,
    origin: u64,
    created: u64,
    phase: WirePhase,
    last_attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    interrupted: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<WireAttempt>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WirePhase {
    Pending { since: u64 },
    Running { machine: String, attempt: u32, since: u64 },
    Ended { outcome: WireOutcome, at: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireOutcome {
    Succeeded,
    Failed,
    DeadlineExceeded,
    Stopped,
}

#[derive(Serialize, Deserialize)]
struct WireAttempt {
    number: u32,
    machine: String,
    begin: u64,
    end: u64,
    how: WireEnd,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireEnd {
    Exited { status: WireExit, success: bool },
    NotStarted { reason: String },
    MachineLost,
    Interrupted,
    Moved,
    Stopped,
    DeadlineExceeded,
}

wire!(WireJob);

pub(crate) fn encode_job(record: &JobRecord) -> Vec<u8> {
    let JobState { origin, created, phase, last_attempt, failed, interrupted, attempts } =
        &record.state;
    encode(&WireJob {
        v: FORMAT,
        hash: record.hash.to_string(),
        generation: record.generation.0,
        origin: origin.0,
        created: created.as_millis(),
        phase: phase.into(),
        last_attempt: *last_attempt,
        failed: *failed,
        interrupted: *interrupted,
        attempts: attempts.iter().map(WireAttempt::from).collect(),
    })
}

pub(crate) fn decode_job(bytes: &[u8]) -> Result<JobRecord, CodecError> {
    let wire: WireJob = decode(bytes)?;
    let attempts = wire.attempts.into_iter().map(WireAttempt::read).collect::<Result<_, _>>()?;
    let state = JobState {
        origin: Revision(wire.origin),
        created: Timestamp::from_millis(wire.created),
        phase: wire.phase.read()?,
        last_attempt: wire.last_attempt,
        failed: wire.failed,
        interrupted: wire.interrupted,
        attempts,
    };
    let hash = parse(&wire.hash, "a unit file's hash")?;
    Ok(JobRecord { hash, generation: Generation(wire.generation), state })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<&JobPhase> for WirePhase {
    fn from(phase: &JobPhase) -> Self {
        match phase {
            JobPhase::Pending { since } => Self::Pending { since: since.as_millis() },
            JobPhase::Running { machine, attempt, since } => Self::Running {
                machine: machine.to_string(),
                attempt: *attempt,
                since: since.as_millis(),
            },
            JobPhase::Ended { outcome, at } => {
                Self::Ended { outcome: (*outcome).into(), at: at.as_millis() }
            }
        }
    }
}

impl WirePhase {
    fn read(self) -> Result<JobPhase, CodecError> {
        Ok(match self {
            Self::Pending { since } => JobPhase::Pending { since: Timestamp::from_millis(since) },
            Self::Running { machine, attempt, since } => JobPhase::Running {
                machine: parse(&machine, "a machine ID")?,
                attempt,
                since: Timestamp::from_millis(since),
            },
            Self::Ended { outcome, at } => {
                JobPhase::Ended { outcome: outcome.into(), at: Timestamp::from_millis(at) }
            }
        })
    }
}

impl From<JobOutcome> for WireOutcome {
    fn from(outcome: JobOutcome) -> Self {
        match outcome {
            JobOutcome::Succeeded => Self::Succeeded,
            JobOutcome::Failed => Self::Failed,
            JobOutcome::DeadlineExceeded => Self::DeadlineExceeded,
            JobOutcome::Stopped => Self::Stopped,
        }
    }
}

impl From<WireOutcome> for JobOutcome {
    fn from(outcome: WireOutcome) -> Self {
        match outcome {
            WireOutcome::Succeeded => Self::Succeeded,
            WireOutcome::Failed => Self::Failed,
            WireOutcome::DeadlineExceeded => Self::DeadlineExceeded,
            WireOutcome::Stopped => Self::Stopped,
        }
    }
}

impl From<&AttemptRecord> for WireAttempt {
    fn from(attempt: &AttemptRecord) -> Self {
        Self {
            number: attempt.number,
            machine: attempt.machine.to_string(),
            begin: attempt.begin.as_millis(),
            end: attempt.end.as_millis(),
            how: (&attempt.how).into(),
            output: attempt.output.clone(),
        }
    }
}

impl WireAttempt {
    fn read(self) -> Result<AttemptRecord, CodecError> {
        Ok(AttemptRecord {
            number: self.number,
            machine: parse(&self.machine, "a machine ID")?,
            begin: Timestamp::from_millis(self.begin),
            end: Timestamp::from_millis(self.end),
            how: self.how.into(),
            output: self.output,
        })
    }
}

impl From<&AttemptEnd> for WireEnd {
    fn from(end: &AttemptEnd) -> Self {
        match end {
            AttemptEnd::Exited { status, success } => {
                Self::Exited { status: (*status).into(), success: *success }
            }
            AttemptEnd::NotStarted { reason } => Self::NotStarted { reason: reason.clone() },
            AttemptEnd::MachineLost => Self::MachineLost,
            AttemptEnd::Interrupted => Self::Interrupted,
            AttemptEnd::Moved => Self::Moved,
            AttemptEnd::Stopped => Self::Stopped,
            AttemptEnd::DeadlineExceeded => Self::DeadlineExceeded,
        }
    }
}

impl From<WireEnd> for AttemptEnd {
    fn from(end: WireEnd) -> Self {
        match end {
            WireEnd::Exited { status, success } => Self::Exited { status: status.into(), success },
            WireEnd::NotStarted { reason } => Self::NotStarted { reason },
            WireEnd::MachineLost => Self::MachineLost,
            WireEnd::Interrupted => Self::Interrupted,
            WireEnd::Moved => Self::Moved,
            WireEnd::Stopped => Self::Stopped,
            WireEnd::DeadlineExceeded => Self::DeadlineExceeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::unit::ExitStatus;
    use fleet_unitfile::UnitHash;

    use super::*;

    #[test]
    fn jobs_read_back() {
        let at = Timestamp::from_millis;
        let machine: fleet_core::MachineId = "m1".parse().expect("it is a machine ID");
        let exited = |status, success| AttemptEnd::Exited { status, success };
        let ends = [
            exited(ExitStatus::Code(3), false),
            exited(ExitStatus::Signal(9), false),
            exited(ExitStatus::Unknown, true),
            AttemptEnd::NotStarted { reason: "no such program".to_owned() },
            AttemptEnd::MachineLost,
            AttemptEnd::Interrupted,
            AttemptEnd::Moved,
            AttemptEnd::Stopped,
            AttemptEnd::DeadlineExceeded,
        ];
        let attempt = |(number, how)| {
            let (machine, output) = (machine.clone(), vec!["a line".to_owned()]);
            AttemptRecord { number, machine, begin: at(5), end: at(9), how, output }
        };
        let outcomes = [
            JobOutcome::Succeeded,
            JobOutcome::Failed,
            JobOutcome::DeadlineExceeded,
            JobOutcome::Stopped,
        ];
        let mut phases = vec![
            JobPhase::Pending { since: at(4) },
            JobPhase::Running { machine: machine.clone(), attempt: 10, since: at(6) },
        ];
        phases.extend(outcomes.map(|outcome| JobPhase::Ended { outcome, at: at(8) }));
        for phase in phases {
            let mut state = JobState::new(Revision(7), at(1));
            (state.phase, state.last_attempt, state.failed) = (phase, 10, 4);
            state.attempts = (1..).zip(ends.clone()).map(attempt).collect();
            let (hash, generation) = (UnitHash::from_bytes([3; 20]), Generation(2));
            let record = JobRecord { hash, generation, state };
            let read = decode_job(&encode_job(&record)).expect("it was just encoded");
            assert_eq!(read, record);
        }
    }
}
