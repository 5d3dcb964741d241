//! Jobs and schedules: each attempt runs at most once, and each elapse makes at most one run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::testing::{Behaviour, Call};
use fleet_core::TargetState;
use fleet_core::job::{AttemptEnd, JobOutcome, JobPhase, JobRecord};
use fleet_core::schedule::ScheduleRequest::{Pause, Resume, RunNow};
use fleet_core::schedule::{HistoryEntry, RunEnd};
use fleet_core::unit::ExitStatus;

use crate::cluster::{Cluster, TTL};
use crate::host::Host;
use crate::units::{SUCCEEDS, name};

const JOB: &str = "j.service";

impl Cluster {
    fn job(&self) -> Arc<JobRecord> {
        self.history.now().job(JOB).expect("the leader has made the job").clone()
    }

    fn outcome(&self) -> Option<JobOutcome> {
        self.job().state.outcome()
    }

    /// Returns how each ended attempt has ended.
    fn ends(&self) -> Vec<String> {
        self.job().state.attempts.iter().map(|attempt| attempt.how.to_string()).collect()
    }

    /// Ends the process of the job on its machine.
    fn exit_job(&self, code: i32) {
        let on = self.active_on(JOB);
        assert_eq!(on.len(), 1, "it runs on one machine");
        self.hosts[on[0]].fake().exit(&name(JOB), code);
    }

    /// Returns how often each generation of a unit was started, on all machines.
    fn starts(&self, unit: &str) -> BTreeMap<u64, usize> {
        let mut starts = BTreeMap::new();
        for event in self.hosts.iter().flat_map(Host::events) {
            if let Call::Start(name, generation) | Call::Restart(name, generation) = event.call
                && name.as_str() == unit
            {
                *starts.entry(generation.0).or_default() += 1;
            }
        }
        starts
    }

    fn assert_each_attempt_started_once(&self, attempts: usize) {
        let starts = self.starts(JOB);
        assert_eq!(starts.len(), attempts, "{starts:?}");
        assert!(starts.values().all(|count| *count == 1), "{starts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn job_runs_once_and_its_result_is_kept() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    let now = cluster.history.now();
    assert_eq!(now.unit(JOB).map(|unit| unit.desired), Some(TargetState::Inactive));
    assert!(now.placement(JOB).is_none() && cluster.active_on(JOB).is_empty());
    for machine in 0..2 {
        cluster.reboot(machine);
        cluster.wait(Duration::from_secs(1)).await;
        cluster.boot(machine);
    }
    cluster.wait(Duration::from_secs(60)).await;
    cluster.assert_each_attempt_started_once(1);
    // The next start makes another job.
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    let on = cluster.active_on(JOB)[0];
    for line in ["one", "two"] {
        cluster.hosts[on].fake().write(&name(JOB), line);
    }
    cluster.exit_job(4);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Failed));
    assert_eq!(cluster.job().state.attempts[0].output, ["one", "two"]);
    assert_eq!(cluster.ends(), ["exited with status 4"]);
    cluster.assert_each_attempt_started_once(2);
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_retried_with_delays() {
    let mut cluster = Cluster::start(2).await;
    cluster.hosts.iter().for_each(|it| it.fake().set_behaviour(&name(JOB), Behaviour::Task(3)));
    cluster.launch(JOB, "RunOnce=true\nRetries=2").await;
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.ends(), ["exited with status 3"]);
    assert!(matches!(cluster.job().state.phase, JobPhase::Pending { .. }));
    cluster.wait(Duration::from_secs(10)).await;
    assert_eq!(cluster.ends().len(), 2);
    cluster.wait(Duration::from_secs(25)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Failed));
    cluster.assert_each_attempt_started_once(3);
}

#[tokio::test(start_paused = true)]
async fn attempt_survives_a_restart_of_its_daemon() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.crash(0);
    cluster.wait(Duration::from_secs(1)).await;
    cluster.boot(0);
    cluster.wait(Duration::from_secs(30)).await;
    assert_eq!(cluster.active_on(JOB), [0]);
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    cluster.assert_each_attempt_started_once(1);
}

#[tokio::test(start_paused = true)]
async fn reboot_interrupts_an_attempt() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.reboot(0);
    cluster.wait(Duration::from_secs(1)).await;
    cluster.boot(0);
    cluster.wait(Duration::from_secs(30)).await;
    assert_eq!(cluster.ends(), ["interrupted on its machine"]);
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    cluster.assert_each_attempt_started_once(2);
}

#[tokio::test(start_paused = true)]
async fn interrupted_job_fails_if_it_counts_lost_attempts() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true\nCountLost=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.reboot(0);
    cluster.boot(0);
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Failed));
    cluster.assert_each_attempt_started_once(1);
}

#[tokio::test(start_paused = true)]
async fn job_of_a_lost_machine_runs_elsewhere() {
    let mut cluster = Cluster::start(3).await;
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    let first = cluster.active_on(JOB)[0];
    cluster.reboot(first);
    cluster.wait(TTL * 2).await;
    let ends = &cluster.job().state.attempts;
    assert_eq!(ends.iter().map(|it| &it.how).collect::<Vec<_>>(), [&AttemptEnd::MachineLost]);
    cluster.boot(first);
    cluster.wait(TTL).await;
    let second = cluster.active_on(JOB);
    assert!(second.len() == 1 && second[0] != first, "{second:?}");
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    cluster.assert_each_attempt_started_once(2);
}

#[tokio::test(start_paused = true)]
async fn stopped_job_ends_and_does_not_run_again() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true\nRetries=5").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.registry.set_desired(&name(JOB), TargetState::Loaded).await.expect("it is there");
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Stopped));
    assert_eq!(cluster.active_on(JOB), [0; 0]);
    cluster.assert_each_attempt_started_once(1);
}

#[tokio::test(start_paused = true)]
async fn job_past_its_deadline_is_stopped() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true\nDeadline=20s").await;
    cluster.wait(Duration::from_secs(15)).await;
    assert_eq!(cluster.active_on(JOB), [0]);
    cluster.wait(Duration::from_secs(15)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::DeadlineExceeded));
    assert_eq!(cluster.active_on(JOB), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn ended_job_is_removed_after_its_time() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true\nKeepFor=1min").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(50)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    cluster.wait(Duration::from_secs(30)).await;
    let now = cluster.history.now();
    assert!(now.unit(JOB).is_none() && now.job(JOB).is_none());
}

#[tokio::test(start_paused = true)]
async fn changed_file_makes_another_job() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch(JOB, "RunOnce=true").await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.submit(JOB, "RunOnce=true", 1, TargetState::Launched).await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.exit_job(0);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Succeeded));
    cluster.assert_each_attempt_started_once(2);
}

#[tokio::test(start_paused = true)]
async fn job_is_exact_while_leaders_die() {
    let mut cluster = Cluster::start(3).await;
    cluster.hosts.iter().for_each(|it| it.fake().set_behaviour(&name(JOB), Behaviour::Task(1)));
    cluster.launch(JOB, "RunOnce=true\nRetries=4").await;
    for _ in 0..20 {
        cluster.wait(Duration::from_secs(7)).await;
        if let Some(leader) = cluster.leader() {
            cluster.crash(leader);
            cluster.wait(Duration::from_secs(2)).await;
            cluster.boot(leader);
        }
    }
    cluster.wait(Duration::from_secs(200)).await;
    assert_eq!(cluster.outcome(), Some(JobOutcome::Failed));
    cluster.assert_each_attempt_started_once(5);
    let exit = |code| AttemptEnd::Exited { status: ExitStatus::Code(code), success: false };
    assert!(cluster.job().state.attempts.iter().all(|attempt| attempt.how == exit(1)));
}

#[tokio::test(start_paused = true)]
async fn schedule_makes_one_run_per_elapse() {
    let mut cluster = Cluster::start(3).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*:*:0/10\nCatchUp=none").await;
    for _ in 0..15 {
        cluster.wait(Duration::from_secs(15)).await;
        for host in &cluster.hosts {
            for unit in host.units() {
                host.fake().exit(&unit.unit, 0);
            }
        }
        if let Some(leader) = cluster.leader() {
            cluster.crash(leader);
            cluster.wait(Duration::from_secs(2)).await;
            cluster.boot(leader);
        }
    }
    cluster.wait(Duration::from_secs(5)).await;
    let now = cluster.history.now();
    let schedule = now.schedule("s.service").expect("the leader has made the schedule");
    let history: Vec<String> = schedule.state.history.iter().map(ToString::to_string).collect();
    assert!(history.len() >= 10, "{history:?}");
    let runs = now.units().filter(|unit| unit.name.as_str().starts_with("s-"));
    assert!(runs.count() <= 5, "the units of earlier runs are removed");
    let mut starts = BTreeMap::<String, usize>::new();
    for event in cluster.hosts.iter().flat_map(Host::events) {
        if let Call::Start(unit, _) | Call::Restart(unit, _) = event.call {
            *starts.entry(unit.to_string()).or_default() += 1;
        }
    }
    assert!(starts.len() >= 10 && !starts.contains_key("s.service"), "{starts:?}");
    assert!(starts.values().all(|count| *count == 1), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn run_that_is_not_kept_leaves_its_outcome() {
    let mut cluster = Cluster::start(2).await;
    let requirement = "RunOnce=true\nKeepFor=0\nSchedule=*:*:0/10";
    cluster.submit("s.service", requirement, SUCCEEDS, TargetState::Launched).await;
    cluster.wait(Duration::from_secs(35)).await;
    let now = cluster.history.now();
    let schedule = now.schedule("s.service").expect("the leader has made the schedule");
    let result = |entry: &HistoryEntry| match entry {
        HistoryEntry::Run { result, .. } => Some(*result),
        HistoryEntry::Omitted { .. } => None,
    };
    let results: Vec<_> = schedule.state.history.iter().map(result).collect();
    assert_eq!(results, [Some(RunEnd::Ended(JobOutcome::Succeeded)); 3]);
    assert_eq!(now.units().count(), 1, "the units of the runs are removed");
}

#[tokio::test(start_paused = true)]
async fn ended_run_that_starts_again_is_not_removed() {
    let mut cluster = Cluster::start(2).await;
    let requirement = "RunOnce=true\nSchedule=*:*:0/10";
    cluster.submit("s.service", requirement, SUCCEEDS, TargetState::Launched).await;
    cluster.wait(Duration::from_secs(15)).await;
    let now = cluster.history.now();
    let run = now.jobs().next().expect("the schedule has made a run").0;
    // The leader sees both requests at once.
    let started = cluster.registry.set_desired(run, TargetState::Launched).await;
    started.expect("the run is kept");
    cluster.destroy(&name("s.service")).await;
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.starts(run.as_str()).len(), 2);
    assert!(cluster.history.now().unit(run.as_str()).is_some());
}

/// Regression: the unfinished run went on, and nothing referred to it.
#[tokio::test(start_paused = true)]
async fn destroyed_schedule_leaves_no_runs() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*:*:0/10\nConcurrencyPolicy=allow").await;
    cluster.wait(Duration::from_secs(45)).await;
    let units = |cluster: &Cluster| cluster.history.now().units().count();
    assert!(units(&cluster) >= 4, "the schedule and its runs");
    cluster.destroy(&name("s.service")).await;
    cluster.wait(Duration::from_secs(15)).await;
    assert_eq!(units(&cluster), 0);
    assert_eq!(cluster.history.now().schedules().len(), 0);
    assert!(cluster.hosts.iter().all(|host| host.units().is_empty()), "all have stopped");
}

/// Regression: each elapse wrote the record, and a stopped schedule was recorded as paused.
#[tokio::test(start_paused = true)]
async fn paused_schedule_writes_nothing_at_its_elapses() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*:*:0/10").await;
    let requested = cluster.registry.request_schedule(&name("s.service"), Pause).await;
    requested.expect("the schedule is stored");
    cluster.wait(Duration::from_secs(5)).await;
    let before = cluster.history.now().schedule("s.service").cloned();
    cluster.wait(Duration::from_secs(100)).await;
    assert_eq!(cluster.history.now().schedule("s.service").cloned(), before);
    let requested = cluster.registry.request_schedule(&name("s.service"), Resume).await;
    requested.expect("the schedule is stored");
    cluster.wait(Duration::from_secs(5)).await;
    let now = cluster.history.now();
    let schedule = now.schedule("s.service").expect("the schedule is stored");
    let history: Vec<String> = schedule.state.history.iter().map(ToString::to_string).collect();
    let [entry] = &history[..] else { panic!("{history:?}") };
    assert!(entry.ends_with("(10): skipped: the schedule was paused or stopped"), "{entry}");
}

/// Regression: the run adopted the unit.
#[tokio::test(start_paused = true)]
async fn run_leaves_another_unit_of_its_name_alone() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*-*-* 00:00").await;
    cluster.launch("s-manual-1.service", "").await;
    cluster.wait(Duration::from_secs(5)).await;
    let requested = cluster.registry.request_schedule(&name("s.service"), RunNow).await;
    requested.expect("the schedule is stored");
    cluster.wait(Duration::from_secs(5)).await;
    let now = cluster.history.now();
    let schedule = now.schedule("s.service").expect("the schedule is stored");
    let history: Vec<String> = schedule.state.history.iter().map(ToString::to_string).collect();
    assert_eq!(history, ["manual-1: skipped: another unit had the name of its unit"]);
    cluster.destroy(&name("s.service")).await;
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.active_on("s-manual-1.service"), [0]);
}

/// Regression: the unit of the user was destroyed with the schedule.
#[tokio::test(start_paused = true)]
async fn job_with_the_name_of_a_removed_run_is_kept() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*-*-* 00:00").await;
    let requested = cluster.registry.request_schedule(&name("s.service"), RunNow).await;
    requested.expect("the schedule is stored");
    cluster.wait(Duration::from_secs(5)).await;
    let run = "s-manual-1.service";
    cluster.destroy(&name(run)).await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.submit(run, "RunOnce=true", SUCCEEDS, TargetState::Launched).await;
    cluster.wait(Duration::from_secs(5)).await;
    cluster.destroy(&name("s.service")).await;
    cluster.wait(Duration::from_secs(5)).await;
    let now = cluster.history.now();
    assert!(now.unit(run).is_some() && now.schedules().len() == 0);
}

/// Regression: the runs of the destroyed schedule went on.
#[tokio::test(start_paused = true)]
async fn schedule_that_is_created_again_begins_anew() {
    let mut cluster = Cluster::start(2).await;
    let requirement = "RunOnce=true\nSchedule=*:*:0/10\nConcurrencyPolicy=allow";
    cluster.launch("s.service", requirement).await;
    cluster.wait(Duration::from_secs(45)).await;
    cluster.destroy(&name("s.service")).await;
    cluster.launch("s.service", requirement).await;
    cluster.wait(Duration::from_secs(15)).await;
    let now = cluster.history.now();
    let schedule = now.schedule("s.service").expect("the schedule is stored");
    assert!(schedule.state.history.is_empty(), "{schedule:?}");
    let runs = schedule.state.runs.len();
    assert_eq!((runs <= 2, now.units().count()), (true, runs + 1), "{schedule:?}");
}

#[tokio::test(start_paused = true)]
async fn request_to_run_now_is_handled_between_elapses() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("s.service", "RunOnce=true\nSchedule=*-*-* 00:00").await;
    cluster.wait(Duration::from_secs(60)).await;
    for requests in 1..=2 {
        let run = format!("s-manual-{requests}.service");
        let requested = cluster.registry.request_schedule(&name("s.service"), RunNow).await;
        requested.expect("the schedule is stored");
        cluster.wait(Duration::from_secs(5)).await;
        let [on] = cluster.active_on(&run)[..] else { panic!("{run} does not run") };
        cluster.hosts[on].fake().exit(&name(&run), 0);
        cluster.wait(Duration::from_secs(60)).await;
    }
}
