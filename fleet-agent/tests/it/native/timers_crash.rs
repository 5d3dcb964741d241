//! Timers after the end of their daemon.

use std::path::Path;
use std::process::{Command, Stdio};

use fleet_agent::{NativeConfig, NativeManager, ServiceManager};
use fleet_core::{ActiveState, Epoch, Generation, TargetState};
use fleet_unitfile::UnitFile;

use super::timers::{NO_LIMIT, runs};
use crate::support::{Bench, name, undated, wait_until};

#[tokio::test]
async fn pending_timer_start_is_applied_by_the_next_daemon() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    let dead = bench.kill().await;
    let requested = dead.path("native/units/a.timer/requested.json");
    let text = std::fs::read_to_string(&requested).expect("it can be read");
    let launched = text.replace("\"launched\":false", "\"launched\":true");
    assert_ne!(launched, text);
    std::fs::write(&requested, launched).expect("it can be written");
    let bench = dead.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.clean_up().await;
}

#[tokio::test]
async fn timer_state_survives_a_crash() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    bench.manager.start(&name("a.timer"), Generation(3)).await.expect("it starts");
    let before = bench.get("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(undated(bench.get("a.timer").await), undated(before));
    bench.stop("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    assert_eq!(bench.get("a.timer").await.known.requested, TargetState::Loaded);
    bench.manager.unload(&name("a.timer")).await.expect("it is unloaded");
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.manager.get(&name("a.timer")).await.expect("the call succeeds"), None);
    bench.clean_up().await;
}

#[tokio::test]
async fn elapse_without_a_daemon_is_caught_up() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=300ms").await;
    bench.start("a.timer").await.expect("it starts");
    let dead = bench.kill().await;
    let due = std::time::Instant::now() + std::time::Duration::from_millis(300);
    wait_until("it is due", async || std::time::Instant::now() >= due).await;
    let bench = dead.revive().await;
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    assert_eq!(runs(&bench.path("ran")), 1);
    bench.clean_up().await;
}

/// Directory of the daemon to kill; set for its process only.
const DAEMON: &str = "FLEET_TEST_TIMER_DAEMON";

/// The daemon of the test below, in its own process. Does nothing as a test.
#[tokio::test]
async fn timer_daemon_to_kill() {
    let Some(directory) = std::env::var_os(DAEMON) else { return };
    let ran = Path::new(&directory).with_file_name("ran").display().to_string();
    let manager = NativeManager::open(NativeConfig::new(directory)).await.expect("it opens");
    let script = format!("echo run >>{ran}");
    let service = format!("[Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n{NO_LIMIT}");
    let timer = "[Timer]\nOnActiveSec=1ms\nOnUnitActiveSec=20ms\n".to_owned();
    for (unit, text) in [("a.service", service), ("a.timer", timer)] {
        let file = UnitFile::parse(text).expect("it is well formed");
        manager.load(&name(unit), &file, Epoch(2)).await.expect("it loads");
    }
    manager.start(&name("a.timer"), Generation(5)).await.expect("it starts");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn killed_daemon_leaves_its_timers() {
    let dead = Bench::new().await.kill().await;
    let mut daemon = Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "native::timers_crash::timer_daemon_to_kill"])
        .env(DAEMON, dead.path("native"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the daemon starts");
    wait_until("the timer elapses", async || runs(&dead.path("ran")) >= 3).await;
    daemon.kill().expect("it can be killed");
    daemon.wait().expect("it ends");
    let bench = dead.revive().await;
    assert_eq!(bench.state("a.timer").await.active, ActiveState::Active);
    assert_eq!(bench.get("a.timer").await.known.generation, Generation(5));
    bench.wait_for_runs(runs(&bench.path("ran")) + 3).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn persistent_timer_restarted_before_its_stamp_elapses_once() {
    let bench = Bench::new().await;
    let stamp = bench.path("native/timers/a.timer");
    std::fs::write(&stamp, "1000").expect("it can be written");
    // No temporary file can be written, so the stamp stays as it was.
    std::fs::create_dir(bench.path("native/timers/a.timer.new")).expect("it can be created");
    bench.load_timer("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    bench.manager.restart(&name("a.timer"), Generation(2)).await.expect("it restarts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "waiting").await;
    assert_eq!(runs(&bench.path("ran")), 1, "it is not caught up twice");
    bench.clean_up().await;
}

/// Loads `a.service`, which waits for a gate on each run.
async fn load_behind_gate(bench: &Bench) {
    let script = format!("until [ -e {} ]; do sleep 0.01; done", bench.path("gate").display());
    let gate = format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n");
    bench.load("gate.service", &gate).await;
    let script = format!("echo run >>{}", bench.path("ran").display());
    let text = format!(
        "[Unit]\nStartLimitIntervalSec=0\nWants=gate.service\nAfter=gate.service\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n"
    );
    bench.try_load("a.service", &text).await.expect("it can be loaded");
}

#[tokio::test]
async fn elapse_of_a_waiting_unit_survives_a_crash() {
    let bench = Bench::new().await;
    load_behind_gate(&bench).await;
    bench.load_timer_alone("OnActiveSec=1ms").await;
    std::fs::write(bench.path("gate"), "").expect("it can be written");
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    std::fs::remove_file(bench.path("gate")).expect("it is there");
    bench.manager.restart(&name("a.timer"), Generation(2)).await.expect("it restarts");
    bench.wait_for_sub("gate.service", "start").await;
    assert_eq!(bench.state("a.service").await.sub, "dead", "it waits");
    let bench = bench.kill().await.revive().await;
    std::fs::write(bench.path("gate"), "").expect("it can be written");
    bench.wait_for_runs(2).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    bench.wait_for_sub("a.service", "dead").await;
    assert_eq!(runs(&bench.path("ran")), 2, "it is made once");
    bench.clean_up().await;
}

#[tokio::test]
async fn pending_elapse_is_applied_by_the_next_daemon() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    bench.start("a.timer").await.expect("it starts");
    let dead = bench.kill().await;
    // The stored state between the elapse and the start of the unit.
    let path = dead.path("native/units/a.timer/run.json");
    let mut record = last_record(&path);
    let timer = &mut record["timer"];
    timer["phase"] = "running".into();
    timer["last"] = timer["since"].clone();
    timer["starting"] = 7.into();
    std::fs::write(&path, format!("{record}\n")).expect("it can be written");
    let bench = dead.revive().await;
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    assert_eq!(runs(&bench.path("ran")), 1, "it is made once");
    bench.clean_up().await;
}

#[tokio::test]
async fn repeated_elapse_starts_no_stopped_unit() {
    let bench = Bench::new().await;
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_sub("b.service", "running").await;
    bench.stop("b.service").await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let dead = bench.kill().await;
    // The stored state before the timer knows the result of its elapse.
    let requested = dead.path("native/units/b.service/requested.json");
    let before = read_json(&requested);
    let path = dead.path("native/units/a.timer/run.json");
    let mut record = last_record(&path);
    let timer = &mut record["timer"];
    (timer["phase"], timer["starting"]) = ("running".into(), before["trigger"].clone());
    std::fs::write(&path, format!("{record}\n")).expect("it can be written");
    let bench = dead.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    assert_eq!(read_json(&requested), before, "nothing is requested again");
    bench.load("b.service", "ExecStart=/bin/sleep 1001\n").await;
    assert_eq!(bench.state("b.service").await.sub, "dead");
    bench.clean_up().await;
}

/// Reads the last line of an append-only record.
pub(super) fn last_record(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("it can be read");
    let last = text.lines().rfind(|line| !line.is_empty()).expect("there is a record");
    serde_json::from_str(last).expect("it is JSON")
}

fn read_json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("it can be read");
    serde_json::from_str(&text).expect("it is JSON")
}
