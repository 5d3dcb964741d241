//! Jobs and schedules: listed, shown and controlled. Tests play the leader.

use fleet_core::job::{AttemptEnd, AttemptRecord, JobOutcome, JobPhase, JobRecord, JobState};
use fleet_core::schedule::{ScheduleRecord, ScheduleRequest};
use fleet_core::unit::ExitStatus;
use fleet_core::{Generation, MachineId, Revision, TargetState, Timestamp};
use fleet_http::ClientError;
use fleet_http::client::{JobFilter, UnitUpload, UnitWrites};
use fleet_http::wire::{JobEntity, RolloutOptions, Time};
use fleet_store::registry::RecordUpdate;
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name};

const JOB: &str = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nRunOnce=true\nRetries=2\n";
const NIGHTLY: &str = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nRunOnce=true\n\
    Schedule=*-*-* 02:00 UTC\nConcurrencyPolicy=replace\n";

fn upload(text: &str, desired: TargetState) -> UnitUpload {
    UnitUpload::new(UnitFile::parse(text).unwrap()).with_desired(desired)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

async fn launch(server: &Server, unit: &str, text: &str) {
    let writes = UnitWrites::default().put(&name(unit), &upload(text, TargetState::Launched));
    server.client().write_units(&writes).await.unwrap();
}

async fn get(server: &Server, unit: &str) -> JobEntity {
    server.client().job(&name(unit)).await.unwrap().expect("it is a job")
}

/// Stores the state of a job, like a leader.
async fn store_job(server: &Server, unit: &str, change: impl FnOnce(&mut JobState)) {
    let (snapshot, unit) = (server.mirror.snapshot(), name(unit));
    let seen = snapshot.job(unit.as_str()).map(|record| &**record);
    let made = JobRecord::new(snapshot.unit(unit.as_str()).unwrap(), Revision(7), at(1_000_000));
    let mut next = seen.cloned().unwrap_or(made);
    change(&mut next.state);
    let writes = match next.state.outcome() {
        Some(_) => {
            vec![fleet_store::registry::UnitWrite::SetDesired(unit.clone(), TargetState::Inactive)]
        }
        None => Vec::new(),
    };
    let engine: MachineId = "engine".parse().unwrap();
    let leader = server.registry.campaign(&engine, crate::harness::TTL).await.unwrap().unwrap();
    let (next, writes, snapshot) = (Some(&next), &writes[..], &*snapshot);
    let update = RecordUpdate { unit: &unit, seen, next, writes, snapshot };
    let revision = leader.advance_job(&update, &server.mirror).await.unwrap();
    leader.resign().await.unwrap();
    server.settle(revision).await;
}

/// Stores a new schedule, like a leader.
async fn store_schedule(server: &Server, unit: &str) {
    let (snapshot, unit) = (server.mirror.snapshot(), name(unit));
    let job = snapshot.unit(unit.as_str()).unwrap().requirements.job.clone().unwrap();
    // 1 January 2026, 12:00 UTC.
    let next = ScheduleRecord::new(&job.schedule.unwrap(), at(1_767_268_800_000));
    let engine: MachineId = "engine".parse().unwrap();
    let leader = server.registry.campaign(&engine, crate::harness::TTL).await.unwrap().unwrap();
    let (next, snapshot) = (Some(&next), &*snapshot);
    let update = RecordUpdate { unit: &unit, seen: None, next, writes: &[], snapshot };
    let revision = leader.advance_schedule(&update, &server.mirror).await.unwrap();
    leader.resign().await.unwrap();
    server.settle(revision).await;
}

fn failed(number: u32, code: i32) -> AttemptRecord {
    AttemptRecord {
        number,
        machine: "m1".parse().unwrap(),
        begin: at(1_001_000 * u64::from(number)),
        end: at(1_002_000 * u64::from(number)),
        how: AttemptEnd::Exited { status: ExitStatus::Code(code), success: false },
        output: vec!["cannot write".to_owned()],
    }
}

#[tokio::test]
async fn job_is_shown_from_its_request_to_its_end() {
    let server = Server::start().await;
    let text = async |server: &Server| get(server, "backup.service").await.summary.text;
    launch(&server, "backup.service", JOB).await;
    assert_eq!(text(&server).await, "pending", "the leader has not made it yet");
    store_job(&server, "backup.service", |job| {
        let machine = "m1".parse().unwrap();
        job.last_attempt = 1;
        job.phase = JobPhase::Running { machine, attempt: 1, since: at(1_001_000) };
    })
    .await;
    assert_eq!(text(&server).await, "running on m1, attempt 1");
    store_job(&server, "backup.service", |job| {
        job.failed = 1;
        job.attempts.push(failed(1, 3));
        job.phase = JobPhase::Pending { since: at(1_002_000) };
    })
    .await;
    let pending = get(&server, "backup.service").await;
    assert_eq!(pending.retry_at.map(Time::as_millis), Some(1_012_000));
    assert_eq!(pending.summary.text, "pending: attempt 1 exited with status 3");
    store_job(&server, "backup.service", |job| {
        job.last_attempt = 2;
        job.failed = 2;
        job.attempts.push(failed(2, 4));
        job.phase = JobPhase::Ended { outcome: JobOutcome::Failed, at: at(2_004_000) };
    })
    .await;
    let mut json = server.get("/fleet/v1/jobs/backup.service").await.json();
    json["hash"] = "HASH".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
    let listed = server.client().jobs(&JobFilter::default()).await.unwrap();
    assert_eq!(listed[0].attempts[0].output, Vec::<String>::new(), "lists have no output");

    let writes = UnitWrites::default().set_desired(&name("backup.service"), TargetState::Launched);
    server.client().write_units(&writes).await.unwrap();
    let again = get(&server, "backup.service").await;
    assert_eq!((again.summary.text.as_str(), again.attempts.len()), ("pending", 0));
}

#[tokio::test]
async fn unit_shows_its_job_or_schedule() {
    let server = Server::start().await;
    launch(&server, "nightly.service", NIGHTLY).await;
    launch(&server, "a.service", JOB).await;
    server.sleepers(&["web.service"], "launched").await;
    store_schedule(&server, "nightly.service").await;
    let end = |job: &mut JobState| {
        job.phase = JobPhase::Ended { outcome: JobOutcome::Succeeded, at: at(1_002_000) };
    };
    let tag = server.get("/fleet/v1/units/a.service").await.header("etag").unwrap().to_owned();
    store_job(&server, "a.service", end).await;
    let known = [("If-None-Match", tag.as_str())];
    let path = "/fleet/v1/units/a.service";
    let response = crate::http::request(&server.at, "GET", path, &known, "").await;
    assert_eq!(response.status, 200, "its job has changed");
    for unit in server.client().units().await.unwrap() {
        let job = unit.job.map(|job| (job.text, job.has_ended, job.hash == unit.hash));
        let schedule = unit.schedule.map(|it| (it.state, it.next.map(Time::as_millis)));
        let (expected_job, expected_schedule) = match unit.name.as_str() {
            "a.service" => (Some(("succeeded".to_owned(), true, true)), None),
            // 2 January 2026, 02:00 UTC.
            "nightly.service" => (None, Some(("on".to_owned(), Some(1_767_319_200_000)))),
            _ => (None, None),
        };
        assert_eq!((job, schedule), (expected_job, expected_schedule), "{}", unit.name);
    }
}

#[tokio::test]
async fn jobs_are_filtered_and_paged() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    for unit in ["a@1.service", "a@2.service", "b.service", "c.service", "d.service"] {
        launch(&server, unit, JOB).await;
    }
    server.sleepers(&["web.service"], "launched").await;
    store_job(&server, "b.service", |job| {
        let machine = "m1".parse().unwrap();
        job.phase = JobPhase::Running { machine, attempt: 1, since: at(1_001_000) };
    })
    .await;
    store_job(&server, "c.service", |job| {
        job.phase = JobPhase::Ended { outcome: JobOutcome::Stopped, at: at(1_002_000) };
    })
    .await;
    let list = async |filter: JobFilter| {
        let jobs = server.client().jobs(&filter).await.unwrap();
        jobs.into_iter().map(|job| job.name).collect::<Vec<_>>().join(" ")
    };
    let all = "a@1.service a@2.service b.service c.service d.service";
    assert_eq!(list(JobFilter::default()).await, all);
    let filter = |set: fn(&mut JobFilter)| {
        let mut filter = JobFilter::default();
        set(&mut filter);
        filter
    };
    let phase = |it: &mut JobFilter| it.phase = Some("ended".into());
    assert_eq!(list(filter(phase)).await, "c.service");
    assert_eq!(list(filter(|it| it.phase = Some("running".into()))).await, "b.service");
    assert_eq!(list(filter(|it| it.machine = Some("m1".into()))).await, "b.service");
    let template = |it: &mut JobFilter| it.template = Some(name("a@.service"));
    assert_eq!(list(filter(template)).await, "a@1.service a@2.service");
    let wrong = server.get("/fleet/v1/jobs?phase=done").await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn schedule_obeys_requests() {
    let server = Server::start().await;
    launch(&server, "nightly.service", NIGHTLY).await;
    let client = server.client();
    let unit = name("nightly.service");
    let early = client.request_schedule(&unit, ScheduleRequest::RunNow).await.unwrap_err();
    assert!(matches!(early, ClientError::Api { status: 404, .. }), "{early:?}");
    store_schedule(&server, "nightly.service").await;
    let paused = client.request_schedule(&unit, ScheduleRequest::Pause).await.unwrap();
    assert_eq!((paused.summary.state.as_str(), paused.summary.next), ("paused", None));
    client.request_schedule(&unit, ScheduleRequest::RunNow).await.unwrap();
    let json = server.get("/fleet/v1/schedules/nightly.service").await.json();
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap(), @r#"
    {
      "catchUp": "none",
      "concurrencyPolicy": "replace",
      "event": "*-*-* 02:00:00 UTC",
      "name": "nightly.service",
      "paused": true,
      "requested": 1,
      "state": "paused"
    }
    "#);
    let resumed = client.request_schedule(&unit, ScheduleRequest::Resume).await.unwrap();
    assert_eq!(resumed.summary.state, "on");
    let listed = client.schedules().await.unwrap();
    assert_eq!(listed, [client.schedule(&unit).await.unwrap().unwrap()]);
    let writes = UnitWrites::default().set_desired(&unit, TargetState::Inactive);
    client.write_units(&writes).await.unwrap();
    assert_eq!(client.schedule(&unit).await.unwrap().unwrap().summary.state, "off");
}

#[tokio::test]
async fn units_without_job_or_schedule_are_not_found() {
    let server = Server::start().await;
    launch(&server, "a.service", JOB).await;
    launch(&server, "nightly.service", NIGHTLY).await;
    server.sleepers(&["web.service"], "launched").await;
    let mut all = String::new();
    for (method, path, body) in [
        ("GET", "jobs/web.service", ""),
        ("GET", "jobs/nightly.service", ""),
        ("GET", "jobs/none.service", ""),
        ("GET", "schedules/a.service", ""),
        ("POST", "schedules/a.service", r#"{"request":"pause"}"#),
        ("POST", "schedules/nightly.service", r#"{"request":"runNow"}"#),
        ("POST", "schedules/nightly.service", r#"{"request":"stop"}"#),
    ] {
        let response = server.call(method, &format!("/fleet/v1/{path}"), body).await;
        let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
        all += &format!("{method} {path}: {} {message}\n", response.status);
    }
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn jobs_are_no_members_of_rollouts() {
    let server = Server::start().await;
    launch(&server, "job.service", JOB).await;
    server.sleepers(&["web.service"], "launched").await;
    let changed = format!("{JOB}KeepFor=1h\n");
    let web = "[Service]\nExecStart=/bin/sleep 9\n";
    let writes = UnitWrites::default()
        .rollout(RolloutOptions::default())
        .put(&name("job.service"), &upload(&changed, TargetState::Launched))
        .put(&name("web.service"), &upload(web, TargetState::Launched));
    let written = server.client().write_units(&writes).await.unwrap();
    let rollout = server.client().rollout(written.rollout.unwrap()).await.unwrap().unwrap();
    let members: Vec<&str> = rollout.members.iter().map(|member| member.unit.as_str()).collect();
    assert_eq!(members, ["web.service"]);
    let job = server.client().unit(&name("job.service")).await.unwrap().unwrap();
    assert_eq!(job.source.as_deref(), Some(&*changed), "it is written at once");
}

#[tokio::test]
async fn unknown_time_zone_is_refused() {
    let server = Server::start().await;
    let text = NIGHTLY.replace("02:00 UTC", "02:00 Europe/Nowhere");
    let writes =
        UnitWrites::default().put(&name("a.service"), &upload(&text, TargetState::Launched));
    let error = server.client().write_units(&writes).await.unwrap_err().to_string();
    assert!(error.contains("the time zone \"Europe/Nowhere\" is not known"), "{error}");
}

#[tokio::test]
async fn elapsed_schedule_is_refused_unless_it_is_known() {
    let server = Server::start().await;
    let text = NIGHTLY.replace("*-*-* 02:00", "2020-01-01 02:00");
    let (unit, upload) = (name("a.service"), upload(&text, TargetState::Launched));
    let (client, writes) = (server.client(), UnitWrites::default().put(&unit, &upload));
    for error in [
        client.write_units(&writes).await.unwrap_err(),
        client.put_unit(&unit, &upload).await.unwrap_err(),
    ] {
        let ClientError::Api { status: 400, message, details } = error else { panic!("{error}") };
        let place = details.first().map(|detail| (detail.line, detail.column));
        assert_eq!(place, Some((5, 10)), "{message}");
        assert!(message.contains("2020-01-01 02:00:00 UTC has elapsed"), "{message}");
    }
    client.import_unit(&unit, &upload, Generation::ZERO).await.unwrap();
    client.write_units(&writes).await.unwrap();
}
