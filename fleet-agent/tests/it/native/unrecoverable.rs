//! Units that the next supervisor cannot recover: no second run is started.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use fleet_agent::native::{SupervisorConfig, UnitSnapshot};
use fleet_core::graph::{DerivedState, FailureCause, Retry, Settings};
use fleet_core::journal::JournalQuery;

use super::graph::{SLEEP, Stand, graph, supervised, target};
use crate::support::{Home, runs, signal, signal_group, wait_until};

fn stanzas() -> String {
    let edges = "unit: all\ntype: virtual\nprovides: all\nwaits-for: a\nwaits-for: b\n";
    [supervised("a", SLEEP), supervised("b", SLEEP), edges.to_owned()].join("\n")
}

/// Replaces text in the stored state of a unit, as another version might write it.
fn say(records: &Path, unit: &str, before: &str, after: &str) {
    assert_eq!(before.len(), after.len(), "all else stays where it is");
    let text = std::fs::read_to_string(records).expect("it is there");
    let of_unit = format!("\"unit\":\"{unit}\"");
    let line = |line: &str| match line.contains(&of_unit) {
        true => line.replace(before, after),
        false => line.to_owned(),
    };
    let text: String = text.split_inclusive('\n').map(line).collect();
    std::fs::write(records, text).expect("it can be written");
}

const KNOWN: &str = "\"phase\":\"running\"";
const UNKNOWN: &str = "\"phase\":\"resting\"";

/// Returns a supervisor that cannot recover the first of its two units.
async fn with_one_unrecoverable() -> (Stand, u32, u32) {
    let stand = Stand::new(&stanzas(), "all").await;
    let (a, b) = (stand.running("a").await, stand.running("b").await);
    (after_replacing(stand, (KNOWN, UNKNOWN), &stanzas()).await, a, b)
}

/// Starts the next supervisor, after the stored state of the first unit was changed.
async fn after_replacing(stand: Stand, (before, after): (&str, &str), stanzas: &str) -> Stand {
    let Stand { supervisor, home, settings } = stand;
    drop(supervisor);
    say(&home.path("native/runs"), "a", before, after);
    let set_up = |config: &mut SupervisorConfig| config.log_limit = LOG_LIMIT;
    let supervisor = Stand::open_with(&home, graph(stanzas, &settings), &settings, set_up).await;
    let stand = Stand { supervisor, home, settings };
    assert!(is_unrecoverable(&stand.unit("a").await));
    stand
}

const LOG_LIMIT: u64 = 1 << 20;

fn is_unrecoverable(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { cause: FailureCause::Lost, stuck: true, .. })
}

async fn read_again(stand: &Stand, stanzas: &str, settings: &Settings) {
    let again = stand.supervisor.reload(graph(stanzas, settings), settings).await;
    again.expect("the call succeeds");
}

// Holds: R-13
#[tokio::test]
async fn unrecoverable_unit_is_not_started_twice() {
    let (stand, a, b) = with_one_unrecoverable().await;
    assert_eq!(stand.running("b").await, b, "other units are unaffected");
    let problem = stand.unit("a").await.problem.expect("there is one");
    assert!(problem.contains("native/runs") && problem.contains("resting"), "{problem}");
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert!(is_unrecoverable(&stand.unit("a").await) && runs(a));
    stand.supervisor.shutdown().await.expect("stoppable units are stopped");
    assert!(is_unrecoverable(&stand.unit("a").await), "the shutdown returns");
    assert_eq!(stand.home.processes(), [a], "it keeps running, once");
    signal_group(a, "KILL");
}

// Holds: R-13
#[tokio::test]
async fn unit_is_recovered_once_the_obstacle_is_gone() {
    let (stand, a, b) = with_one_unrecoverable().await;
    say(&stand.home.path("native/runs"), "a", UNKNOWN, KNOWN);
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert_eq!((stand.running("a").await, stand.running("b").await), (a, b));
    assert_eq!(stand.unit("a").await.problem, None);
    stand.clean_up().await;
}

// Holds: R-13
#[tokio::test]
async fn unrecoverable_unit_starts_after_a_reset() {
    let (stand, a, _) = with_one_unrecoverable().await;
    signal_group(a, "KILL");
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    assert_ne!(stand.running("a").await, a);
    let stand = stand.again(&stanzas()).await;
    stand.running("a").await;
    stand.clean_up().await;
}

/// Replaces the unit type by one that only another version knows.
const TYPE: (&str, &str) = ("type: foreground-supervised", "type: foreground-supervises");

/// Regression: the current definition, or none, was used instead, so the run was forgotten.
#[tokio::test]
async fn invalid_definition_makes_a_unit_unrecoverable() {
    let without = stanzas().replace("waits-for: a\n", "").replace(&supervised("a", SLEEP), "");
    for files in [stanzas(), without] {
        let stand = Stand::new(&stanzas(), "all").await;
        let a = stand.running("a").await;
        let stand = after_replacing(stand, TYPE, &files).await;
        let problem = stand.unit("a").await.problem.expect("there is one");
        assert!(problem.contains("native/runs") && problem.contains("supervises"), "{problem}");
        read_again(&stand, &stanzas(), &stand.settings).await;
        assert!(is_unrecoverable(&stand.unit("a").await) && runs(a), "it keeps running");
        say(&stand.home.path("native/runs"), "a", TYPE.1, TYPE.0);
        read_again(&stand, &stanzas(), &stand.settings).await;
        assert_eq!(stand.running("a").await, a);
        stand.clean_up().await;
    }
}

/// It has no processes, so starting it is safe.
#[tokio::test]
async fn finished_unit_starts_despite_an_invalid_definition() {
    let never = "exec-start: /bin/false\nrestart: never\n";
    let failing = stanzas().replace(&supervised("a", SLEEP), &supervised("a", never));
    let stand = Stand::new(&failing, "all").await;
    stand
        .wait_for("a", |unit| {
            matches!(unit.report.state, DerivedState::Failed { stuck: false, .. })
        })
        .await;
    let Stand { supervisor, home, settings } = stand;
    drop(supervisor);
    say(&home.path("native/runs"), "a", TYPE.0, TYPE.1);
    let supervisor = Stand::open(&home, graph(&failing, &settings), &settings).await;
    let stand = Stand { supervisor, home, settings };
    assert!(!is_unrecoverable(&stand.unit("a").await));
    read_again(&stand, &stanzas(), &stand.settings).await;
    stand.running("a").await;
    stand.clean_up().await;
}

#[tokio::test]
async fn log_of_an_unrecoverable_unit_is_limited() {
    let home = Home::new();
    let path = |name: &str| home.path(name).display().to_string();
    let (gate, over) = (path("gate"), path("over"));
    let script = format!(
        "echo hello; while ! test -e {gate}; do sleep 0.01; done; yes | head -c 20000000; \
         echo >{over}; exec sleep 1000"
    );
    let writes = supervised("a", &format!("exec-start: /bin/sh -c '{script}'\n"));
    let stand = Stand::new(&writes, "a").await;
    let a = stand.running("a").await;
    let log = stand.home.path("native/logs/a");
    let stored = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("its output is stored", async || stored().contains("hello")).await;
    let stand = after_replacing(stand, (KNOWN, UNKNOWN), &writes).await;
    let unit = stand.unit("a").await.unit;
    let mut journal =
        stand.supervisor.journal(&unit, &JournalQuery::default()).expect("it can be read");
    assert_eq!(journal.next().await.as_deref(), Some("hello"));
    std::fs::write(gate, "").expect("it can be written");
    let taken = || std::fs::metadata(&log).expect("it is there").blocks() * 512;
    let is_over = || Path::new(&over).exists();
    wait_until("its log is short", async || is_over() && taken() < 2 * LOG_LIMIT).await;
    say(&stand.home.path("native/runs"), "a", UNKNOWN, KNOWN);
    read_again(&stand, &writes, &stand.settings).await;
    assert_eq!(stand.running("a").await, a);
    stand.supervisor.journal(&unit, &JournalQuery::default()).expect("it can still be read");
    stand.clean_up().await;
}

/// Regression: it stayed failed, since no unit provided its target for a reset.
#[tokio::test]
async fn unrecoverable_unit_without_file_is_reset_by_name() {
    let (stand, a, b) = with_one_unrecoverable().await;
    let without = stanzas().replace("waits-for: a\n", "").replace(&supervised("a", SLEEP), "");
    read_again(&stand, &without, &stand.settings).await;
    assert!(is_unrecoverable(&stand.unit("a").await));
    signal_group(a, "KILL");
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    let units = stand.supervisor.snapshot().await.expect("the call succeeds").units;
    assert!(units.iter().all(|unit| unit.unit.as_str() != "a"), "no trace is left");
    assert!(!stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert_ne!(stand.running("a").await, a);
    assert_eq!(stand.running("b").await, b);
    stand.clean_up().await;
}

/// Regression: it was retried at once, without end.
#[tokio::test]
async fn new_definition_does_not_restart_an_unrecoverable_unit() {
    let (stand, a, _) = with_one_unrecoverable().await;
    read_again(&stand, &stanzas().replace("sleep 1000", "sleep 2000"), &stand.settings).await;
    let what = stand.unit("a").await.report.state;
    assert!(
        matches!(what, DerivedState::Failed { retry: Retry::Never, stuck: true, .. }),
        "{what:?}"
    );
    stand.supervisor.shutdown().await.expect("stoppable units are stopped");
    signal_group(a, "KILL");
}

/// Regression: the file counted as naming no process, and the process it would have named was
/// killed.
#[tokio::test]
async fn unit_with_unreadable_pid_file_is_unrecoverable() {
    let home = Home::new();
    let (pid, next) = (home.path("pid"), home.path("next"));
    let script = format!(
        "sleep 1000 & echo $$! >{}; sleep 1000 & echo $$! >{}",
        next.display(),
        pid.display()
    );
    let unit = format!(
        "unit: a\ntype: background-pidfile\nprovides: a\npidfile: {}\n\
         exec-start: /bin/sh -c '{script}'\n",
        pid.display()
    );
    let stand = Stand::new(&unit, "a").await;
    let main = stand.running("a").await;
    let Stand { supervisor, home: place, settings } = stand;
    drop(supervisor);
    std::fs::remove_file(&pid).expect("it is there");
    // It can be opened, but not read.
    symlink("/proc/self/mem", &pid).expect("it can be created");
    signal(main, "KILL");
    wait_until("it has ended", async || !runs(main)).await;
    let supervisor = Stand::open(&place, graph(&unit, &settings), &settings).await;
    let stand = Stand { supervisor, home: place, settings };
    let found = stand.unit("a").await;
    assert!(is_unrecoverable(&found), "{found:?}");
    assert!(found.problem.is_some_and(|problem| problem.contains("cannot be read")));
    let other = std::fs::read_to_string(&next).expect("it was written");
    std::fs::rename(&next, &pid).expect("it can be in its place");
    read_again(&stand, &unit, &stand.settings).await;
    assert_eq!(stand.running("a").await.to_string(), other.trim());
    stand.clean_up().await;
}

/// The reset must be stored, since no other state is stored for a unit that is not started.
#[tokio::test]
async fn reset_of_an_unrecoverable_unit_is_stored() {
    let (mut stand, a, _) = with_one_unrecoverable().await;
    signal_group(a, "KILL");
    stand.settings.goal = Some(target("b"));
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    let stand = stand.again(&stanzas()).await;
    assert_eq!(stand.unit("a").await.report.state, DerivedState::Disabled);
    stand.clean_up().await;
}
