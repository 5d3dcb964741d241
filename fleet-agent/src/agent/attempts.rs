//! Attempts of jobs on this machine. Each attempt is recorded before its unit is started, and a
//! recorded attempt is never started by a later daemon. So it runs at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fleet_core::job::JobRecord;
use fleet_core::{DesiredUnit, Generation, KnownUnit, MachineId, Snapshot, TargetState, Unit};
use fleet_store::registry::Lineage;
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::job_reports::JobReports;
use super::state::{AgentState, StateKey};
use super::task_tracker::{DesiredUnits, KnownUnits};

/// Format version. Other versions are ignored.
const FORMAT: u32 = 1;

/// Attempts of the jobs of a machine, by their generations.
pub(crate) struct Attempts {
    machine: MachineId,
    state: Arc<dyn AgentState>,
    reports: Arc<JobReports>,
    /// The last recorded attempt of each job.
    recorded: Recorded,
    /// Recorded attempts that this daemon has not started yet.
    begun: BTreeMap<UnitName, Generation>,
}

/// The attempts as they are on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Recorded {
    /// Lineage of the store that the attempts are from, if the store had one.
    lineage: Option<String>,
    attempts: BTreeMap<UnitName, Generation>,
}

#[derive(Serialize, Deserialize)]
struct StoredAttempts {
    v: u32,
    machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lineage: Option<String>,
    attempts: BTreeMap<String, u64>,
}

/// The agent's next step for the unit of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobTask {
    /// Start this attempt.
    Start(Generation),
    /// Leave the unit as it is, and load it if it is unknown.
    Hold,
    /// Only load the unit; stop an attempt of an earlier job.
    Load,
}

impl Attempts {
    pub(crate) fn new(
        machine: MachineId,
        state: Arc<dyn AgentState>,
        reports: Arc<JobReports>,
    ) -> Self {
        let (recorded, begun) = (Recorded::default(), BTreeMap::new());
        Self { machine, state, reports, recorded, begun }
    }

    /// Reads the attempts that an earlier daemon has recorded.
    pub(crate) async fn load(&mut self) {
        let read = self.state.read(StateKey::Attempts).await;
        let recorded = read.and_then(|content| match content {
            Some(content) => Recorded::decode(&content, &self.machine),
            None => Ok(Recorded::default()),
        });
        match recorded {
            Ok(recorded) => self.recorded = recorded,
            Err(error) => tracing::warn!(
                %error,
                "cannot use the saved attempts of jobs: an attempt from before a restart of this \
                 machine may run again"
            ),
        }
    }

    /// Replaces the order for each job by the order for its current attempt. Returns the attempts
    /// that are to be recorded before their units are started.
    pub(crate) fn apply(
        &mut self,
        desired: &mut DesiredUnits,
        known: &KnownUnits,
        snapshot: &Snapshot,
        lineage: Option<&Lineage>,
    ) -> BTreeMap<UnitName, Generation> {
        let lineage = lineage.map(ToString::to_string);
        if self.recorded.lineage != lineage {
            // Generations of another history are meaningless.
            self.recorded = Recorded { lineage, attempts: BTreeMap::new() };
        }
        self.begun.retain(|unit, attempt| {
            known.get(unit).is_none_or(|known| known.generation < *attempt)
        });
        let (mut to_begin, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for (name, wanted) in desired.iter_mut().filter(|(_, wanted)| wanted.unit.is_job()) {
            let known = known.get(name);
            let record = snapshot.job(name.as_str()).map(|record| &**record);
            match task(&self.machine, &wanted.unit, record, known) {
                JobTask::Start(attempt) if self.has_lost(name, attempt) => {
                    lost.insert(name.clone(), attempt);
                    order(wanted, TargetState::Loaded, known);
                }
                JobTask::Start(attempt) => {
                    to_begin.insert(name.clone(), attempt);
                    let unit = Unit { generation: attempt, ..wanted.unit.as_ref().clone() };
                    wanted.unit = Arc::new(unit);
                }
                JobTask::Hold => {
                    let requested = known.map_or(TargetState::Loaded, |known| known.requested);
                    order(wanted, requested.max(TargetState::Loaded), known);
                }
                JobTask::Load => order(wanted, TargetState::Loaded, known),
            }
        }
        let jobs = desired.iter().filter(|(_, wanted)| wanted.unit.is_job());
        self.reports.update(jobs.map(|(name, _)| name.clone()).collect(), lost);
        to_begin
    }

    /// Records attempts durably. A unit whose attempt cannot be recorded is not started.
    pub(crate) async fn begin(
        &mut self,
        mut attempts: BTreeMap<UnitName, Generation>,
        desired: &mut DesiredUnits,
        undecided: &BTreeSet<UnitName>,
        snapshot: &Snapshot,
    ) {
        let starts = |unit: &UnitName| {
            desired.get(unit).is_some_and(|it| it.unit.desired == TargetState::Launched)
        };
        attempts.retain(|unit, attempt| {
            starts(unit) && self.recorded.attempts.get(unit) != Some(attempt)
        });
        if attempts.is_empty() {
            return;
        }
        let mut next = self.recorded.clone();
        // The attempt of a job that left this machine may be resumed once the job is back.
        let is_kept = |unit: &UnitName| {
            let is_here = desired.contains_key(unit) || undecided.contains(unit);
            is_here || snapshot.job(unit.as_str()).is_some_and(|job| job.state.outcome().is_none())
        };
        next.attempts.retain(|unit, _| is_kept(unit));
        next.attempts.extend(attempts.clone());
        let written = self.state.write(StateKey::Attempts, next.encode(&self.machine)).await;
        match written {
            Ok(()) => {
                self.recorded = next;
                self.reports.begin(attempts.keys());
                self.begun.extend(attempts);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot record the attempts of jobs: not starting them");
                for unit in attempts.keys() {
                    if let Some(wanted) = desired.get_mut(unit) {
                        order(wanted, TargetState::Loaded, None);
                    }
                }
            }
        }
    }

    /// Records that the tasks of a unit have succeeded. Its attempt is not started again, even if
    /// the service manager no longer knows the unit.
    pub(crate) fn on_success(&mut self, wanted: &DesiredUnit) {
        if wanted.unit.desired == TargetState::Launched {
            self.begun.remove(&wanted.unit.name);
        }
    }

    /// Whether an attempt was recorded, but the service manager does not know it, and this daemon
    /// is not about to start it.
    fn has_lost(&self, unit: &UnitName, attempt: Generation) -> bool {
        let is_recorded = self.recorded.attempts.get(unit).is_some_and(|last| *last >= attempt);
        is_recorded && self.begun.get(unit) != Some(&attempt)
    }
}

/// Sets the order for a unit that is not to be started.
fn order(wanted: &mut DesiredUnit, desired: TargetState, known: Option<&KnownUnit>) {
    let generation = known.map_or(Generation::ZERO, |known| known.generation);
    wanted.unit = Arc::new(Unit { desired, generation, ..wanted.unit.as_ref().clone() });
}

/// Decides what to do with the unit of a job that is placed on this machine.
fn task(
    machine: &MachineId,
    unit: &Unit,
    record: Option<&JobRecord>,
    known: Option<&KnownUnit>,
) -> JobTask {
    // The leader has not made the job yet, or is about to replace it.
    let Some(record) = record.filter(|record| !record.is_outdated(unit)) else {
        return JobTask::Hold;
    };
    let started = known.map_or(Generation::ZERO, |known| known.generation);
    match record.state.current_attempt() {
        Some((on, attempt)) if on == machine && started < attempt.generation() => {
            JobTask::Start(attempt.generation())
        }
        Some((on, _)) if on == machine => JobTask::Hold,
        // If the machine was lost, its attempt may go on.
        _ if started.0 > record.state.origin.0 => JobTask::Hold,
        _ => JobTask::Load,
    }
}

impl Recorded {
    fn encode(&self, machine: &MachineId) -> Vec<u8> {
        let attempts = self.attempts.iter().map(|(unit, it)| (unit.to_string(), it.0)).collect();
        let (machine, lineage) = (machine.to_string(), self.lineage.clone());
        let stored = StoredAttempts { v: FORMAT, machine, lineage, attempts };
        serde_json::to_vec(&stored).expect("texts and numbers can always be written as JSON")
    }

    fn decode(content: &[u8], machine: &MachineId) -> io::Result<Self> {
        let stored: StoredAttempts = serde_json::from_slice(content)?;
        if stored.v != FORMAT || stored.machine != machine.as_str() {
            let problem = "it has another format, or belongs to another machine";
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let attempt = |(unit, attempt): (String, u64)| {
            let unit = unit.parse().map_err(io::Error::other)?;
            Ok((unit, Generation(attempt)))
        };
        let attempts = stored.attempts.into_iter().map(attempt).collect::<io::Result<_>>()?;
        Ok(Self { lineage: stored.lineage, attempts })
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::job::{JobOutcome, JobPhase};
    use fleet_core::{Epoch, Requirements, Revision, Strictness, Timestamp};
    use fleet_unitfile::UnitFile;

    use super::*;
    use crate::agent::state::MemoryState;

    fn machine() -> MachineId {
        "m1".parse().expect("it is a machine ID")
    }

    fn job() -> Unit {
        let name = "job.service".parse().expect("it is a name");
        let file = "[Service]\nExecStart=/bin/job\n[X-Fleet]\nRunOnce=true\n";
        let file = UnitFile::parse(file).expect("it is a unit file");
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse).expect("it is a job");
        Unit::new(name, file, parsed.requirements, TargetState::Launched)
    }

    fn known(requested: TargetState, generation: u64) -> KnownUnit {
        let (hash, epoch) = (job().hash(), Epoch(3));
        KnownUnit { hash, requested, epoch, generation: Generation(generation) }
    }

    fn record(phase: JobPhase) -> JobRecord {
        let mut record = JobRecord::new(&job(), Revision(40), Timestamp::from_millis(1));
        record.state.phase = phase;
        record
    }

    fn running(machine: &str, attempt: u32) -> JobPhase {
        let machine = machine.parse().expect("it is a machine ID");
        JobPhase::Running { machine, attempt, since: Timestamp::from_millis(2) }
    }

    #[test]
    fn task_follows_from_record_and_known_unit() {
        use TargetState::{Launched, Loaded};
        let pending = || JobPhase::Pending { since: Timestamp::from_millis(2) };
        let outcome = JobOutcome::Succeeded;
        let ended = JobPhase::Ended { outcome, at: Timestamp::from_millis(2) };
        let start = |generation| JobTask::Start(Generation(generation));
        let cases = [
            ("not made yet", None, None, JobTask::Hold),
            ("bound, unknown", Some(running("m1", 1)), None, start(41)),
            ("bound, loaded", Some(running("m1", 1)), Some(known(Loaded, 0)), start(41)),
            ("bound, started", Some(running("m1", 1)), Some(known(Launched, 41)), JobTask::Hold),
            ("bound, stopped", Some(running("m1", 1)), Some(known(Loaded, 41)), JobTask::Hold),
            ("next attempt", Some(running("m1", 2)), Some(known(Launched, 41)), start(42)),
            ("bound elsewhere", Some(running("m2", 2)), None, JobTask::Load),
            ("pending", Some(pending()), None, JobTask::Load),
            ("pending, may resume", Some(pending()), Some(known(Launched, 41)), JobTask::Hold),
            ("of an earlier job", Some(pending()), Some(known(Launched, 40)), JobTask::Load),
            ("to be made again", Some(ended), None, JobTask::Hold),
        ];
        for (case, phase, known, expected) in cases {
            let record = phase.map(record);
            let task = task(&machine(), &job(), record.as_ref(), known.as_ref());
            assert_eq!(task, expected, "{case}");
        }
        let changed = Unit { generation: Generation(1), ..job() };
        let record = record(running("m1", 1));
        assert_eq!(task(&machine(), &changed, Some(&record), None), JobTask::Hold);
    }

    /// Lets an agent with this state decide about the job, whose first attempt is bound to it.
    async fn pass(attempts: &mut Attempts, known: Option<KnownUnit>) -> (TargetState, u64) {
        let job = job();
        let mut snapshot = Snapshot::default();
        snapshot.put_job(job.name.clone(), record(running("m1", 1)));
        let known = known.map(|known| (job.name.clone(), known)).into_iter().collect();
        let wanted = DesiredUnit { unit: Arc::new(job.clone()), epoch: Epoch(3) };
        let mut desired = DesiredUnits::from([(job.name.clone(), wanted)]);
        let to_begin = attempts.apply(&mut desired, &known, &snapshot, None);
        attempts.begin(to_begin, &mut desired, &BTreeSet::new(), &snapshot).await;
        let unit = &desired[&job.name].unit;
        (unit.desired, unit.generation.0)
    }

    #[tokio::test]
    async fn recorded_attempt_is_not_started_by_the_next_daemon() {
        let state: Arc<dyn AgentState> = Arc::new(MemoryState::default());
        let daemon = || Attempts::new(machine(), state.clone(), Arc::default());
        let mut first = daemon();
        first.load().await;
        assert_eq!(pass(&mut first, None).await, (TargetState::Launched, 41));
        assert_eq!(pass(&mut first, None).await, (TargetState::Launched, 41), "not started yet");
        let started = known(TargetState::Launched, 41);
        assert_eq!(pass(&mut first, Some(started)).await, (TargetState::Launched, 41));
        // The unit has been removed from the service manager.
        assert_eq!(pass(&mut first, None).await, (TargetState::Loaded, 0));
        let mut next = daemon();
        next.load().await;
        assert_eq!(pass(&mut next, None).await, (TargetState::Loaded, 0), "it has restarted");
        assert_eq!(next.reports.lost_attempt(&job().name), Some(Generation(41)));
        assert_eq!(pass(&mut next, Some(started)).await, (TargetState::Launched, 41));
    }
}
