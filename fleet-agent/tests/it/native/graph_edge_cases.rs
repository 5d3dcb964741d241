//! Edge cases of the relations between units, with real processes.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use fleet_agent::native::{SupervisorError, UnitSnapshot};
use fleet_core::graph::{Activity, BlockedBy, DerivedState, Settings, WaitReason};

use super::event_table::{does, failed, is, meet, tell, unit, want};
use super::graph::{SLEEP, Stand, graph, supervised, target};
use super::kill_harness::runs_of_units;
use crate::support::{Home, runs, signal, wait_until};

fn all_of(names: &str) -> String {
    format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {names}\n")
}

/// Returns a predicate for a unit that is blocked by these failed targets.
fn blocked_by(names: &[&str]) -> impl Fn(&UnitSnapshot) -> bool {
    let by = names.iter().map(|name| (target(name), BlockedBy::Failed));
    is(DerivedState::Waiting(WaitReason::Blocked(by.collect())))
}

/// The goals change faster than processes can be spawned.
// Holds: X-27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_of_a_thousand_goals_counts() {
    let one =
        |name: &str, more: &str| supervised(name, &format!("env: UNIT={name}\n{SLEEP}{more}"));
    let stanzas = [
        one("base", ""),
        one("a", "depends-on: base\n"),
        one("b", "depends-on: base\n"),
        one("c", ""),
    ];
    let stand = Stand::new(&stanzas.concat(), "a").await;
    for number in 0..1000 {
        want(&stand, ["a", "b", "c"][number % 3]).await;
        if number % 50 == 0 {
            for (unit, runs) in runs_of_units(Path::new(&stand.home.mark())) {
                assert_eq!(runs.len(), 1, "{unit} runs twice: {runs:?}");
            }
        }
    }
    want(&stand, "b").await;
    stand.running("b").await;
    for gone in ["a", "c"] {
        stand.wait_for(gone, is(DerivedState::Disabled)).await;
    }
    let left = runs_of_units(Path::new(&stand.home.mark()));
    assert_eq!(left.keys().collect::<Vec<_>>(), ["b", "base"]);
    assert!(left.values().all(|runs| runs.len() == 1), "{left:?}");
    stand.clean_up().await;
}

// Holds: X-7
#[tokio::test]
async fn flapping_dependency_uses_up_no_attempts_of_its_dependent() {
    let home = Home::new();
    let path = |name: &str| home.path(name).display().to_string();
    let (begun, gate, turns) = (path("begun"), path("gate"), path("turns"));
    // It runs until its dependent has begun to start, and exits once the gate is open.
    let flaps = format!(
        "until [ -e {begun} ]; do sleep 0.005; done; rm {begun}; [ -e {gate} ] || exit 1; \
         exec sleep 1000"
    );
    let starts = format!(
        "echo >>{turns}; touch {begun}; until [ -e {gate} ]; do sleep 0.005; done; echo up; \
         exec sleep 1000"
    );
    let db = format!("restart-delay: 1ms\nrestart-factor: 1\nexec-start: /bin/sh -c '{flaps}'");
    let app = "depends-on: db\nready-grep: ^up$\nrestart-limit: 2\nexec-start: /bin/sh -c";
    let stanzas = supervised("db", &db) + &supervised("app", &format!("{app} '{starts}'"));
    let stand = Stand::new(&stanzas, "app").await;
    wait_until("it was started repeatedly", async || {
        assert!(!failed(&stand.unit("app").await));
        std::fs::read_to_string(&turns).is_ok_and(|turns| turns.len() > 5)
    })
    .await;
    std::fs::write(&gate, "").expect("it can be created");
    stand.running("app").await;
    assert_eq!(stand.unit("app").await.report.attempts, 0, "none of that was its own failure");
    assert!(stand.unit("db").await.report.attempts > 4);
    stand.clean_up().await;
}

// Holds: X-23
#[tokio::test]
async fn start_timeout_breaks_a_hidden_dependency_cycle() {
    let home = Home::new();
    let made = home.path("made").display().to_string();
    let waits = format!("until [ -e {made} ]; do sleep 0.01; done; echo up; exec sleep 1000");
    let first = format!(
        "ready-grep: ^up$\nstart-timeout: 1s\nrestart-delay: 10ms\n\
         exec-start: /bin/sh -c '{waits}'"
    );
    let second = unit("second", "oneshot", &format!("exec-start: /bin/touch {made}"));
    let stanzas = supervised("first", &first) + &second + &all_of("first, second");
    let goal = Some(target("all"));
    let settings = Settings { goal, max_starting: NonZeroU32::new(1), ..Settings::default() };
    let stand = Stand::with(&stanzas, settings, |_| {}).await;
    stand.running("first").await;
    stand.wait_for("second", is(DerivedState::Active(Activity::Exited))).await;
    assert!(stand.unit("first").await.report.attempts > 0, "it was not up in time");
    stand.clean_up().await;
}

// Holds: X-6
#[tokio::test]
async fn lost_milestone_blocks_a_crashed_dependent() {
    let db = unit("db", "foreground-supervised", SLEEP);
    let stanzas = db + &supervised("app", &format!("depends-ms: db\n{SLEEP}"));
    let stand = Stand::new(&stanzas, "app").await;
    let app = stand.running("app").await;
    signal(stand.running("db").await, "KILL");
    stand.wait_for("db", failed).await;
    assert_eq!(stand.running("app").await, app, "it was passed once");
    signal(app, "KILL");
    stand.wait_for("app", blocked_by(&["db"])).await;
    assert!(stand.supervisor.reset_failed(&target("db")).await.expect("the call succeeds"));
    assert_ne!(stand.running("app").await, app);
    stand.clean_up().await;
}

// Holds: X-2
#[tokio::test]
async fn goal_change_within_one_unit_restarts_nothing() {
    let unit = format!("unit: db\ntype: foreground-supervised\nprovides: db, sql\n{SLEEP}");
    let stand = Stand::new(&unit, "db").await;
    let pid = stand.running("db").await;
    assert_eq!(stand.unit("db").await.coincidental, [target("sql")]);
    want(&stand, "sql").await;
    stand.wait_for("db", |unit| unit.coincidental == [target("db")]).await;
    assert_eq!(stand.running("db").await, pid);
    stand.clean_up().await;
}

// Holds: X-3
#[tokio::test]
async fn strongest_of_several_dependency_paths_counts() {
    let base = unit("base", "foreground-supervised", SLEEP)
        .replace("provides: base", "provides: base, same");
    let stanzas = [
        base,
        supervised("hard", &format!("depends-on: base\n{SLEEP}")),
        supervised("both", &format!("depends-ms: base\ndepends-on: same\n{SLEEP}")),
        supervised("once", &format!("depends-ms: base\n{SLEEP}")),
        supervised("soft", &format!("waits-for: base\n{SLEEP}")),
        all_of("hard, both, once, soft"),
    ];
    let stand = Stand::new(&stanzas.concat(), "all").await;
    let before = [stand.running("once").await, stand.running("soft").await];
    let went = [stand.running("hard").await, stand.running("both").await];
    signal(stand.running("base").await, "KILL");
    stand.wait_for("hard", blocked_by(&["base"])).await;
    stand.wait_for("both", blocked_by(&["base", "same"])).await;
    assert!(!went.into_iter().any(runs));
    assert!(stand.unit("all").await.report.degraded);
    assert!(stand.supervisor.reset_failed(&target("same")).await.expect("the call succeeds"));
    stand.running("hard").await;
    stand.running("both").await;
    assert_eq!([stand.running("once").await, stand.running("soft").await], before);
    stand.clean_up().await;
}

// Holds: X-5
#[tokio::test]
async fn waiting_for_a_masked_unit_is_skipped() {
    let stanzas = supervised("m", SLEEP) + &supervised("a", &format!("waits-for: m\n{SLEEP}"));
    let (goal, mask) = (Some(target("a")), BTreeSet::from([target("m")]));
    let settings = Settings { goal, mask, ..Settings::default() };
    let stand = Stand::with(&stanzas, settings, |_| {}).await;
    stand.running("a").await;
    let masked = stand.unit("m").await;
    assert_eq!((masked.report.state, masked.main_pid), (DerivedState::Masked, None));
    assert_eq!(stand.unit("a").await.degraded_by, [target("m")]);
    stand.clean_up().await;
}

// Holds: X-28
#[tokio::test]
async fn reload_during_a_shutdown_starts_nothing() {
    let home = Home::new();
    let slow = unit("slow", "foreground-supervised", &does("trap TERM|hold a|hear|hold b", &home));
    let quick = supervised("quick", SLEEP);
    let before = slow + &quick + &all_of("slow, quick");
    let more = before.replace("slow, quick", "slow, quick, new") + &supervised("new", SLEEP);
    let stand = Stand::new(&before, "all").await;
    let (pid, _) = (stand.running("quick").await, meet(&home, "a").await);
    tell(&home, "a", "go");
    let read_again = async {
        meet(&home, "b").await;
        wait_until("a process that exits at once is gone", async || !runs(pid)).await;
        let graph = graph(&more, &stand.settings);
        stand.supervisor.reload(graph, &stand.settings).await.expect("it has the goal");
        for name in ["quick", "new"] {
            stand.wait_for(name, is(DerivedState::Disabled)).await;
        }
        tell(&home, "b", "0");
    };
    let (ended, ()) = tokio::join!(stand.supervisor.shutdown(), read_again);
    ended.expect("all units stop");
    assert_eq!(stand.home.processes(), [0; 0], "something was started");
    let goal = stand.supervisor.snapshot().await.expect("the call succeeds").desired.goal;
    assert_eq!(goal, Some(target("all")), "the goal is kept for the next supervisor");
}

#[tokio::test]
async fn goal_set_during_a_shutdown_starts_nothing() {
    let home = Home::new();
    let slow = unit("slow", "foreground-supervised", &does("trap TERM|hold a|hear|hold b", &home));
    let stand = Stand::new(&(slow + &supervised("new", SLEEP)), "slow").await;
    meet(&home, "a").await;
    tell(&home, "a", "go");
    let choose = async || {
        let chosen = stand.supervisor.set_goal(Some(target("new")), BTreeSet::new()).await;
        assert!(matches!(chosen, Err(SupervisorError::ShuttingDown)), "{chosen:?}");
    };
    let chosen_meanwhile = async {
        meet(&home, "b").await;
        choose().await;
        tell(&home, "b", "0");
    };
    let (ended, ()) = tokio::join!(stand.supervisor.shutdown(), chosen_meanwhile);
    ended.expect("all units stop");
    choose().await;
    assert_eq!(stand.unit("new").await.main_pid, None);
    assert_eq!(stand.home.processes(), [0; 0], "something was started");
    let goal = stand.supervisor.snapshot().await.expect("the call succeeds").desired.goal;
    assert_eq!(goal, Some(target("slow")), "the goal is kept for the next supervisor");
}

/// Regression: the reload restarted the unit.
#[tokio::test]
async fn new_stop_command_applies_to_the_running_unit() {
    let home = Home::new();
    let mark = home.path("stopped");
    let stand = Stand::new(&supervised("a", SLEEP), "a").await;
    let pid = stand.running("a").await;
    let stop = format!("exec-stop: /bin/touch {}\n{SLEEP}", mark.display());
    let changed = supervised("a", &stop);
    let new = graph(&changed, &stand.settings);
    stand.supervisor.reload(new, &stand.settings).await.expect("it has the goal");
    assert_eq!(stand.running("a").await, pid);
    // The next supervisor reads the new definition, too.
    let stand = stand.again(&supervised("a", SLEEP)).await;
    assert_eq!(stand.running("a").await, pid);
    let stand = stand.again(&changed).await;
    assert_eq!(stand.running("a").await, pid);
    stand.clean_up().await;
    assert!(mark.exists(), "the new stop command did not run");
}

/// Regression: the goal was changed although the call failed, and changed back at the next start.
#[tokio::test]
async fn goal_that_cannot_be_stored_is_not_chosen() {
    let units = ["a", "b"].map(|name| supervised(name, SLEEP)).concat();
    let stand = Stand::new(&units, "a").await;
    let pid = stand.running("a").await;
    // No file can replace a directory.
    std::fs::create_dir_all(stand.home.path("native/targets.json/full")).expect("it can be made");
    let failed = stand.supervisor.set_goal(Some(target("b")), BTreeSet::new()).await;
    assert!(matches!(failed, Err(SupervisorError::Service(_))), "{failed:?}");
    assert_eq!(stand.unit("b").await.report.state, DerivedState::Disabled);
    assert_eq!(stand.running("a").await, pid);
    std::fs::remove_dir_all(stand.home.path("native/targets.json")).expect("it is there");
    stand.clean_up().await;
}
