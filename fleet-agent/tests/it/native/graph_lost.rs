//! Units that the next supervisor cannot take back: none is started beside what may run of it.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use fleet_agent::{JournalQuery, SupervisorConfig, UnitSnapshot};
use fleet_core::graph::{DerivedState, FailureCause, Retry, Settings};

use super::graph::{SLEEP, Stand, graph, supervised, target};
use crate::support::{Home, runs, signal, signal_group, wait_until};

fn stanzas() -> String {
    let edges = "unit: all\ntype: virtual\nprovides: all\nwaits-for: a\nwaits-for: b\n";
    [supervised("a", SLEEP), supervised("b", SLEEP), edges.to_owned()].join("\n")
}

/// Says of a unit what another version would say where this one says that.
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

/// The supervisor after one that ran two units, of which it cannot take the first back.
async fn with_one_lost() -> (Stand, u32, u32) {
    let stand = Stand::new(&stanzas(), "all").await;
    let (a, b) = (stand.running("a").await, stand.running("b").await);
    (after_one_that_said(stand, (KNOWN, UNKNOWN), &stanzas()).await, a, b)
}

/// The next supervisor, to which the one before has said something else of the first unit.
async fn after_one_that_said(stand: Stand, (before, after): (&str, &str), stanzas: &str) -> Stand {
    let Stand { supervisor, home, settings } = stand;
    drop(supervisor);
    say(&home.path("native/runs"), "a", before, after);
    let set_up = |config: &mut SupervisorConfig| config.log_limit = LOG_LIMIT;
    let supervisor = Stand::open_with(&home, graph(stanzas, &settings), &settings, set_up).await;
    let stand = Stand { supervisor, home, settings };
    assert!(is_lost(&stand.unit("a").await));
    stand
}

const LOG_LIMIT: u64 = 1 << 20;

fn is_lost(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { cause: FailureCause::Lost, stuck: true, .. })
}

async fn read_again(stand: &Stand, stanzas: &str, settings: &Settings) {
    let again = stand.supervisor.reload(graph(stanzas, settings), settings).await;
    again.expect("nothing is wrong with it");
}

// Holds: R-13
#[tokio::test]
async fn a_unit_that_cannot_be_taken_back_is_not_started_beside_what_runs() {
    let (stand, a, b) = with_one_lost().await;
    assert_eq!(stand.running("b").await, b, "it harms no other");
    let problem = stand.unit("a").await.problem.expect("there is one");
    assert!(problem.contains("native/runs") && problem.contains("resting"), "{problem}");
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert!(is_lost(&stand.unit("a").await) && runs(a));
    stand.supervisor.shutdown().await.expect("what can be stopped is");
    assert!(is_lost(&stand.unit("a").await), "who ends the others hears of it");
    assert_eq!(stand.home.processes(), [a], "it runs on, once");
    signal_group(a, "KILL");
}

// Holds: R-13
#[tokio::test]
async fn a_unit_that_could_not_be_taken_back_is_once_the_reason_is_gone() {
    let (stand, a, b) = with_one_lost().await;
    say(&stand.home.path("native/runs"), "a", UNKNOWN, KNOWN);
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert_eq!((stand.running("a").await, stand.running("b").await), (a, b));
    assert_eq!(stand.unit("a").await.problem, None);
    stand.clean_up().await;
}

// Holds: R-13
#[tokio::test]
async fn a_unit_that_could_not_be_taken_back_starts_once_somebody_resets_it() {
    let (stand, a, _) = with_one_lost().await;
    signal_group(a, "KILL");
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("it answers"));
    assert_ne!(stand.running("a").await, a);
    let stand = stand.again(&stanzas()).await;
    stand.running("a").await;
    stand.clean_up().await;
}

/// What another version calls what this one knows as the type of a unit.
const TYPE: (&str, &str) = ("type: foreground-supervised", "type: foreground-supervises");

/// The present one counted in its place, or none at all, so that what ran was forgotten.
#[tokio::test]
async fn a_unit_whose_definition_makes_no_sense_is_lost_whether_it_is_in_the_files_or_not() {
    let without = stanzas().replace("waits-for: a\n", "").replace(&supervised("a", SLEEP), "");
    for files in [stanzas(), without] {
        let stand = Stand::new(&stanzas(), "all").await;
        let a = stand.running("a").await;
        let stand = after_one_that_said(stand, TYPE, &files).await;
        let problem = stand.unit("a").await.problem.expect("there is one");
        assert!(problem.contains("native/runs") && problem.contains("supervises"), "{problem}");
        read_again(&stand, &stanzas(), &stand.settings).await;
        assert!(is_lost(&stand.unit("a").await) && runs(a), "it runs on");
        say(&stand.home.path("native/runs"), "a", TYPE.1, TYPE.0);
        read_again(&stand, &stanzas(), &stand.settings).await;
        assert_eq!(stand.running("a").await, a);
        stand.clean_up().await;
    }
}

/// Nothing of it runs, so that nothing can be started beside it.
#[tokio::test]
async fn a_unit_that_is_over_starts_whatever_its_definition_says() {
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
    assert!(!is_lost(&stand.unit("a").await));
    read_again(&stand, &stanzas(), &stand.settings).await;
    stand.running("a").await;
    stand.clean_up().await;
}

#[tokio::test]
async fn what_a_unit_writes_that_cannot_be_taken_back_is_kept_within_its_limit() {
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
    let says = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("it has begun", async || says().contains("hello")).await;
    let stand = after_one_that_said(stand, (KNOWN, UNKNOWN), &writes).await;
    let unit = stand.unit("a").await.unit;
    let mut journal =
        stand.supervisor.journal(&unit, JournalQuery::default()).expect("it can be read");
    assert_eq!(journal.next().await.as_deref(), Some("hello"));
    std::fs::write(gate, "").expect("it can be written");
    let taken = || std::fs::metadata(&log).expect("it is there").blocks() * 512;
    let is_over = || Path::new(&over).exists();
    wait_until("its log is short", async || is_over() && taken() < 2 * LOG_LIMIT).await;
    say(&stand.home.path("native/runs"), "a", UNKNOWN, KNOWN);
    read_again(&stand, &writes, &stand.settings).await;
    assert_eq!(stand.running("a").await, a);
    stand.supervisor.journal(&unit, JournalQuery::default()).expect("it can still be read");
    stand.clean_up().await;
}

/// It was failed for ever, as nobody provided what would have been reset.
#[tokio::test]
async fn a_lost_unit_that_is_in_no_file_any_more_is_reset_by_its_name() {
    let (stand, a, b) = with_one_lost().await;
    let without = stanzas().replace("waits-for: a\n", "").replace(&supervised("a", SLEEP), "");
    read_again(&stand, &without, &stand.settings).await;
    assert!(is_lost(&stand.unit("a").await));
    signal_group(a, "KILL");
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("it answers"));
    let units = stand.supervisor.snapshot().await.expect("it answers").units;
    assert!(units.iter().all(|unit| unit.unit.as_str() != "a"), "nothing is left of it");
    assert!(!stand.supervisor.reset_failed(&target("a")).await.expect("it answers"));
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert_ne!(stand.running("a").await, a);
    assert_eq!(stand.running("b").await, b);
    stand.clean_up().await;
}

/// It was to be tried again at once, for ever.
#[tokio::test]
async fn another_definition_promises_nothing_of_a_unit_that_cannot_be_taken_back() {
    let (stand, a, _) = with_one_lost().await;
    read_again(&stand, &stanzas().replace("sleep 1000", "sleep 2000"), &stand.settings).await;
    let what = stand.unit("a").await.report.state;
    assert!(
        matches!(what, DerivedState::Failed { retry: Retry::Never, stuck: true, .. }),
        "{what:?}"
    );
    stand.supervisor.shutdown().await.expect("what can be stopped is");
    signal_group(a, "KILL");
}

/// The file counted as one that names nobody, and what it would have named was killed.
#[tokio::test]
async fn a_unit_whose_file_cannot_be_read_may_run_on_and_is_lost() {
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
    // It can be opened, and not read.
    symlink("/proc/self/mem", &pid).expect("it can be made");
    signal(main, "KILL");
    wait_until("it has ended", async || !runs(main)).await;
    let supervisor = Stand::open(&place, graph(&unit, &settings), &settings).await;
    let stand = Stand { supervisor, home: place, settings };
    let found = stand.unit("a").await;
    assert!(is_lost(&found), "{found:?}");
    assert!(found.problem.is_some_and(|problem| problem.contains("cannot be read")));
    let other = std::fs::read_to_string(&next).expect("it was written");
    std::fs::rename(&next, &pid).expect("it can be in its place");
    read_again(&stand, &unit, &stand.settings).await;
    assert_eq!(stand.running("a").await.to_string(), other.trim());
    stand.clean_up().await;
}

/// Of one that is not started by that nothing else is written down.
#[tokio::test]
async fn a_unit_that_was_reset_is_not_lost_to_the_next_runner() {
    let (mut stand, a, _) = with_one_lost().await;
    signal_group(a, "KILL");
    stand.settings.goal = Some(target("b"));
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("it answers"));
    let stand = stand.again(&stanzas()).await;
    assert_eq!(stand.unit("a").await.report.state, DerivedState::Disabled);
    stand.clean_up().await;
}
