//! Jobs and schedules: the leader advances them, and users request changes of schedules.

use std::sync::Arc;

use fleet_core::job::{JobOutcome, JobPhase, JobRecord};
use fleet_core::schedule::{
    RunId, RunPhase, ScheduleRecord, ScheduleRequest, ScheduleRequests, ScheduleState, ScheduledRun,
};
use fleet_core::{Generation, Revision, Snapshot, TargetState, Timestamp};
use fleet_store::registry::{ExpectUnit, Leadership, NewUnit, RecordUpdate, UnitWrite};
use fleet_store::{Mirror, Registry, RegistryError};
use fleet_unitfile::UnitFile;

use crate::support::{TTL, id, mirror, name, registry, soon};

const JOB: &str = "job.service";

/// A cluster with a job and a leader.
struct World {
    registry: Registry,
    mirror: Mirror,
    leader: Leadership,
}

fn new_unit(unit: &str) -> NewUnit {
    let file = UnitFile::parse("[Service]\nExecStart=/bin/job\n[X-Fleet]\nRunOnce=true\n").unwrap();
    NewUnit { name: name(unit), file, desired: TargetState::Launched }
}

impl World {
    async fn new() -> Self {
        let registry = registry();
        registry.put_unit(new_unit(JOB), ExpectUnit::Absent).await.unwrap();
        let mirror = mirror(&registry).await;
        let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
        Self { registry, mirror, leader }
    }

    async fn seen(&self, revision: Revision) -> Arc<Snapshot> {
        soon(self.mirror.wait_for(revision)).await.unwrap()
    }

    /// Replaces the job of a snapshot, with these writes.
    async fn advance(
        &self,
        snapshot: &Snapshot,
        next: Option<&JobRecord>,
        writes: &[UnitWrite],
    ) -> Result<Revision, RegistryError> {
        let seen = snapshot.job(JOB).map(|record| &**record);
        let unit = &name(JOB);
        let update = RecordUpdate { unit, seen, next, writes, snapshot };
        self.leader.advance_job(&update, &self.mirror).await
    }
}

fn new_job(snapshot: &Snapshot) -> JobRecord {
    let unit = snapshot.unit(JOB).unwrap();
    JobRecord::new(unit, snapshot.revision, Timestamp::from_millis(1))
}

#[tokio::test]
async fn job_and_its_unit_change_in_one_step() {
    let world = World::new().await;
    let before = world.mirror.snapshot();
    let mut job = new_job(&before);
    let revision = world.advance(&before, Some(&job), &[]).await.unwrap();
    let running = world.seen(revision).await;
    assert_eq!(running.job(JOB).map(|it| &**it), Some(&job));
    let at = Timestamp::from_millis(5);
    job.state.phase = JobPhase::Ended { outcome: JobOutcome::Succeeded, at };
    let stop = UnitWrite::SetDesired(name(JOB), TargetState::Inactive);
    let revision = world.advance(&running, Some(&job), &[stop]).await.unwrap();
    let ended = world.seen(revision).await;
    assert_eq!(ended.unit(JOB).map(|unit| unit.desired), Some(TargetState::Inactive));
    assert_eq!(ended.job(JOB).map(|it| &**it), Some(&job));
    let remove = UnitWrite::Destroy(name(JOB));
    let revision = world.advance(&ended, None, &[remove]).await.unwrap();
    let removed = world.seen(revision).await;
    assert!(removed.unit(JOB).is_none() && removed.job(JOB).is_none());
}

#[tokio::test]
async fn job_is_written_only_as_it_was_seen() {
    let world = World::new().await;
    let before = world.mirror.snapshot();
    let job = new_job(&before);
    let revision = world.advance(&before, Some(&job), &[]).await.unwrap();
    // The job exists by now.
    let result = world.advance(&before, Some(&job), &[]).await;
    assert!(matches!(result, Err(RegistryError::Conflict)), "{result:?}");
    // A user has changed the unit.
    let seen = world.seen(revision).await;
    world.registry.set_desired(&name(JOB), TargetState::Loaded).await.unwrap();
    let result = world.advance(&seen, None, &[]).await;
    assert!(matches!(result, Err(RegistryError::Conflict)), "{result:?}");
}

#[tokio::test]
async fn deposed_leader_writes_no_job() {
    let world = World::new().await;
    let before = world.mirror.snapshot();
    world.registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let result = world.advance(&before, Some(&new_job(&before)), &[]).await;
    assert!(matches!(result, Err(RegistryError::Deposed { .. })), "{result:?}");
}

#[tokio::test]
async fn run_is_created_with_its_schedule() {
    let world = World::new().await;
    let before = world.mirror.snapshot();
    let (unit, state) = (&name(JOB), ScheduleState::new(Timestamp::from_millis(1)));
    let requests = ScheduleRequests::default();
    let record = ScheduleRecord { event: "daily".to_owned(), requests, state };
    let writes = &[UnitWrite::Put(new_unit("job-1.service"))];
    let update = RecordUpdate { unit, seen: None, next: Some(&record), writes, snapshot: &before };
    let revision = world.leader.advance_schedule(&update, &world.mirror).await.unwrap();
    let after = world.seen(revision).await;
    assert!(after.unit("job-1.service").is_some());
    assert_eq!(after.schedule(JOB).map(|it| &**it), Some(&record));
    let result = world.leader.advance_schedule(&update, &world.mirror).await;
    assert!(matches!(result, Err(RegistryError::Conflict)), "{result:?}");

    let request = async |request| world.registry.request_schedule(unit, request).await.unwrap();
    let (paused, first) = request(ScheduleRequest::Pause).await;
    assert_eq!(paused.requests, ScheduleRequests { paused: true, ..requests });
    let (_, second) = request(ScheduleRequest::Pause).await;
    assert_eq!(first, second, "it is paused already");
    let (record, _) = request(ScheduleRequest::RunNow).await;
    assert_eq!(record.requests, ScheduleRequests { paused: true, run_now: Generation(1) });
    let (record, revision) = request(ScheduleRequest::Resume).await;
    assert_eq!(world.seen(revision).await.schedule(JOB).map(|it| &**it), Some(&record));
    let missing = world.registry.request_schedule(&name("b.service"), ScheduleRequest::Pause).await;
    assert!(matches!(missing, Err(RegistryError::NoSchedule { .. })), "{missing:?}");
}

#[tokio::test]
async fn destroyed_unit_leaves_no_job() {
    let world = World::new().await;
    let before = world.mirror.snapshot();
    let revision = world.advance(&before, Some(&new_job(&before)), &[]).await.unwrap();
    world.seen(revision).await;
    let revision = world.registry.destroy(&name(JOB), &world.mirror).await.unwrap();
    let after = world.seen(revision).await;
    assert!(after.unit(JOB).is_none() && after.job(JOB).is_none());
}

#[tokio::test]
async fn destroyed_schedule_keeps_the_record_of_its_runs() {
    let world = World::new().await;
    let (unit, mut state) = (&name(JOB), ScheduleState::new(Timestamp::from_millis(1)));
    let recorded = Timestamp::from_millis(2);
    let run =
        |number, phase| ScheduledRun { id: RunId::Manual(Generation(number)), recorded, phase };
    state.runs = vec![run(1, RunPhase::Started), run(2, RunPhase::Recorded)];
    let requests = ScheduleRequests { paused: true, run_now: Generation(2) };
    let record = ScheduleRecord { event: "daily".to_owned(), requests, state };
    let before = world.mirror.snapshot();
    let update =
        RecordUpdate { unit, seen: None, next: Some(&record), writes: &[], snapshot: &before };
    let revision = world.leader.advance_schedule(&update, &world.mirror).await.unwrap();
    world.seen(revision).await;
    let revision = world.registry.destroy(unit, &world.mirror).await.unwrap();
    let after = world.seen(revision).await;
    let rest = after.schedule(JOB).expect("it has a run");
    assert!(after.unit(JOB).is_none());
    assert_eq!((&*rest.event, rest.requests.paused), ("", false));
    assert_eq!(rest.state.runs, [run(1, RunPhase::Started)]);
}
