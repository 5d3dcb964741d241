//! Counters of consecutive ends and failures, after a recovery.

use fleet_agent::native::UnitSnapshot;
use fleet_core::graph::{DerivedState, Retry};

use super::graph::{SLEEP, Stand, graph, supervised};
use crate::support::{Home, signal};

fn waits_for_its_next_try(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { retry: Retry::At(_), .. })
}

/// Kills the main process of `a`, and waits for the next one.
async fn fail_once(stand: &Stand) {
    let before = stand.running("a").await;
    signal(before, "KILL");
    stand.wait_for("a", |unit| unit.main_pid.is_some_and(|pid| pid != before)).await;
    stand.running("a").await;
}

/// Regression: each successful exit counted as a failure, so that the next one hit the limit.
#[tokio::test]
async fn successful_exits_are_no_failures_after_a_recovery() {
    let home = Home::new();
    let stanzas = supervised(
        "a",
        &format!(
            "success-exit: 0\nrestart: always\nrestart-delay: 1ms\nrestart-limit: 2\n\
             restart-reset: 1h\n\
             exec-start: /bin/sh -c 'echo >>{0}; case $$(wc -l <{0}) in [1-4]) exit 0;; \
             5) exit 1;; *) exec sleep 1000;; esac'",
            home.path("starts").display()
        ),
    );
    let stand = Stand::new(&stanzas, "a").await;
    let is_sixth = |unit: &UnitSnapshot| unit.report.attempts == 5;
    stand.wait_for("a", is_sixth).await;
    stand.running("a").await;
    let stand = stand.again(&stanzas).await;
    let state = stand.unit("a").await.report;
    assert_eq!((state.attempts, state.failures), (5, 1));
    fail_once(&stand).await;
    stand.clean_up().await;
}

#[tokio::test]
async fn cleared_failures_do_not_count_after_a_recovery() {
    let patient = supervised("a", &format!("restart-limit: 2\nrestart-reset: 0\n{SLEEP}"));
    let mut stand = Stand::new(&patient, "a").await;
    for _ in 0..4 {
        fail_once(&stand).await;
    }
    stand = stand.again(&patient).await;
    let state = stand.unit("a").await.report;
    assert_eq!((state.attempts, state.failures), (1, 1), "each was up for long");
    let later = patient.replace("10ms", "1h");
    let again = stand.supervisor.reload(graph(&later, &stand.settings), &stand.settings).await;
    again.expect("the call succeeds");
    signal(stand.running("a").await, "KILL");
    let before = stand.wait_for("a", waits_for_its_next_try).await.report;
    stand = stand.again(&later).await;
    let after = stand.unit("a").await;
    assert!(waits_for_its_next_try(&after));
    assert_eq!((after.report.attempts, after.report.failures), (before.attempts, before.failures));
    assert_eq!((before.attempts, before.failures), (1, 1));
    stand.clean_up().await;
}
