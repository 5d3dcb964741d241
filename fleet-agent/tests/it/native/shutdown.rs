//! Shutdown of all units of fleet: its stored state, and calls that come too late.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::{ActiveState, Generation, SystemdState, TargetState};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use tokio::task::JoinHandle;

use crate::support::{Bench, name, runs, wait_until};

const FOREVER: &str = "ExecStart=/bin/sleep 1000\n";

fn is_down(state: &SystemdState) -> bool {
    state.active == ActiveState::Inactive
}

/// Returns a service whose stop lasts until a file exists.
fn slow(gate: &Path) -> String {
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    format!("{FOREVER}ExecStop=/bin/sh -c '{wait}'\n")
}

impl Bench {
    fn begin_shutdown(&self) -> JoinHandle<Result<(), ServiceError>> {
        let manager = Arc::clone(&self.manager);
        tokio::spawn(async move { manager.shutdown().await })
    }

    fn requested_state(&self, unit: &str) -> String {
        let file = self.path(&format!("native/units/{unit}/requested.json"));
        std::fs::read_to_string(file).expect("it was loaded")
    }
}

/// Aborts a shutdown, as the end of its process would.
async fn abort_shutdown(ends: JoinHandle<Result<(), ServiceError>>) {
    ends.abort();
    drop(ends.await);
}

#[tokio::test]
async fn start_during_a_shutdown_is_refused_for_good() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    bench.run("slow.service", &slow(&gate)).await;
    bench.load("late.service", FOREVER).await;
    bench.try_load("late.timer", "[Timer]\nOnActiveSec=1h\n").await.expect("it can be loaded");
    let before = ["late.service", "late.timer"].map(|unit| bench.requested_state(unit));
    let ends = bench.begin_shutdown();
    bench.wait_for_sub("slow.service", "stop").await;
    for unit in ["late.service", "late.timer", "slow.service"].map(name) {
        let started = bench.manager.start(&unit, Generation(2)).await;
        let restarted = bench.manager.restart(&unit, Generation(3)).await;
        for refused in [started, restarted] {
            let message = refused.expect_err("the units are shutting down").to_string();
            assert!(message.contains("all units are shutting down"), "{message}");
        }
    }
    assert_eq!(["late.service", "late.timer"].map(|unit| bench.requested_state(unit)), before);
    abort_shutdown(ends).await;
    let bench = bench.kill().await.revive().await;
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for("slow.service", is_down).await;
    for unit in ["slow.service", "late.service", "late.timer"] {
        assert!(is_down(&bench.state(unit).await), "{unit} was started");
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Loaded, "{unit}");
    }
    bench.clean_up().await;
}

/// A FIFO in place of a stored file: a write to it blocks until this is dropped.
struct BlockedRecord(PathBuf);

impl BlockedRecord {
    fn record_of(bench: &Bench, unit: &str) -> Self {
        let aside = bench.path(&format!("native/units/{unit}/requested.json.new"));
        mknodat(CWD, &aside, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("it can be created");
        Self(aside)
    }
}

impl Drop for BlockedRecord {
    fn drop(&mut self) {
        // The path is moved away, so that the blocked write fails.
        let away = self.0.with_extension("away");
        std::fs::rename(&self.0, &away).expect("it is there");
        open(&away, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).expect("it can be opened");
    }
}

/// Regression: the writes for hundreds of units delayed the first stop for seconds.
#[tokio::test]
async fn shutdown_stops_units_before_storing_it_for_each() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    bench.run("slow.service", &slow(&gate)).await;
    bench.run("quick.service", FOREVER).await;
    let pid = bench.pid("quick.service").await;
    let held = ["slow.service", "quick.service"].map(|unit| BlockedRecord::record_of(&bench, unit));
    let ends = bench.begin_shutdown();
    bench.wait_for("quick.service", is_down).await;
    bench.wait_for_sub("slow.service", "stop").await;
    assert!(!runs(pid));
    for unit in ["slow.service", "quick.service"] {
        assert!(
            bench.requested_state(unit).contains("\"launched\":true"),
            "{unit}: nothing is written yet"
        );
    }
    abort_shutdown(ends).await;
    drop(held);
    let bench = bench.kill().await.revive().await;
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for("slow.service", is_down).await;
    for unit in ["slow.service", "quick.service"] {
        assert!(is_down(&bench.state(unit).await), "{unit} was started again");
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Loaded, "{unit}");
    }
    // The shutdown is over, so later requests hold.
    bench.start("quick.service").await.expect("it starts");
    let pid = bench.pid("quick.service").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.pid("quick.service").await, pid);
    assert_eq!(bench.get("quick.service").await.known.requested, TargetState::Launched);
    bench.clean_up().await;
}

#[tokio::test]
async fn shutdown_cancels_a_pending_elapse() {
    let over = "\"starting\":null";
    for has_ended in [false, true] {
        let bench = Bench::new().await;
        let ran = bench.path("ran");
        let service = format!("Type=oneshot\nExecStart=/usr/bin/touch {}\n", ran.display());
        bench.load("a.service", &service).await;
        bench.try_load("a.timer", "[Timer]\nOnActiveSec=1h\n").await.expect("it can be loaded");
        bench.start("a.timer").await.expect("it starts");
        let dead = bench.kill().await;
        let record = dead.path("native/units/a.timer/run.json");
        let known = std::fs::read_to_string(&record).expect("it was started");
        let elapsed = known.replace(over, "\"starting\":5");
        assert_ne!(elapsed, known);
        std::fs::write(&record, elapsed).expect("it can be written");
        if has_ended {
            std::fs::write(dead.path("native/shutdown"), "").expect("it can be written");
        }
        let bench = dead.revive().await;
        let is_over = || std::fs::read_to_string(&record).is_ok_and(|it| it.contains(over));
        wait_until("nothing is left to start", async || is_over()).await;
        let is_stopped = is_down(&bench.state("a.timer").await);
        assert_eq!((ran.exists(), is_stopped), (!has_ended, has_ended));
        bench.clean_up().await;
    }
}
