//! Tracking of processes, with control groups and without.

use fleet_agent::ServiceManager;
use fleet_agent::native::Tracking;
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};

use super::adoption::rewind_start;
use crate::support::{Bench, name, runs, signal, wait_until};

/// Returns whether units have control groups. If not, the test is skipped.
fn has_control_groups(bench: &Bench) -> bool {
    let Tracking::Environment { why } = bench.manager.tracking() else { return true };
    assert!(!why.is_empty());
    left_out(&why);
    false
}

/// Reports a skipped test, with the reason for missing control groups. It counts as passed.
pub(super) fn left_out(why: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let written = writeln!(std::io::stderr(), "left out: {test}: no control groups: {why}");
    written.expect("a test can write to its standard error");
}

/// A process that a failing test must not leave behind.
struct Stray(u32);

impl Drop for Stray {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        // In a passing test it has exited already.
        let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// Runs a unit whose helper leaves its process group, its parent and its environment.
async fn run_with_a_stray(bench: &Bench, more: &str) -> Stray {
    let out = bench.path("pid");
    let script = format!(
        "(setsid env -i /bin/sh -c \"echo \\$$\\$$ >>{}; exec sleep 1004\" &); exec sleep 1005",
        out.display()
    );
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n{more}")).await;
    stray(bench, 1).await
}

/// Returns the process that this run of the unit has left behind.
async fn stray(bench: &Bench, run: usize) -> Stray {
    let pids = bench.wait_for_lines("pid", run).await;
    Stray(pids[run - 1].parse().expect("a pid"))
}

// Holds: T-17
#[tokio::test]
async fn hiding_process_is_found_by_its_control_group() {
    let bench = Bench::new().await;
    if !has_control_groups(&bench) {
        return bench.clean_up().await;
    }
    let stray = run_with_a_stray(&bench, "").await;
    bench.stop("a.service").await;
    assert!(!runs(stray.0));
    assert_eq!(bench.groups(), [""; 0], "a control group was left behind");
    bench.clean_up().await;
}

#[tokio::test]
async fn hiding_process_is_lost_without_control_groups() {
    let bench = Bench::with(|config| config.control_groups = false).await;
    let why = "control groups are disabled".to_owned();
    assert_eq!(bench.manager.tracking(), Tracking::Environment { why });
    let stray = run_with_a_stray(&bench, "").await;
    bench.stop("a.service").await;
    assert!(runs(stray.0), "an untracked process is reported, not killed");
    bench.clean_up().await;
}

#[tokio::test]
async fn process_in_a_found_group_is_stopped() {
    let bench = Bench::with(|config| config.control_groups = false).await;
    let script = format!(
        "env -i /bin/sh -c \"echo \\$$\\$$ >>{}; exec sleep 1004\" & exec sleep 1005",
        bench.path("pid").display()
    );
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n")).await;
    let stray = stray(&bench, 1).await;
    let pid = bench.pid("a.service").await;
    let dead = bench.kill().await;
    rewind_start(&dead);
    let bench = dead.revive().await;
    assert_eq!(bench.wait_for_sub("a.service", "running").await.main_pid, Some(pid));
    // Its parent is gone then, so only the process group shows its unit.
    signal(pid, "KILL");
    bench.wait_for_sub("a.service", "failed").await;
    assert!(!runs(stray.0), "it was left behind");
    bench.clean_up().await;
}

/// Returns the leaders of the unit's process groups.
fn leaders(bench: &Bench) -> Vec<i32> {
    let record = bench.path("native/units/a.service/run.json");
    let text = std::fs::read_to_string(record).expect("it is there");
    let run: serde_json::Value =
        serde_json::from_str(text.trim_end().lines().next_back().expect("it ran")).expect("JSON");
    let leaders = run["leaders"].as_array().expect("a list").iter();
    leaders
        .map(|it| it["pid"].as_i64().and_then(|pid| pid.try_into().ok()).expect("a pid"))
        .collect()
}

#[tokio::test]
async fn empty_process_group_is_forgotten() {
    let bench = Bench::with(|config| config.control_groups = false).await;
    let gate = bench.path("gate");
    let waits = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let reload = format!("ExecReload=/bin/sh -c '({waits}; exec setsid sleep 1004) &'\n");
    bench.run("a.service", &format!("ExecStart=/bin/sleep 1005\n{reload}")).await;
    bench.manager.reload_unit(&name("a.service")).await.expect("it reloads");
    let [main, reloads] = leaders(&bench)[..] else { panic!("the second group has members") };
    std::fs::write(gate, "").expect("it can be created");
    let group = Pid::from_raw(reloads).expect("a pid");
    wait_until("it is empty", async || test_kill_process_group(group).is_err()).await;
    // Its ID may be reused from now on.
    bench.manager.reload_unit(&name("a.service")).await.expect("it reloads");
    let left = leaders(&bench);
    assert!(left.contains(&main) && !left.contains(&reloads), "{left:?}");
    bench.clean_up().await;
}

#[tokio::test]
async fn hiding_process_is_found_by_the_next_daemon() {
    let bench = Bench::new().await;
    if !has_control_groups(&bench) {
        return bench.clean_up().await;
    }
    let stray = run_with_a_stray(&bench, "").await;
    let bench = bench.kill().await.revive().await;
    assert!(runs(stray.0));
    bench.manager.unload(&name("a.service")).await.expect("it is unloaded");
    assert!(!runs(stray.0));
    assert_eq!(bench.groups(), [""; 0], "a control group was left behind");
    bench.clean_up().await;
}

#[tokio::test]
async fn hiding_process_ignoring_signals_is_killed() {
    let bench = Bench::new().await;
    if !has_control_groups(&bench) {
        return bench.clean_up().await;
    }
    let stray = run_with_a_stray(&bench, "KillMode=mixed\n").await;
    bench.stop("a.service").await;
    assert!(!runs(stray.0), "the first signal was for the main process alone");
    bench.clean_up().await;
}

#[tokio::test]
async fn spared_processes_stay_in_their_control_group() {
    let bench = Bench::new().await;
    if !has_control_groups(&bench) {
        return bench.clean_up().await;
    }
    let stray = run_with_a_stray(&bench, "KillMode=process\n").await;
    bench.stop("a.service").await;
    assert!(runs(stray.0));
    assert_eq!(bench.groups().len(), 1);
    bench.start("a.service").await.expect("it starts");
    let second = self::stray(&bench, 2).await;
    assert_eq!(bench.groups().len(), 2, "each run has a group of its own");
    bench.stop("a.service").await;
    for stray in [stray, second] {
        signal(stray.0, "KILL");
        wait_until("it has ended", async || !runs(stray.0)).await;
    }
    bench.clean_up().await;
}
