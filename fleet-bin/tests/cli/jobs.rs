//! Jobs and schedules.

use crate::cluster::Cluster;
use crate::fake_engine::Role;

const JOB: &str = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nRunOnce=true\n";

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1"]).await;
    for unit in ["ok.service", "bad.service", "long.service"] {
        cluster.write(unit, JOB);
    }
    cluster.write("tick.service", &format!("{JOB}Schedule=daily\n"));
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("ok.service", Role::Finishing);
    cluster.roles.set("bad.service", Role::FailingBefore(1));
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_exits_with_the_first_failure() {
    let cluster = cluster().await;
    let run = cluster.run("run --wait ok.service").await;
    assert_eq!(run.code, 0, "{run}");
    insta::assert_snapshot!(run.stderr, @"
    ok.service: attempt 1 begins on m1
    ok.service: succeeded
    ");
    let run = cluster.run("run --wait ok bad").await;
    assert_eq!(run.code, 3, "{run}");
    assert!(run.stderr.contains("bad.service: failed: attempt 1 exited with status 3"), "{run}");
    assert_eq!(cluster.desired("bad.service").await, "inactive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_states_are_shown() {
    let cluster = cluster().await;
    let run = cluster.run("run ok.service bad.service long.service").await.ok();
    insta::assert_snapshot!(run.stdout, @"
    Triggered job ok.service
    Triggered job bad.service
    Triggered job long.service
    ");
    let ended = |unit: &str, snapshot: &fleet_core::Snapshot| {
        snapshot.job(unit).is_some_and(|job| job.state.outcome().is_some())
    };
    cluster
        .wait_until(|it| {
            let runs = it.job("long.service").is_some_and(|job| job.state.last_attempt == 1);
            ended("ok.service", it) && ended("bad.service", it) && runs
        })
        .await;
    let again = cluster.run("run long").await.ok();
    let text = "Job long.service is unfinished already: running on m1, attempt 1\n";
    assert_eq!(again.stdout, text);
    let mut all = String::new();
    for line in [
        "job list --all",
        "job list",
        "job status bad",
        "list-units --fields=unit,active,sub,reason",
    ] {
        let output = cluster.run(line).await.ok();
        all += &format!("{line}\n{}\n", output.stdout.replace('\t', "→"));
    }
    insta::assert_snapshot!(all);
    let applied = cluster.run("apply ok.service bad.service").await.ok();
    assert!(applied.stderr.contains("nothing to do"), "{applied}");
    assert_eq!(cluster.desired("ok.service").await, "inactive");
    let started = cluster.run("start ok").await.ok();
    // The command may see the job before its end.
    let states = ["running on", "succeeded"].map(|state| format!("Unit ok.service {state}"));
    assert!(states.iter().any(|state| started.stdout.starts_with(state)), "{started}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_jobs_are_run() {
    let cluster = cluster().await;
    cluster.run("start tick.service web.service").await.ok();
    let mut all = String::new();
    for line in [
        "run web.service",
        "run tick.service",
        "run none",
        "job status web",
        "job status tick",
        "schedule status web",
        "schedule run-now tick",
        "schedule pause none",
    ] {
        let run = cluster.run(line).await;
        all += &format!("{line}: {}\n{}\n", run.code, run.stderr);
    }
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiting_jobs_give_one_notice() {
    let cluster = Cluster::start(&["m1"]).await;
    let names: Vec<_> = (10..22).map(|number| format!("job{number}.service")).collect();
    for (name, at) in names.iter().zip(0..) {
        cluster.write(name, JOB);
        let role = if at < 3 { Role::Finishing } else { Role::Unplaceable };
        cluster.roles.set(name, role);
    }
    let run = cluster.run(&format!("run --wait --timeout 2s {}", names.join(" "))).await;
    let is_summary = |line: &&str| !line.starts_with("job") && !line.starts_with("help");
    let stderr: Vec<_> = run.stderr.lines().filter(is_summary).collect();
    insta::assert_snapshot!(stderr.join("\n"), @r"
    waiting for 9 of 12 jobs: 9 wait: no machine is present
    fleetctl: the time is over: waiting for 9 of 12 jobs: 9 wait: no machine is present
    ");
    assert!(!run.stderr.contains(": waiting: "), "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_that_never_elapse_are_refused() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("past.service", &format!("{JOB}Schedule=2020-01-01 02:00\n"));
    cluster.write("never.service", &format!("{JOB}Schedule=*-02-30\nCatchUp=once\n"));
    cluster.write("lost.service", &format!("{JOB}CatchUp=once\nConcurrencyPolicy=allow\n"));
    let mut all = String::new();
    for line in [
        "verify --systemd-version 252 past.service never.service lost.service",
        "start past.service",
        "start --no-verify past.service",
        "start never.service",
        "apply past.service",
    ] {
        let run = cluster.run(line).await;
        all += &format!("{line}: {}\n{}{}\n", run.code, run.stdout, run.stderr);
    }
    insta::assert_snapshot!(all);
}
