//! What a manager has been asked and has answered when it is killed: the next one keeps to it, and
//! does none of it twice.

use fleet_core::graph::DerivedState;
use fleet_core::{Generation, TargetState};

use super::chosen::{Chosen, RUNNING, decided, is_over, lines, tells};
use crate::support::{Bench, Dead, runs};

/// The next manager, after the one before has ended in the moment of its last answer.
async fn after_the_end(chosen: Chosen, asks: &[&str]) -> Bench {
    chosen.begin(asks).await.wait_for_end().await.revive().await
}

/// Writes down what is asked of a unit, as a manager does right before it ends.
fn asked_at_the_end(dead: Dead, asked: serde_json::Value) -> Dead {
    let record = dead.path("native/units/a.service/requested.json");
    std::fs::write(record, asked.to_string()).expect("it can be written");
    dead
}

/// A unit is the one process that has told its number last, of so many.
async fn is_the_last_of(bench: &Bench, unit: &str, file: &str, many: usize) {
    assert_eq!(decided(bench, unit).await, RUNNING);
    let begun = bench.wait_for_lines(file, many).await;
    let pid = bench.pid(unit).await;
    assert_eq!((begun.len(), begun.last()), (many, Some(&pid.to_string())), "{unit} runs on");
    assert!(runs(pid));
}

async fn a_mask_holds(plain: bool, asks: &[&str], is_masked: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("cache.service", &tells(&chosen, "cache", ""));
    chosen.unit("web.service", &tells(&chosen, "web", "Wants=cache.service\nAfter=cache.service"));
    let bench = after_the_end(chosen, asks).await;
    is_the_last_of(&bench, "web.service", "web", 1).await;
    if is_masked {
        assert_eq!(decided(&bench, "cache.service").await, DerivedState::Masked);
        assert_eq!(lines(&bench, "cache").len(), 1, "it was started again");
    } else {
        is_the_last_of(&bench, "cache.service", "cache", 2).await;
    }
    bench.clean_up().await;
}

// Holds: R-12
#[tokio::test]
async fn what_was_stopped_before_the_kill_is_masked_for_the_next_manager() {
    let asks = ["start web.service", "await cache", "stop cache.service", "end"];
    a_mask_holds(false, &asks, true).await;
    a_mask_holds(true, &asks, true).await;
}

// Holds: R-12
#[tokio::test]
async fn what_was_started_after_its_stop_is_not_masked_for_the_next_manager() {
    let stop = ["start web.service", "await cache", "stop cache.service"];
    let asks = [&stop[..], &["start cache.service", "end"]].concat();
    a_mask_holds(false, &asks, false).await;
    a_mask_holds(true, &asks, false).await;
}

async fn a_start_is_done_once(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "start a.service"]).await;
    // It is answered before that is written down.
    living.wait_for_record("a.service", "run.json", "\"generation\":2").await;
    let bench = living.strike().revive().await;
    assert_eq!(bench.get("a.service").await.known.generation, Generation(2));
    is_the_last_of(&bench, "a.service", "a", 1).await;
    bench.clean_up().await;
}

// Holds: R-5
#[tokio::test]
async fn a_start_of_what_was_up_before_the_kill_restarts_nothing_after_it() {
    a_start_is_done_once(false).await;
    a_start_is_done_once(true).await;
}

async fn a_stop_is_done_once(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &tells(&chosen, "b", "PartOf=a.service"));
    let stop = ["start a.service", "start b.service", "await b", "stop a.service"];
    let asks = [&stop[..], &["start b.service", "end"]].concat();
    let bench = after_the_end(chosen, &asks).await;
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    assert!(is_over(&bench.state("a.service").await));
    is_the_last_of(&bench, "b.service", "b", 2).await;
    bench.clean_up().await;
}

// Holds: R-3
#[tokio::test]
async fn a_stop_that_was_done_before_the_kill_ends_nothing_along_after_it() {
    a_stop_is_done_once(false).await;
    a_stop_is_done_once(true).await;
}

async fn what_was_broken_off_stays_so(plain: bool) {
    let chosen = Chosen::new(plain).await;
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
    let bench = living.strike().revive().await;
    assert_eq!(decided(&bench, "b.service").await, DerivedState::Masked);
    std::fs::write(gate, "").expect("it can be made");
    bench.wait_for("gate.service", is_over).await;
    assert_eq!(decided(&bench, "b.service").await, DerivedState::Masked);
    assert_eq!(lines(&bench, "b"), [""; 0], "it was started");
    bench.clean_up().await;
}

// Holds: R-3
#[tokio::test]
async fn a_start_that_a_stop_of_another_has_broken_off_is_not_made_after_the_kill() {
    what_was_broken_off_stays_so(false).await;
    what_was_broken_off_stays_so(true).await;
}

async fn an_owed_stop_is_done_once(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &tells(&chosen, "b", "PartOf=a.service"));
    let mut living = chosen.begin(&["start a.service", "start b.service", "await b"]).await;
    for unit in ["a.service", "b.service"] {
        living.wait_for_phase(unit, "running").await;
    }
    let asked = serde_json::json!({
        "epoch": 1, "generation": 1, "launched": false, "triggered": false, "trigger": 0,
        "restart_generation": 0
    });
    let bench = asked_at_the_end(living.strike(), asked).revive().await;
    for unit in ["a.service", "b.service"] {
        bench.wait_for(unit, is_over).await;
    }
    bench.start("b.service").await.expect("it starts");
    let bench = bench.kill().await.revive().await;
    is_the_last_of(&bench, "b.service", "b", 2).await;
    assert!(is_over(&bench.state("a.service").await));
    bench.clean_up().await;
}

// Holds: R-2
#[tokio::test]
async fn a_stop_that_was_left_to_the_next_manager_is_not_left_to_the_one_after_it() {
    an_owed_stop_is_done_once(false).await;
    an_owed_stop_is_done_once(true).await;
}

/// A manager ends after it has written down what was asked, and before anything comes of it.
async fn what_is_up_is_asked_for(more: &str, begun: usize) {
    let chosen = Chosen::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "await a"]).await;
    living.wait_for_phase("a.service", "running").await;
    let asked = format!(
        "{{\"epoch\": 1, \"generation\": 2, \"launched\": true, \"triggered\": false, \
         \"trigger\": 0{more}}}"
    );
    let asked = serde_json::from_str(&asked).expect("it is well formed");
    let bench = asked_at_the_end(living.strike(), asked).revive().await;
    bench.wait_for_lines("a", begun).await;
    bench.wait_for_sub("a.service", "running").await;
    is_the_last_of(&bench, "a.service", "a", begun).await;
    let bench = bench.kill().await.revive().await;
    is_the_last_of(&bench, "a.service", "a", begun).await;
    bench.clean_up().await;
}

// Holds: R-5
#[tokio::test]
async fn what_is_up_when_its_start_was_only_written_down_is_not_started_anew() {
    what_is_up_is_asked_for(", \"restart_generation\": 0", 1).await;
}

// Holds: R-4
#[tokio::test]
async fn what_is_up_when_its_restart_was_only_written_down_is_started_anew_once() {
    what_is_up_is_asked_for(", \"restart_generation\": 2", 2).await;
}

// Holds: R-5
#[tokio::test]
async fn what_is_up_when_its_timer_has_elapsed_is_not_started_anew_by_the_next_manager() {
    let chosen = Chosen::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    let mut living = chosen.begin(&["start a.service", "await a"]).await;
    living.wait_for_phase("a.service", "running").await;
    let asked = serde_json::json!({
        "epoch": 1, "generation": 1, "launched": true, "triggered": true, "trigger": 5,
        "restart_generation": 0
    });
    let bench = asked_at_the_end(living.strike(), asked).revive().await;
    is_the_last_of(&bench, "a.service", "a", 1).await;
    let bench = bench.kill().await.revive().await;
    is_the_last_of(&bench, "a.service", "a", 1).await;
    bench.clean_up().await;
}
