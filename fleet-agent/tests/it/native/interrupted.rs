//! Operations that a manager has begun and not finished when it is killed, continued by the next
//! one. The kills are placed where random ones hardly ever hit.

use fleet_core::graph::DerivedState;
use fleet_core::{Generation, TargetState};

use super::helper::does;
use super::kill_point::{CrashScenario, RUNNING, decided, is_over, lines, stubborn, tells};
use crate::support::{hasty, runs, signal_group};

async fn stop_is_finished_once(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &stubborn(&chosen, ""));
    chosen.unit("all.target", "[Unit]\nWants=a.service\n");
    let asks = ["start a.service", "start all.target", "await go", "begin stop a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("a.service", "stop-sigterm").await;
    let bench = living.kill().revive().await;
    let found = bench.get("a.service").await;
    assert_eq!((found.known.requested, &*found.state.sub), (TargetState::Loaded, "stop-sigterm"));
    assert!(matches!(decided(&bench, "a.service").await, DerivedState::Stopping(_)));
    let pid = found.state.main_pid.expect("it has one");
    signal_group(pid, "KILL");
    bench.wait_for("a.service", is_over).await;
    assert!(!runs(pid));
    let bench = bench.kill().await.revive().await;
    assert!(is_over(&bench.state("a.service").await), "a dependent does not start it");
    assert_eq!(decided(&bench, "a.service").await, DerivedState::Masked);
    assert_eq!(bench.state("all.target").await.sub, "active");
    assert_eq!((lines(&bench, "begun").len(), lines(&bench, "over").len()), (1, 1));
    bench.clean_up().await;
}

// Holds: R-1
#[tokio::test]
async fn killed_stop_is_finished_once() {
    stop_is_finished_once(false).await;
    stop_is_finished_once(true).await;
}

/// Regression: the next manager started the unit again until it was unloaded once more.
// Holds: R-1
#[tokio::test]
async fn unit_stays_stopped_after_a_killed_unload() {
    let chosen = CrashScenario::new(false).await;
    chosen.unit("a.service", &stubborn(&chosen, ""));
    let asks = ["start a.service", "await go", "begin unload a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("a.service", "stop-sigterm").await;
    let bench = living.kill().revive().await;
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    signal_group(bench.pid("a.service").await, "KILL");
    bench.wait_for("a.service", is_over).await;
    let decided = decided(&bench, "a.service").await;
    assert!(matches!(decided, DerivedState::Disabled | DerivedState::Failed { .. }), "{decided:?}");
    assert_eq!(lines(&bench, "begun").len(), 1, "it was started again");
    // If the unit is wanted again, a start is enough.
    bench.start("a.service").await.expect("it starts");
    signal_group(bench.pid("a.service").await, "KILL");
    bench.clean_up().await;
}

async fn restart_is_finished_once(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &stubborn(&chosen, ""));
    let asks = ["start a.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("a.service", "stop-sigterm").await;
    let bench = living.kill().revive().await;
    let before = bench.pid("a.service").await;
    assert_eq!(lines(&bench, "begun"), [before.to_string()], "it stops first");
    // It has failed to stop, and has no restart policy for a failure.
    signal_group(before, "KILL");
    let begun = bench.wait_for_lines("begun", 2).await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.main_pid.map(|pid| pid.to_string()).as_ref(), begun.last());
    assert_eq!(bench.get("a.service").await.known.generation, Generation(3));
    assert!(!runs(before), "it ran twice");
    let bench = bench.kill().await.revive().await;
    assert_eq!(decided(&bench, "a.service").await, RUNNING);
    assert_eq!(lines(&bench, "begun"), begun, "it was restarted twice");
    assert_eq!(lines(&bench, "over").len(), 1);
    signal_group(bench.pid("a.service").await, "KILL");
    bench.wait_for("a.service", is_over).await;
    bench.clean_up().await;
}

// Holds: R-4
#[tokio::test]
async fn killed_restart_is_finished_once() {
    restart_is_finished_once(false).await;
    restart_is_finished_once(true).await;
}

/// Returns a service that fails on its first start, and leaves a process that ignores `SIGTERM`.
fn fails_once(chosen: &CrashScenario) -> String {
    let (begun, left) = (chosen.path("begun"), chosen.path("left"));
    let (begun, left) = (begun.display(), left.display());
    format!(
        "[Service]\nTimeoutStopSec=1h\nExecStart=/bin/sh -c 'echo $$$$ >>{begun}; \
         test -e {left} && exec sleep 1000; (trap \"\" TERM; echo 1 >{left}; exec sleep 1001) & \
         until test -e {left}; do sleep 0.01; done; exit 1'\n"
    )
}

async fn failure_is_restarted(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &fails_once(&chosen));
    let asks = ["begin start a.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_phase("a.service", "stop-sigterm").await;
    living.make("go");
    living.wait_for_record("a.service", "requested.json", "\"generation\":3").await;
    let bench = living.kill().revive().await;
    let first: u32 = lines(&bench, "begun")[0].parse().expect("a number");
    assert_eq!(bench.state("a.service").await.sub, "stop-sigterm");
    signal_group(first, "KILL");
    let begun = bench.wait_for_lines("begun", 2).await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.main_pid.map(|pid| pid.to_string()).as_ref(), begun.last());
    bench.clean_up().await;
}

// Holds: R-4
#[tokio::test]
async fn failure_during_a_kill_is_followed_by_a_restart() {
    failure_is_restarted(false).await;
    failure_is_restarted(true).await;
}

// Holds: R-4
#[tokio::test]
async fn dependents_of_a_killed_restart_start_again() {
    let chosen = CrashScenario::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &stubborn(&chosen, "PartOf=a.service\nAfter=a.service"));
    let asks = ["start a.service", "start b.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("b.service", "stop-sigterm").await;
    let bench = living.kill().revive().await;
    let before = bench.pid("b.service").await;
    signal_group(before, "KILL");
    bench.wait_for_lines("a", 2).await;
    bench.wait_for_lines("begun", 2).await;
    let b = bench.wait_for_sub("b.service", "running").await.main_pid.expect("it has one");
    assert!(!runs(before) && b != before);
    assert_eq!((lines(&bench, "a").len(), lines(&bench, "over").len()), (2, 1));
    signal_group(b, "KILL");
    bench.wait_for("b.service", is_over).await;
    bench.clean_up().await;
}

async fn pid_file_is_awaited(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    let path = |name: &str| chosen.path(name).display().to_string();
    let (pid, gate) = (path("pid"), path("gate"));
    let steps = format!("leave 0|await {gate}|pidfile {pid}|sleep");
    let launch = format!("ExecStartPre=/bin/sh -c 'echo 1 >>{}'\n", path("launched"));
    let service = format!("[Service]\nType=forking\nPIDFile={pid}\n{launch}{}", does(&steps));
    chosen.unit("a.service", &service);
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_record("a.service", "run.json", "\"awaits_main\":true").await;
    let bench = living.kill().revive().await;
    let state = bench.state("a.service").await;
    assert_eq!((&*state.sub, state.main_pid), ("start", None), "no main process is named yet");
    std::fs::write(&gate, "").expect("it can be created");
    let state = bench.wait_for_sub("a.service", "running").await;
    let written = bench.wait_for_lines("pid", 1).await;
    assert_eq!(written, [state.main_pid.expect("it has one").to_string()]);
    assert_eq!(lines(&bench, "launched").len(), 1, "it was launched twice");
    bench.clean_up().await;
}

// Holds: R-8
#[tokio::test]
async fn wait_for_the_pid_file_survives_a_kill() {
    pid_file_is_awaited(false).await;
    pid_file_is_awaited(true).await;
}

/// Timeouts start again with the next manager, for which a second lasts a hundred.
// Holds: R-1
#[tokio::test]
async fn hanging_stop_times_out_under_the_next_manager() {
    let chosen = CrashScenario::new(false).await;
    let script = format!("echo 1 >>{}; exec sleep 1000", chosen.path("stops").display());
    let stop = format!("TimeoutStopSec=100s\nExecStop=/bin/sh -c '{script}'\n");
    chosen.unit("a.service", &(tells(&chosen, "begun", "") + &stop));
    let asks = ["start a.service", "await begun", "begin stop a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("stops", 1).await;
    living.wait_for_record("a.service", "run.json", "\"spawning\":null").await;
    let bench = living.kill().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for("a.service", is_over).await;
    assert_eq!(state.result.as_deref(), Some("timeout"));
    assert_eq!(lines(&bench, "stops").len(), 1);
    bench.clean_up().await;
}

// Holds: R-10
#[tokio::test]
async fn watchdog_expires_under_the_next_manager() {
    let chosen = CrashScenario::new(false).await;
    let steps = does("say READY=1|sleep");
    chosen.unit("a.service", &format!("[Service]\nType=notify\nWatchdogSec=100s\n{steps}"));
    let mut living = chosen.begin(&["start a.service"]).await;
    living.wait_for_phase("a.service", "running").await;
    let bench = living.kill().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for("a.service", is_over).await;
    assert_eq!(state.result.as_deref(), Some("watchdog"));
    bench.clean_up().await;
}
