//! Units that start or stop because of the state of other units: `Requisite=`, `Upholds=` and
//! `StopWhenUnneeded=`. The same commands under systemd 252 have the same results.

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::{ActiveState, SystemdState, TargetState};

use crate::support::{Bench, name, runs, signal};

const SLEEP: &str = "ExecStart=/bin/sleep 1000";

async fn load(bench: &Bench, unit: &str, options: &str, service: &str) {
    let text = format!("[Unit]\n{options}\n[Service]\n{service}\n");
    bench.try_load(unit, &text).await.expect("it can be loaded");
}

fn is_down(state: &SystemdState) -> bool {
    state.active == ActiveState::Inactive
}

#[tokio::test]
async fn requisite_fails_the_start_unless_it_is_active() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "Requisite=b.service\nAfter=b.service", SLEEP).await;
    let refused = bench.start("a.service").await.expect_err("it needs a missing unit");
    assert!(matches!(&refused, ServiceError::StartFailed { .. }), "{refused}");
    load(&bench, "b.service", "", SLEEP).await;
    let refused = bench.start("a.service").await.expect_err("it needs an inactive unit");
    let ServiceError::StartFailed { problem, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(problem, "it needs b.service, which is not active");
    assert!(is_down(&bench.state("b.service").await), "it was not started");
    bench.stop("a.service").await;
    bench.start("b.service").await.expect("it starts");
    bench.start("a.service").await.expect("it starts");
    let a = bench.pid("a.service").await;
    signal(bench.pid("b.service").await, "KILL");
    bench.wait_for_sub("b.service", "failed").await;
    assert_eq!(bench.pid("a.service").await, a, "only a requested stop counts");
    bench.start("b.service").await.expect("it starts");
    bench.stop("b.service").await;
    bench.wait_for("a.service", is_down).await;
    assert!(!runs(a));
    bench.clean_up().await;
}

#[tokio::test]
async fn upheld_unit_starts_again_as_long_as_the_other_is_active() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "Upholds=b.service", SLEEP).await;
    load(&bench, "b.service", "", SLEEP).await;
    load(&bench, "c.service", "[Install]\nUpheldBy=a.service", SLEEP).await;
    bench.start("a.service").await.expect("it starts");
    for unit in ["b.service", "c.service"] {
        let first = bench.wait_for_sub(unit, "running").await.main_pid;
        let is_next = |before: Option<u32>| {
            move |state: &SystemdState| state.main_pid.is_some() && state.main_pid != before
        };
        bench.stop(unit).await;
        let second = bench.wait_for(unit, is_next(first)).await.main_pid;
        signal(second.expect("it runs"), "KILL");
        let third = bench.wait_for(unit, is_next(second)).await.main_pid;
        signal(third.expect("it runs"), "TERM");
        bench.wait_for(unit, is_next(third)).await;
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Loaded, "not requested");
    }
    bench.stop("a.service").await;
    for unit in ["b.service", "c.service"] {
        bench.stop(unit).await;
        assert!(is_down(&bench.state(unit).await), "{unit} is no longer upheld");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn upheld_unit_respects_its_start_limit_and_conditions() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "Upholds=b.service c.service", SLEEP).await;
    let limit = "StartLimitBurst=3\nStartLimitIntervalSec=1h";
    let start = format!("ExecStart=/bin/sh -c 'echo >> {}; exit 1'", bench.path("ran").display());
    load(&bench, "b.service", limit, &start).await;
    load(&bench, "c.service", "ConditionPathExists=/none", SLEEP).await;
    bench.start("a.service").await.expect("it starts");
    bench.wait_for_sub("b.service", "failed").await;
    bench.wait_for_lines("ran", 3).await;
    bench.wait_for("b.service", |state| state.restarts > 0).await;
    bench.wait_for("c.service", is_down).await;
    assert_eq!(bench.wait_for_lines("ran", 3).await.len(), 3);
    bench.clean_up().await;
}

#[tokio::test]
async fn unneeded_unit_stops_once_no_unit_needs_it() {
    let bench = Bench::new().await;
    load(&bench, "b.service", "StopWhenUnneeded=yes", SLEEP).await;
    bench.start("b.service").await.expect("it starts");
    bench.wait_for("b.service", is_down).await;
    assert_eq!(bench.get("b.service").await.known.requested, TargetState::Launched);

    let hold = bench.path("hold");
    let job = "Type=oneshot\nExecStart=/bin/sh -c 'while test -e FILE; do sleep .01; done'";
    let job = job.replace("FILE", &hold.display().to_string());
    load(&bench, "job.service", "Wants=b.service\nAfter=b.service", &job).await;
    for _ in 0..2 {
        std::fs::write(&hold, "").expect("it can be written");
        let started = bench.begin_start("job.service");
        bench.wait_for_sub("job.service", "start").await;
        let b = bench.pid("b.service").await;
        std::fs::remove_file(&hold).expect("it is there");
        started.await.expect("it ends").expect("it succeeds");
        bench.wait_for("b.service", is_down).await;
        assert!(!runs(b));
    }
    let bench = bench.kill().await.revive().await;
    assert!(is_down(&bench.state("b.service").await), "the next daemon keeps it");

    // A unit that waits for its restart counts as active.
    let again = "ExecStart=/bin/sleep 1000\nRestart=always\nRestartSec=50ms";
    load(&bench, "web.service", "Requires=b.service\nAfter=b.service", again).await;
    bench.start("web.service").await.expect("it starts");
    let (web, b) = (bench.pid("web.service").await, bench.pid("b.service").await);
    signal(web, "KILL");
    bench.wait_for("web.service", |state| state.main_pid.is_some_and(|pid| pid != web)).await;
    assert_eq!(bench.pid("b.service").await, b);
    bench.manager.unload(&name("web.service")).await.expect("it is unloaded");
    bench.wait_for("b.service", is_down).await;
    bench.clean_up().await;
}
