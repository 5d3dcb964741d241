//! Starting, stopping, failing, restarting.

use std::sync::Arc;

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Generation, SystemdState, TargetState};

use crate::support::{Bench, name, runs, signal};

const FOREVER: &str = "ExecStart=/bin/sleep 1000\n";

fn summary(state: &SystemdState) -> (ActiveState, &str, Option<&str>) {
    (state.active, &state.sub, state.result.as_deref())
}

#[tokio::test]
async fn unit_starts_and_stops() {
    let bench = Bench::new().await;
    bench.load("a.service", FOREVER).await;
    assert_eq!(bench.state("a.service").await, SystemdState::loaded());
    bench.start("a.service").await.expect("it starts");
    let state = bench.state("a.service").await;
    assert_eq!(summary(&state), (ActiveState::Active, "running", Some("success")));
    let pid = bench.pid("a.service").await;
    assert!(runs(pid));
    bench.start("a.service").await.expect("it runs already");
    assert_eq!(bench.pid("a.service").await, pid);
    bench.stop("a.service").await;
    let state = bench.state("a.service").await;
    assert_eq!(summary(&state), (ActiveState::Inactive, "dead", Some("success")));
    assert_eq!(state.exit, Some(ExitStatus::Signal(15)));
    assert!(!runs(pid));
    bench.clean_up().await;
}

#[tokio::test]
async fn requested_state_is_kept_until_unload() {
    let bench = Bench::new().await;
    bench.load("a.service", FOREVER).await;
    let unit = name("a.service");
    bench.manager.start(&unit, Generation(4)).await.expect("it starts");
    let known = bench.get("a.service").await.known;
    assert_eq!((known.requested, known.generation), (TargetState::Launched, Generation(4)));
    bench.stop("a.service").await;
    let known = bench.get("a.service").await.known;
    assert_eq!((known.requested, known.generation), (TargetState::Loaded, Generation(4)));
    bench.start("a.service").await.expect("it starts");
    let pid = bench.pid("a.service").await;
    bench.manager.unload(&unit).await.expect("it is unloaded");
    assert!(!runs(pid));
    assert_eq!(bench.manager.get(&unit).await.expect("the call succeeds"), None);
    assert!(matches!(bench.start("a.service").await, Err(ServiceError::NotLoaded { .. })));
    bench.manager.unload(&unit).await.expect("an unknown unit is no error");
    bench.run("a.service", FOREVER).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn killed_process_fails_or_restarts_the_unit() {
    let bench = Bench::new().await;
    bench.run("no.service", FOREVER).await;
    signal(bench.pid("no.service").await, "KILL");
    let state = bench.wait_for_sub("no.service", "failed").await;
    assert_eq!(summary(&state), (ActiveState::Failed, "failed", Some("signal")));
    assert_eq!(state.exit, Some(ExitStatus::Signal(9)));

    bench.run("yes.service", &format!("{FOREVER}Restart=on-failure\nRestartSec=10ms\n")).await;
    let pid = bench.pid("yes.service").await;
    signal(pid, "KILL");
    let state = bench
        .wait_for("yes.service", |state| state.sub == "running" && state.main_pid != Some(pid))
        .await;
    assert_eq!(state.restarts, 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn stop_cancels_a_pending_restart() {
    let bench = Bench::new().await;
    bench.run("a.service", &format!("{FOREVER}Restart=always\nRestartSec=1h\n")).await;
    signal(bench.pid("a.service").await, "KILL");
    bench.wait_for_sub("a.service", "auto-restart").await;
    bench.stop("a.service").await;
    assert_eq!(bench.state("a.service").await.sub, "dead");
    bench.start("a.service").await.expect("it starts");
    signal(bench.pid("a.service").await, "KILL");
    bench.wait_for_sub("a.service", "auto-restart").await;
    bench.manager.unload(&name("a.service")).await.expect("it is unloaded");
    bench.clean_up().await;
}

#[tokio::test]
async fn missing_program_is_named() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStart=/no/such/program\n").await;
    let error = bench.start("a.service").await.expect_err("it cannot start");
    assert_eq!(
        error.to_string(),
        "a.service did not start: cannot run /no/such/program: No such file or directory \
         (os error 2)"
    );
    let state = bench.state("a.service").await;
    assert_eq!(summary(&state), (ActiveState::Failed, "failed", Some("exit-code")));
    assert_eq!(state.exit, Some(ExitStatus::Code(203)));
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Launched);
    assert_eq!(bench.log("a.service").await.len(), 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn start_limit_stops_the_restarts() {
    let bench = Bench::new().await;
    let service = "ExecStart=/bin/false\nRestart=on-failure\nRestartSec=0\n\
                   StartLimitBurst=3\nStartLimitInterval=1h\n";
    bench.load("a.service", service).await;
    bench.start("a.service").await.expect("the program was run");
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert_eq!(summary(&state), (ActiveState::Failed, "failed", Some("exit-code")));
    assert_eq!(state.restarts, 3);
    bench.stop("a.service").await;
    let bench = bench.kill().await.revive().await;
    let after = SystemdState { since: state.since, ..bench.state("a.service").await };
    assert_eq!(after, state, "it has failed still");
    bench.start("a.service").await.expect("a requested start is a new attempt");
    bench.clean_up().await;
}

#[tokio::test]
async fn restart_creates_a_new_process() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    let pid = bench.pid("a.service").await;
    let unit = name("a.service");
    bench.manager.restart(&unit, Generation(2)).await.expect("it restarts");
    assert_ne!(bench.pid("a.service").await, pid);
    assert!(!runs(pid));
    let unit = bench.get("a.service").await;
    assert_eq!((unit.known.generation, unit.state.restarts), (Generation(2), 0));
    bench.clean_up().await;
}

#[tokio::test]
async fn stop_reaches_the_group_and_processes_that_left_it() {
    let bench = Bench::new().await;
    let out = bench.path("pids");
    let script = format!(
        "sleep 1001 & echo $$! >>{0}; setsid sh -c \"echo \\$$\\$$ >>{0}; sleep 1002; true\" & \
         exec sleep 1003",
        out.display()
    );
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n")).await;
    let pids = bench.wait_for_lines("pids", 2).await;
    let pids: Vec<u32> = pids.iter().map(|pid| pid.parse().expect("a pid")).collect();
    assert!(pids.iter().all(|&pid| runs(pid)), "{pids:?}");
    bench.stop("a.service").await;
    assert!(!pids.iter().any(|&pid| runs(pid)), "{pids:?}");
    bench.clean_up().await;
}

#[tokio::test]
async fn process_ignoring_the_signal_is_killed() {
    let bench = Bench::new().await;
    let ready = bench.path("ready");
    let service = format!(
        "ExecStart=/bin/sh -c 'trap \"\" TERM; echo 1 >{}; while :; do sleep 1000; done'\n\
         TimeoutStopSec=50ms\n",
        ready.display()
    );
    bench.run("a.service", &service).await;
    bench.wait_for_lines("ready", 1).await;
    let pid = bench.pid("a.service").await;
    bench.stop("a.service").await;
    let state = bench.state("a.service").await;
    assert_eq!(summary(&state), (ActiveState::Failed, "failed", Some("timeout")));
    assert!(!runs(pid));
    bench.clean_up().await;
}

/// Regression: `ExecStopPost=` was killed at once if the stop had timed out.
#[tokio::test]
async fn stop_post_command_runs_after_processes_were_killed() {
    for control_groups in [true, false] {
        let bench = Bench::with(|config| config.control_groups = control_groups).await;
        for (unit, options) in [
            ("stop.service", ""),
            ("runtime.service", "RuntimeMaxSec=100ms\n"),
            ("start.service", "Type=notify\nTimeoutStartSec=100ms\n"),
        ] {
            let file = bench.path(unit);
            let print = "echo $$SERVICE_RESULT $$EXIT_CODE $$EXIT_STATUS";
            let post = format!("ExecStopPost=/bin/sh -c '{print} >{}'\n", file.display());
            // The signal ends nothing.
            let service =
                format!("{FOREVER}KillSignal=SIGCONT\nTimeoutStopSec=1s\n{options}{post}");
            bench.load(unit, &service).await;
            let started = bench.start(unit).await;
            if options.is_empty() {
                started.expect("it starts");
                bench.stop(unit).await;
            }
            let state = bench.wait_for_sub(unit, "failed").await;
            assert_eq!(state.result.as_deref(), Some("timeout"), "{unit}");
            assert_eq!(bench.wait_for_lines(unit, 1).await, ["timeout killed KILL"], "{unit}");
        }
        bench.clean_up().await;
    }
}

// Holds: I-26
#[tokio::test]
async fn hanging_unit_does_not_block_others() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let stop =
        format!("ExecStop=/bin/sh -c 'until [ -e {} ]; do sleep 0.01; done'\n", gate.display());
    bench.run("slow.service", &format!("{FOREVER}{stop}")).await;
    let manager = Arc::clone(&bench.manager);
    let stop = tokio::spawn(async move { manager.stop(&name("slow.service")).await });
    bench.wait_for_sub("slow.service", "stop").await;
    bench.run("quick.service", FOREVER).await;
    bench.stop("quick.service").await;
    assert!(!stop.is_finished());
    std::fs::write(gate, "").expect("a file can be made");
    stop.await.expect("no panic").expect("it stops");
    bench.clean_up().await;
}

#[tokio::test]
async fn units_can_be_stopped_without_the_directory() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    let pid = bench.pid("a.service").await;
    std::fs::remove_dir_all(bench.path("native")).expect("the directory is there");
    bench.manager.shutdown().await.expect("running units can be stopped");
    assert!(!runs(pid));
}

#[tokio::test]
async fn restart_uses_a_file_that_has_just_changed() {
    let bench = Bench::new().await;
    let again = "Restart=always\nRestartSec=0\nStartLimitBurst=0\n";
    bench.run("a.service", &format!("{FOREVER}{again}")).await;
    for turn in 1..=5 {
        let pid = bench.pid("a.service").await;
        let line = format!("echo {turn} >>{}", bench.path("turns").display());
        let service = format!("ExecStart=/bin/sh -c '{line}; exec sleep 1000'\n{again}");
        bench.load("a.service", &service).await;
        signal(pid, "KILL");
        let lines = bench.wait_for_lines("turns", turn).await;
        assert_eq!(lines.last(), Some(&turn.to_string()));
        bench.wait_for_sub("a.service", "running").await;
    }
    bench.clean_up().await;
}
