//! Operations that a supervisor has begun and not finished when it ends, continued by the next one.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use fleet_agent::native::{SupervisorConfig, UnitSnapshot};
use fleet_core::graph::{DerivedState, Settings};

use super::graph::{Stand, graph, supervised, target};
use super::helper::stanza_with_steps;
use crate::support::{Home, hasty, runs, signal_group, wait_until};

const STOPS: &str = "\"phase\":\"stop-sigterm\"";

/// Returns a unit that writes a line when it begins and when it is over. It ignores `SIGTERM`,
/// exits with a failure, and is not restarted.
fn stubborn(place: &Home) -> String {
    let (begun, over) = (place.path("begun"), place.path("over"));
    let (begun, over) = (begun.display(), over.display());
    supervised(
        "a",
        &format!(
            "stop-timeout: 1h\nrestart: never\n\
             exec-start: /bin/sh -c 'trap \"\" TERM; echo $$$$ >>{begun}; \
             while :; do sleep 1000; done'\n\
             exec-stop-post: /bin/sh -c 'echo over >>{over}; exit 1'"
        ),
    )
}

/// Starts a supervisor with the goal `a`, with control groups or without.
async fn open(home: Home, stanzas: &str, plain: bool) -> Stand {
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    let set_up = |config: &mut SupervisorConfig| config.control_groups = !plain;
    let supervisor = Stand::open_with(&home, graph(stanzas, &settings), &settings, set_up).await;
    Stand { supervisor, home, settings }
}

/// Starts the next supervisor once the current one has stored this text last.
async fn after(stand: Stand, stanzas: &str, plain: bool, text: &str) -> Stand {
    let record = stand.home.path("native/runs");
    let read = || std::fs::read_to_string(&record).unwrap_or_default();
    let is_last = async || read().lines().next_back().is_some_and(|line| line.contains(text));
    wait_until(&format!("{text} is written down"), is_last).await;
    let Stand { supervisor, home, .. } = stand;
    drop(supervisor);
    open(home, stanzas, plain).await
}

async fn wait_for_lines(path: &Path, many: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until(&format!("{many} lines"), async || read().matches('\n').count() >= many).await;
    read().lines().map(str::to_owned).collect()
}

fn stops(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Stopping(_))
}

async fn restart_is_finished_once(plain: bool) {
    let home = Home::new();
    let stanzas = stubborn(&home);
    let stand = open(home, &stanzas, plain).await;
    let path = |name: &str| stand.home.path(name);
    let (begun, over) = (path("begun"), path("over"));
    wait_for_lines(&begun, 1).await;
    let before = stand.running("a").await;
    assert!(stand.supervisor.restart(&target("a")).await.expect("the call succeeds"));
    let stand = after(stand, &stanzas, plain, STOPS).await;
    assert!(stops(&stand.unit("a").await) && runs(before), "it stops first");
    signal_group(before, "KILL");
    let lines = wait_for_lines(&begun, 2).await;
    let pid = stand.running("a").await;
    assert_eq!((lines.len(), lines.last()), (2, Some(&pid.to_string())));
    assert_eq!(wait_for_lines(&over, 1).await.len(), 1);
    stand.supervisor.kill_all().await.expect("the call succeeds");
    stand.clean_up().await;
}

// Holds: R-4
#[tokio::test]
async fn interrupted_restart_is_finished_once() {
    restart_is_finished_once(false).await;
    restart_is_finished_once(true).await;
}

async fn stop_is_finished_once(plain: bool) {
    let home = Home::new();
    let stanzas = stubborn(&home);
    let stand = open(home, &stanzas, plain).await;
    let path = |name: &str| stand.home.path(name);
    let (begun, over) = (path("begun"), path("over"));
    wait_for_lines(&begun, 1).await;
    let pid = stand.running("a").await;
    stand.supervisor.set_goal(None, BTreeSet::new()).await.expect("the call succeeds");
    let stand = after(stand, &stanzas, plain, STOPS).await;
    assert!(stops(&stand.unit("a").await) && runs(pid), "it stops");
    signal_group(pid, "KILL");
    stand.wait_for("a", |unit| unit.report.state == DerivedState::Disabled).await;
    assert_eq!(wait_for_lines(&over, 1).await.len(), 1);
    assert_eq!(wait_for_lines(&begun, 1).await.len(), 1, "it was started again");
    stand.clean_up().await;
}

// Holds: R-1
#[tokio::test]
async fn interrupted_stop_is_finished_once() {
    stop_is_finished_once(false).await;
    stop_is_finished_once(true).await;
}

async fn pid_file_is_awaited(plain: bool) {
    let home = Home::new();
    let path = |name: &str| home.path(name).display().to_string();
    let (pid, gate, launched) = (path("pid"), path("gate"), home.path("launched"));
    let stanzas = format!(
        "unit: a\ntype: background-pidfile\nprovides: a\npidfile: {pid}\nrestart: never\n\
         exec-start-pre: /bin/sh -c 'echo 1 >>{}'\n{}\n",
        launched.display(),
        stanza_with_steps(&format!("leave 0|await {gate}|pidfile {pid}|sleep")),
    );
    let stand = open(home, &stanzas, plain).await;
    let stand = after(stand, &stanzas, plain, "\"awaits_main\":true").await;
    assert_eq!(stand.unit("a").await.report.state, DerivedState::Starting);
    std::fs::write(&gate, "").expect("it can be created");
    let main = stand.running("a").await;
    assert_eq!(wait_for_lines(Path::new(&pid), 1).await, [main.to_string()]);
    assert_eq!(wait_for_lines(&launched, 1).await.len(), 1, "it was launched twice");
    stand.clean_up().await;
}

// Holds: R-8
#[tokio::test]
async fn wait_for_the_pid_file_is_continued() {
    pid_file_is_awaited(false).await;
    pid_file_is_awaited(true).await;
}

/// Returns a unit that is ready once the gate for this run is opened.
fn notifying_unit(home: &Home) -> String {
    let (begun, gate) = (home.path("begun"), home.path("gate"));
    let script = format!(
        "echo 1 >>{begun}; gate={gate}$(wc -l <{begun}); \
         until test -e $gate; do sleep 0.01; done; echo ready; exec sleep 1000",
        begun = begun.display(),
        gate = gate.display()
    );
    let script = script.replace('$', "$$");
    supervised("a", &format!("ready-grep: ^ready$\nexec-start: /bin/sh -c '{script}'"))
}

// Holds: R-9
#[tokio::test]
async fn readiness_message_reaches_the_next_supervisor() {
    let home = Home::new();
    let other = supervised("b", "exec-start: /bin/sleep 1000") + "waits-for: a\n";
    let stanzas = notifying_unit(&home) + &other;
    std::fs::write(home.path("gate1"), "").expect("it can be created");
    let stand = open(home, &stanzas, false).await;
    stand.running("a").await;
    assert!(stand.supervisor.restart(&target("a")).await.expect("the call succeeds"));
    wait_for_lines(&stand.home.path("begun"), 2).await;
    let stand = after(stand, &stanzas, false, "\"phase\":\"start\"").await;
    // Messages of an earlier run do not count, and the timeout is now.
    stand
        .supervisor
        .set_goal(Some(target("a")), BTreeSet::from([target("b")]))
        .await
        .expect("both");
    wait_until("the other is starting", async || {
        stand.unit("b").await.report.state != DerivedState::Disabled
    })
    .await;
    assert_eq!(stand.unit("a").await.report.state, DerivedState::Starting);
    std::fs::write(stand.home.path("gate2"), "").expect("it can be created");
    stand.running("b").await;
    stand.running("a").await;
    assert_eq!(wait_for_lines(&stand.home.path("begun"), 2).await.len(), 2);
    stand.clean_up().await;
}

// Holds: R-9
#[tokio::test]
async fn ready_wait_starts_again_with_the_next_supervisor() {
    let stanzas =
        supervised("a", "ready-wait: 60s\nstart-timeout: 1h\nexec-start: /bin/sleep 1000");
    let stand = open(Home::new(), &stanzas, false).await;
    stand.wait_for("a", |unit| unit.main_pid.is_some()).await;
    let before = stand.unit("a").await;
    assert_eq!(before.report.state, DerivedState::Starting);
    let Stand { supervisor, home, settings } = stand;
    drop(supervisor);
    // A second lasts a hundred seconds for the next supervisor.
    let lock = File::open(home.path("native/lock")).expect("it is there");
    wait_until("it has detached", async || lock.try_lock().is_ok()).await;
    drop(lock);
    let set_up = |config: &mut SupervisorConfig| config.clock = hasty();
    let supervisor = Stand::open_with(&home, graph(&stanzas, &settings), &settings, set_up).await;
    let stand = Stand { supervisor, home, settings };
    assert_eq!(Some(stand.running("a").await), before.main_pid);
    stand.clean_up().await;
}
