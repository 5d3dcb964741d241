//! The end of all units of fleet: what is written of it and when, and who comes too late.

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

/// A service whose stop goes on until there is such a file.
fn slow(gate: &Path) -> String {
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    format!("{FOREVER}ExecStop=/bin/sh -c '{wait}'\n")
}

impl Bench {
    fn begin_shutdown(&self) -> JoinHandle<Result<(), ServiceError>> {
        let manager = Arc::clone(&self.manager);
        tokio::spawn(async move { manager.shutdown().await })
    }

    fn asked(&self, unit: &str) -> String {
        let file = self.path(&format!("native/units/{unit}/requested.json"));
        std::fs::read_to_string(file).expect("it was loaded")
    }
}

/// Ends what goes on of a shutdown, as the end of its process would.
async fn break_off(ends: JoinHandle<Result<(), ServiceError>>) {
    ends.abort();
    drop(ends.await);
}

#[tokio::test]
async fn who_asks_for_a_start_while_all_end_is_refused_and_nothing_comes_of_it_later() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    bench.run("slow.service", &slow(&gate)).await;
    bench.load("late.service", FOREVER).await;
    bench.try_load("late.timer", "[Timer]\nOnActiveSec=1h\n").await.expect("it can be loaded");
    let before = ["late.service", "late.timer"].map(|unit| bench.asked(unit));
    let ends = bench.begin_shutdown();
    bench.wait_for_sub("slow.service", "stop").await;
    for unit in ["late.service", "late.timer", "slow.service"].map(name) {
        let started = bench.manager.start(&unit, Generation(2)).await;
        let restarted = bench.manager.restart(&unit, Generation(3)).await;
        for refused in [started, restarted] {
            let told = refused.expect_err("it comes too late").to_string();
            assert!(told.contains("all units are being ended"), "{told}");
        }
    }
    assert_eq!(["late.service", "late.timer"].map(|unit| bench.asked(unit)), before);
    break_off(ends).await;
    let bench = bench.kill().await.revive().await;
    std::fs::write(gate, "").expect("it can be made");
    bench.wait_for("slow.service", is_down).await;
    for unit in ["slow.service", "late.service", "late.timer"] {
        assert!(is_down(&bench.state(unit).await), "{unit} was started");
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Loaded, "{unit}");
    }
    bench.clean_up().await;
}

/// A pipe in the way of the record of a unit: who writes it waits until this is dropped.
struct Held(PathBuf);

impl Held {
    fn record_of(bench: &Bench, unit: &str) -> Self {
        let aside = bench.path(&format!("native/units/{unit}/requested.json.new"));
        mknodat(CWD, &aside, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be made");
        Self(aside)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nothing is to take its place, so that what was held fails.
        let away = self.0.with_extension("away");
        std::fs::rename(&self.0, &away).expect("it is there");
        open(&away, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).expect("it can be opened");
    }
}

/// The records of hundreds of units kept the first of them waiting for seconds.
#[tokio::test]
async fn units_are_told_to_end_before_that_is_written_of_any_and_the_next_daemon_knows_it() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    bench.run("slow.service", &slow(&gate)).await;
    bench.run("quick.service", FOREVER).await;
    let pid = bench.pid("quick.service").await;
    let held = ["slow.service", "quick.service"].map(|unit| Held::record_of(&bench, unit));
    let ends = bench.begin_shutdown();
    bench.wait_for("quick.service", is_down).await;
    bench.wait_for_sub("slow.service", "stop").await;
    assert!(!runs(pid));
    for unit in ["slow.service", "quick.service"] {
        assert!(bench.asked(unit).contains("\"launched\":true"), "{unit}: nothing is written yet");
    }
    break_off(ends).await;
    drop(held);
    let bench = bench.kill().await.revive().await;
    std::fs::write(gate, "").expect("it can be made");
    bench.wait_for("slow.service", is_down).await;
    for unit in ["slow.service", "quick.service"] {
        assert!(is_down(&bench.state(unit).await), "{unit} was started again");
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Loaded, "{unit}");
    }
    // The end is over: what is asked after it holds.
    bench.start("quick.service").await.expect("it starts");
    let pid = bench.pid("quick.service").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.pid("quick.service").await, pid);
    assert_eq!(bench.get("quick.service").await.known.requested, TargetState::Launched);
    bench.clean_up().await;
}

#[tokio::test]
async fn what_a_timer_elapsed_for_before_the_end_of_all_is_not_made_up_for() {
    let over = "\"starting\":null";
    for has_ended in [false, true] {
        let bench = Bench::new().await;
        let ran = bench.path("ran");
        let service = format!("Type=oneshot\nExecStart=/usr/bin/touch {}\n", ran.display());
        bench.load("a.service", &service).await;
        bench.try_load("a.timer", "[Timer]\nOnActiveSec=1h\n").await.expect("it can be loaded");
        bench.start("a.timer").await.expect("it starts");
        let dead = bench.kill().await;
        let record = dead.path("native/units/a.timer/timer.json");
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
