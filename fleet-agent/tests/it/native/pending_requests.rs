//! Requests that a manager has answered when it is killed: the next one keeps to them, and applies
//! none twice.

use fleet_core::graph::DerivedState;
use fleet_core::{Generation, TargetState};

use super::kill_point::{CrashScenario, RUNNING, decided, is_over, lines, tells};
use crate::support::{Bench, Dead, runs};

/// Starts the next manager, after the previous one has ended right at its last answer.
async fn next_after_end(chosen: CrashScenario, asks: &[&str]) -> Bench {
    chosen.begin(asks).await.wait_for_end().await.revive().await
}

/// Stores the requested state of a unit, as a manager does right before it ends.
fn with_requested(dead: Dead, requested: serde_json::Value) -> Dead {
    let record = dead.path("native/units/a.service/requested.json");
    std::fs::write(record, requested.to_string()).expect("it can be written");
    dead
}

/// Checks that the unit is the process that wrote its process ID last, of this many.
async fn check_last_start(bench: &Bench, unit: &str, file: &str, many: usize) {
    assert_eq!(decided(bench, unit).await, RUNNING);
    let begun = bench.wait_for_lines(file, many).await;
    let pid = bench.pid(unit).await;
    assert_eq!((begun.len(), begun.last()), (many, Some(&pid.to_string())), "{unit} runs on");
    assert!(runs(pid));
}

async fn mask_holds(plain: bool, asks: &[&str], is_masked: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("cache.service", &tells(&chosen, "cache", ""));
    chosen.unit("web.service", &tells(&chosen, "web", "Wants=cache.service\nAfter=cache.service"));
    let bench = next_after_end(chosen, asks).await;
    check_last_start(&bench, "web.service", "web", 1).await;
    if is_masked {
        assert_eq!(decided(&bench, "cache.service").await, DerivedState::Masked);
        assert_eq!(lines(&bench, "cache").len(), 1, "it was started again");
    } else {
        check_last_start(&bench, "cache.service", "cache", 2).await;
    }
    bench.clean_up().await;
}

// Holds: R-12
#[tokio::test]
async fn mask_of_a_stopped_unit_survives_a_kill() {
    let asks = ["start web.service", "await cache", "stop cache.service", "end"];
    mask_holds(false, &asks, true).await;
    mask_holds(true, &asks, true).await;
}

// Holds: R-12
#[tokio::test]
async fn unmask_by_a_start_survives_a_kill() {
    let stop = ["start web.service", "await cache", "stop cache.service"];
    let asks = [&stop[..], &["start cache.service", "end"]].concat();
    mask_holds(false, &asks, false).await;
    mask_holds(true, &asks, false).await;
}

async fn start_is_done_once(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "start a.service"]).await;
    // The call is answered before this is stored.
    living.wait_for_record("a.service", "run.json", "\"generation\":2").await;
    let bench = living.kill().revive().await;
    assert_eq!(bench.get("a.service").await.known.generation, Generation(2));
    check_last_start(&bench, "a.service", "a", 1).await;
    bench.clean_up().await;
}

// Holds: R-5
#[tokio::test]
async fn start_of_an_active_unit_before_a_kill_restarts_nothing() {
    start_is_done_once(false).await;
    start_is_done_once(true).await;
}

async fn stop_is_done_once(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &tells(&chosen, "b", "PartOf=a.service"));
    let stop = ["start a.service", "start b.service", "await b", "stop a.service"];
    let asks = [&stop[..], &["start b.service", "end"]].concat();
    let bench = next_after_end(chosen, &asks).await;
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    assert!(is_over(&bench.state("a.service").await));
    check_last_start(&bench, "b.service", "b", 2).await;
    bench.clean_up().await;
}

// Holds: R-3
#[tokio::test]
async fn applied_stop_stops_nothing_more_after_a_kill() {
    stop_is_done_once(false).await;
    stop_is_done_once(true).await;
}

async fn cancelled_start_stays_cancelled(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    let gate = chosen.path("gate");
    let script = format!("until test -e {}; do sleep 0.01; done", gate.display());
    chosen.unit(
        "gate.service",
        &format!("[Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n"),
    );
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let says = "PartOf=a.service\nWants=gate.service\nAfter=gate.service";
    chosen.unit("b.service", &tells(&chosen, "b", says));
    let asks =
        ["start a.service", "begin start b.service", "await go", "stop a.service", "await never"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_phase("gate.service", "start").await;
    living.make("go");
    living.wait_for_record("a.service", "requested.json", "\"launched\":false").await;
    living.wait_for_phase("a.service", "dead").await;
    let bench = living.kill().revive().await;
    assert_eq!(decided(&bench, "b.service").await, DerivedState::Masked);
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for("gate.service", is_over).await;
    assert_eq!(decided(&bench, "b.service").await, DerivedState::Masked);
    assert_eq!(lines(&bench, "b"), [""; 0], "it was started");
    bench.clean_up().await;
}

// Holds: R-3
#[tokio::test]
async fn start_cancelled_by_another_stop_stays_cancelled() {
    cancelled_start_stays_cancelled(false).await;
    cancelled_start_stays_cancelled(true).await;
}

async fn pending_stop_is_done_once(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &tells(&chosen, "b", "PartOf=a.service"));
    let mut living = chosen.begin(&["start a.service", "start b.service", "await b"]).await;
    for unit in ["a.service", "b.service"] {
        living.wait_for_phase(unit, "running").await;
    }
    let requested = serde_json::json!({
        "epoch": 1, "generation": 1, "launched": false, "triggered": false, "trigger": 0,
        "restart_generation": 0
    });
    let bench = with_requested(living.kill(), requested).revive().await;
    for unit in ["a.service", "b.service"] {
        bench.wait_for(unit, is_over).await;
    }
    bench.start("b.service").await.expect("it starts");
    let bench = bench.kill().await.revive().await;
    check_last_start(&bench, "b.service", "b", 2).await;
    assert!(is_over(&bench.state("a.service").await));
    bench.clean_up().await;
}

// Holds: R-2
#[tokio::test]
async fn pending_stop_is_applied_once() {
    pending_stop_is_done_once(false).await;
    pending_stop_is_done_once(true).await;
}

/// Ends a manager after it has stored a request, and before it applies it.
async fn request_for_active_unit(more: &str, begun: usize) {
    let chosen = CrashScenario::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "await a"]).await;
    living.wait_for_phase("a.service", "running").await;
    let requested = format!(
        "{{\"epoch\": 1, \"generation\": 2, \"launched\": true, \"triggered\": false, \
         \"trigger\": 0{more}}}"
    );
    let requested = serde_json::from_str(&requested).expect("it is well formed");
    let bench = with_requested(living.kill(), requested).revive().await;
    bench.wait_for_lines("a", begun).await;
    bench.wait_for_sub("a.service", "running").await;
    check_last_start(&bench, "a.service", "a", begun).await;
    let bench = bench.kill().await.revive().await;
    check_last_start(&bench, "a.service", "a", begun).await;
    bench.clean_up().await;
}

// Holds: R-5
#[tokio::test]
async fn pending_start_keeps_an_active_unit() {
    request_for_active_unit(", \"restart_generation\": 0", 1).await;
}

// Holds: R-4
#[tokio::test]
async fn pending_restart_restarts_an_active_unit_once() {
    request_for_active_unit(", \"restart_generation\": 2", 2).await;
}

// Holds: R-5
#[tokio::test]
async fn pending_elapse_keeps_an_active_unit() {
    let chosen = CrashScenario::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "await a"]).await;
    living.wait_for_phase("a.service", "running").await;
    let requested = serde_json::json!({
        "epoch": 1, "generation": 1, "launched": true, "triggered": true, "trigger": 5,
        "restart_generation": 0
    });
    let bench = with_requested(living.kill(), requested).revive().await;
    check_last_start(&bench, "a.service", "a", 1).await;
    let bench = bench.kill().await.revive().await;
    check_last_start(&bench, "a.service", "a", 1).await;
    bench.clean_up().await;
}
