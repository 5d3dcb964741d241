//! Recovery of units after the end of a daemon.

use std::time::Duration;

use fleet_agent::{ManagedUnit, NativeConfig, NativeManager, ServiceError, ServiceManager};
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Epoch, Generation, SystemdState, TargetState};
use fleet_unitfile::UnitFile;

use crate::support::{Bench, Dead, name, runs, signal, signal_group, undated, wait_until};

const FOREVER: &str = "ExecStart=/bin/sleep 1000\n";

/// Checks the exit status of a process that is not our child, as far as the kernel reports it.
fn is(state: &SystemdState, end: ExitStatus) -> bool {
    [Some(end), Some(ExitStatus::Unknown)].contains(&state.exit)
}

#[tokio::test]
async fn running_units_are_adopted_with_their_requested_state() {
    let bench = Bench::new().await;
    let file = UnitFile::parse(format!("[Service]\n{FOREVER}")).expect("it is well formed");
    let unit = name("a.service");
    bench.manager.load(&unit, &file, Epoch(6)).await.expect("it loads");
    bench.manager.start(&unit, Generation(3)).await.expect("it starts");
    bench.load("b.service", FOREVER).await;
    let before = bench.manager.list().await.expect("the call succeeds");
    let pid = bench.pid("a.service").await;
    let bench = bench.kill().await.revive().await;
    let after = bench.manager.list().await.expect("the call succeeds");
    let since = |units: &[ManagedUnit]| units[0].state.since.expect("it runs");
    let earlier = since(&before).since(since(&after)) + since(&after).since(since(&before));
    assert!(earlier < Duration::from_secs(2), "the start of its process");
    let undated = |units: &[ManagedUnit]| units.iter().cloned().map(undated).collect::<Vec<_>>();
    assert_eq!(undated(&after), undated(&before));
    assert_eq!(after[0].known.hash, file.hash());
    assert_eq!((after[0].known.epoch, after[0].known.generation), (Epoch(6), Generation(3)));
    bench.start("a.service").await.expect("it runs already");
    assert_eq!(bench.pid("a.service").await, pid);
    bench.stop("a.service").await;
    assert!(!runs(pid));
    bench.clean_up().await;
}

/// Directory of the daemon to kill; set for its process only.
const DAEMON: &str = "FLEET_TEST_DAEMON";

/// The daemon of the test below, in its own process. Does nothing as a test.
#[tokio::test]
async fn daemon_to_kill() {
    let Some(directory) = std::env::var_os(DAEMON) else { return };
    let manager = NativeManager::open(NativeConfig::new(directory)).await.expect("it opens");
    let file = UnitFile::parse(format!("[Service]\n{FOREVER}Restart=on-failure\nRestartSec=0\n"));
    let unit = name("a.service");
    manager.load(&unit, &file.expect("it is well formed"), Epoch(2)).await.expect("it loads");
    manager.start(&unit, Generation(5)).await.expect("it starts");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn killed_daemon_leaves_its_units_running() {
    let dead = Bench::new().await.kill().await;
    let mut daemon = std::process::Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "native::adoption::daemon_to_kill"])
        .env(DAEMON, dead.path("native"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the test can run itself");
    let record = dead.path("native/units/a.service/run.json");
    let running =
        async || std::fs::read_to_string(&record).is_ok_and(|run| run.contains("\"running\""));
    wait_until("the unit runs", running).await;
    daemon.kill().expect("it can be killed");
    daemon.wait().expect("it has ended");
    let bench = dead.revive().await;
    let unit = bench.get("a.service").await;
    assert_eq!((unit.known.epoch, unit.known.generation), (Epoch(2), Generation(5)));
    let pid = unit.state.main_pid.expect("it has a main process");
    assert!(runs(pid), "it outlives its daemon");
    signal(pid, "KILL");
    let again = |state: &SystemdState| state.sub == "running" && state.main_pid != Some(pid);
    let state = bench.wait_for("a.service", again).await;
    assert!(is(&state, ExitStatus::Signal(9)), "exit of the previous run: {state:?}");
    bench.stop("a.service").await;
    assert!(!state.main_pid.is_some_and(runs));
    bench.clean_up().await;
}

#[tokio::test]
async fn adopted_process_is_watched() {
    let bench = Bench::new().await;
    bench.run("a.service", &format!("{FOREVER}Restart=on-failure\nRestartSec=10ms\n")).await;
    let pid = bench.pid("a.service").await;
    let bench = bench.kill().await.revive().await;
    signal(pid, "KILL");
    let state = bench
        .wait_for("a.service", |state| state.sub == "running" && state.main_pid != Some(pid))
        .await;
    assert_eq!(state.restarts, 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn unobserved_exit_is_an_unknown_failure() {
    let bench = Bench::new().await;
    bench.run("no.service", FOREVER).await;
    bench.run("yes.service", &format!("{FOREVER}Restart=on-abort\nRestartSec=10ms\n")).await;
    let pids = [bench.pid("no.service").await, bench.pid("yes.service").await];
    let dead = bench.kill().await;
    for pid in pids {
        signal(pid, "KILL");
        wait_until("the process has ended", async || !runs(pid)).await;
    }
    let bench = dead.revive().await;
    let state = bench.wait_for_sub("no.service", "failed").await;
    assert_eq!((state.active, state.exit), (ActiveState::Failed, Some(ExitStatus::Unknown)));
    assert_eq!(bench.get("no.service").await.known.requested, TargetState::Launched);
    let state = bench.wait_for_sub("yes.service", "running").await;
    assert!(state.main_pid.is_some_and(|pid| !pids.contains(&pid)));
    bench.clean_up().await;
}

#[tokio::test]
async fn interrupted_start_is_continued() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let wait = format!("/bin/sh -c 'until [ -e {} ]; do sleep 0.01; done'", gate.display());
    let service = format!("{FOREVER}ExecStartPre=-{wait}\n");
    bench.load("a.service", &service).await;
    let manager = std::sync::Arc::clone(&bench.manager);
    let start = tokio::spawn(async move { manager.start(&name("a.service"), Generation(1)).await });
    bench.wait_for_sub("a.service", "start-pre").await;
    start.abort();
    // The aborted caller held the manager, too.
    drop(start.await);
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.service").await.sub, "start-pre");
    std::fs::write(gate, "").expect("a file can be made");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

/// Rewrites the run of `a.service` as it was before its process was spawned.
pub(super) fn rewind_start(dead: &Dead) {
    let path = dead.path("native/units/a.service/run.json");
    let text = std::fs::read_to_string(&path).expect("there is a record");
    let last = text.lines().next_back().expect("it has a record");
    let mut run: serde_json::Value = serde_json::from_str(last).expect("it is JSON");
    run["leaders"] = serde_json::json!([]);
    run["run_state"]["main"] = serde_json::Value::Null;
    run["run_state"]["phase"] = "start".into();
    run["run_state"]["spawning"] = "main".into();
    std::fs::write(&path, format!("{run}\n")).expect("it can be written");
}

// Holds: R-7
#[tokio::test]
async fn unrecorded_process_is_adopted() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    let pid = bench.pid("a.service").await;
    let dead = bench.kill().await;
    rewind_start(&dead);
    let bench = dead.revive().await;
    assert_eq!(bench.wait_for_sub("a.service", "running").await.main_pid, Some(pid));
    bench.clean_up().await;
}

#[tokio::test]
async fn pending_requests_are_applied_by_the_next_daemon() {
    let bench = Bench::new().await;
    for unit in ["start.service", "stop.service", "restart.service", "stay.service"] {
        bench.run(unit, FOREVER).await;
    }
    let (stop, restart) = (bench.pid("stop.service").await, bench.pid("restart.service").await);
    let stay = bench.pid("stay.service").await;
    bench.stop("start.service").await;
    let dead = bench.kill().await;
    // The stored state as a daemon leaves it that ends right after it has stored a request.
    let ask = |unit: &str, generation: u64, launched: bool, restart_generation: u64| {
        let requested = serde_json::json!({
            "epoch": 1, "generation": generation, "launched": launched, "triggered": false,
            "trigger": 0, "restart_generation": restart_generation
        });
        let path = dead.path(&format!("native/units/{unit}/requested.json"));
        std::fs::write(path, requested.to_string()).expect("it can be written");
    };
    ask("start.service", 1, true, 0);
    ask("stop.service", 1, false, 0);
    ask("restart.service", 2, true, 2);
    let bench = dead.revive().await;
    bench.wait_for_sub("start.service", "running").await;
    // An unobserved exit is a failure.
    let over = |state: &SystemdState| ["dead", "failed"].contains(&state.sub.as_str());
    bench.wait_for("stop.service", over).await;
    assert!(!runs(stop));
    let again = |state: &SystemdState| state.sub == "running" && state.main_pid != Some(restart);
    bench.wait_for("restart.service", again).await;
    assert!(!runs(restart), "it ran twice");
    assert_eq!(bench.pid("stay.service").await, stay);
    bench.clean_up().await;
}

#[tokio::test]
async fn unit_starts_although_its_first_run_was_not_stored() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    bench.stop("a.service").await;
    let dead = bench.kill().await;
    let of = |file: &str| dead.path(&format!("native/units/a.service/{file}"));
    std::fs::remove_file(of("run.json")).expect("there is a record");
    let requested = r#"{"epoch":1,"generation":1,"launched":true,"triggered":false,"trigger":0,
        "restart_generation":0}"#;
    std::fs::write(of("requested.json"), requested).expect("it can be written");
    let bench = dead.revive().await;
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

// Holds: R-4
#[tokio::test]
async fn restart_waiting_for_others_is_applied_by_the_next_daemon() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    let text = format!(
        "[Unit]\nRequires=a.service\nAfter=a.service\n[Service]\nTimeoutStopSec=1h\n\
         ExecStart=/bin/sh -c '[ -e {ready} ] && exec sleep 1000; trap \"\" TERM; echo 1 >{ready}; \
         while :; do sleep 1000; done'\n",
        ready = bench.path("ready").display()
    );
    bench.try_load("b.service", &text).await.expect("it can be loaded");
    bench.start("b.service").await.expect("it starts");
    bench.wait_for_lines("ready", 1).await;
    let (a, b) = (bench.pid("a.service").await, bench.pid("b.service").await);
    let manager = std::sync::Arc::clone(&bench.manager);
    let restart =
        tokio::spawn(async move { manager.restart(&name("a.service"), Generation(2)).await });
    bench.wait_for_sub("b.service", "stop-sigterm").await;
    restart.abort();
    drop(restart.await);
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.pid("a.service").await, a, "it keeps waiting");
    signal_group(b, "KILL");
    let again = |state: &SystemdState| state.sub == "running" && state.main_pid != Some(a);
    bench.wait_for("a.service", again).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn interrupted_stop_is_finished() {
    let bench = Bench::new().await;
    let ready = bench.path("ready");
    let service = format!(
        "ExecStart=/bin/sh -c 'trap \"\" TERM; echo 1 >{}; while :; do sleep 1000; done'\n\
         TimeoutStopSec=1h\n",
        ready.display()
    );
    bench.run("a.service", &service).await;
    bench.wait_for_lines("ready", 1).await;
    let pid = bench.pid("a.service").await;
    let manager = std::sync::Arc::clone(&bench.manager);
    let stop = tokio::spawn(async move { manager.stop(&name("a.service")).await });
    bench.wait_for_sub("a.service", "stop-sigterm").await;
    stop.abort();
    drop(stop.await);
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.service").await.sub, "stop-sigterm");
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    signal_group(pid, "KILL");
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert!(is(&state, ExitStatus::Signal(9)), "{state:?}");
    bench.clean_up().await;
}

#[tokio::test]
async fn no_unit_is_known_after_a_boot() {
    let bench = Bench::new().await;
    bench.load("a.service", FOREVER).await;
    let dead = bench.kill().await;
    std::fs::write(dead.path("native/boot"), "another boot").expect("it can be written");
    let bench = dead.revive().await;
    assert_eq!(bench.manager.list().await.expect("the call succeeds"), []);
    bench.clean_up().await;
}

#[tokio::test]
async fn unreadable_record_affects_no_other_unit() {
    let bench = Bench::new().await;
    bench.load("a.service", FOREVER).await;
    bench.load("b.service", FOREVER).await;
    let dead = bench.kill().await;
    let record = dead.path("native/units/a.service/requested.json");
    std::fs::write(record, "{").expect("it can be written");
    let bench = dead.revive().await;
    let units = bench.manager.list().await.expect("the call succeeds");
    assert_eq!(units.iter().map(|unit| unit.unit.as_str()).collect::<Vec<_>>(), ["b.service"]);
    bench.load("a.service", FOREVER).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn unrecoverable_unit_does_not_run_twice() {
    let bench = Bench::new().await;
    bench.run("a.service", FOREVER).await;
    let pid = bench.pid("a.service").await;
    let dead = bench.kill().await;
    let record = dead.path("native/units/a.service/requested.json");
    std::fs::write(record, "{").expect("it can be written");
    let bench = dead.revive().await;
    assert_eq!(bench.manager.list().await.expect("the call succeeds"), []);
    assert!(runs(pid), "an unreadable file stops nothing");
    bench.run("a.service", FOREVER).await;
    assert!(!runs(pid) && bench.pid("a.service").await != pid);
    bench.clean_up().await;
}

#[tokio::test(start_paused = true)]
async fn directory_has_one_manager() {
    let bench = Bench::new().await;
    let second = NativeManager::open(NativeConfig::new(bench.path("native"))).await;
    assert!(matches!(second.err(), Some(ServiceError::Unavailable(_))));
    bench.clean_up().await;
}

/// Stores a requested state, as a daemon does right before it ends.
fn ask(dead: &Dead, unit: &str, launched: bool) {
    let requested = serde_json::json!({
        "epoch": 1, "generation": 1, "launched": launched, "triggered": false, "trigger": 0,
        "restart_generation": 0
    });
    let path = dead.path(&format!("native/units/{unit}/requested.json"));
    std::fs::write(path, requested.to_string()).expect("it can be written");
}

#[tokio::test]
async fn waiting_start_after_an_idle_stop_survives_a_crash() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    bench.load("gate.service", &format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n")).await;
    let text = format!(
        "[Unit]\nWants=gate.service\nAfter=gate.service\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo run >>{}'\n",
        bench.path("ran").display()
    );
    bench.try_load("a.service", &text).await.expect("it can be loaded");
    std::fs::write(&gate, "").expect("it can be written");
    bench.start("a.service").await.expect("it runs");
    bench.stop("a.service").await;
    std::fs::remove_file(&gate).expect("it is there");
    let start = bench.begin_start("a.service");
    bench.wait_for_sub("gate.service", "start").await;
    start.abort();
    drop(start.await);
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Launched);
    std::fs::write(&gate, "").expect("it can be written");
    bench.wait_for_lines("ran", 2).await;
    bench.clean_up().await;
}

// Holds: R-2
#[tokio::test]
async fn stored_stop_and_start_apply_to_needed_units() {
    let bench = Bench::new().await;
    for unit in ["old.service", "new.service"] {
        bench.load(unit, FOREVER).await;
    }
    let text = format!(
        "[Unit]\nWants=old.service new.service\nAfter=old.service new.service\n\
         [Service]\n{FOREVER}"
    );
    bench.try_load("web.service", &text).await.expect("it can be loaded");
    for unit in ["old.service", "web.service"] {
        bench.start(unit).await.expect("it starts");
    }
    bench.stop("new.service").await;
    let (old, web) = (bench.pid("old.service").await, bench.pid("web.service").await);
    let dead = bench.kill().await;
    ask(&dead, "old.service", false);
    ask(&dead, "new.service", true);
    let bench = dead.revive().await;
    bench.wait_for_sub("new.service", "running").await;
    bench.wait_for("old.service", |state| state.active != ActiveState::Active).await;
    wait_until("it has ended", async || !runs(old)).await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("new.service", "running").await;
    assert_ne!(bench.state("old.service").await.active, ActiveState::Active);
    assert_eq!(bench.pid("web.service").await, web, "a unit that only wants them keeps running");
    bench.clean_up().await;
}
