//! Units that the next runner cannot take back: none is started beside what may run of it.

use std::path::Path;

use fleet_agent::UnitStatus;
use fleet_core::graph::{Cause, Settings, Shown};

use super::graph::{SLEEP, Stand, graph, supervised, target};
use crate::support::{runs, signal_group};

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

/// The runner after one that ran two units, of which it cannot take the first back.
async fn with_one_lost() -> (Stand, u32, u32) {
    let stand = Stand::new(&stanzas(), "all").await;
    let (a, b) = (stand.running("a").await, stand.running("b").await);
    let Stand { runner, home, settings } = stand;
    drop(runner);
    let records = home.path("native/runs");
    say(&records, "a", KNOWN, UNKNOWN);
    let runner = Stand::open(&home, graph(&stanzas(), &settings), &settings).await;
    let stand = Stand { runner, home, settings };
    assert!(is_lost(&stand.unit("a").await));
    (stand, a, b)
}

fn is_lost(unit: &UnitStatus) -> bool {
    matches!(unit.state.what, Shown::Failed { cause: Cause::Lost, stuck: true, .. })
}

async fn read_again(stand: &Stand, stanzas: &str, settings: &Settings) {
    let again = stand.runner.reload(graph(stanzas, settings), settings).await;
    again.expect("nothing is wrong with it");
}

#[tokio::test]
async fn a_unit_that_cannot_be_taken_back_is_not_started_beside_what_runs() {
    let (stand, a, b) = with_one_lost().await;
    assert_eq!(stand.running("b").await, b, "it harms no other");
    let problem = stand.unit("a").await.problem.expect("there is one");
    assert!(problem.contains("native/runs") && problem.contains("resting"), "{problem}");
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert!(is_lost(&stand.unit("a").await) && runs(a));
    stand.runner.shutdown().await.expect("what can be stopped is");
    assert!(is_lost(&stand.unit("a").await), "who ends the others hears of it");
    assert_eq!(stand.home.processes(), [a], "it runs on, once");
    signal_group(a, "KILL");
}

#[tokio::test]
async fn a_unit_that_could_not_be_taken_back_is_once_the_reason_is_gone() {
    let (stand, a, b) = with_one_lost().await;
    say(&stand.home.path("native/runs"), "a", UNKNOWN, KNOWN);
    read_again(&stand, &stanzas(), &stand.settings).await;
    assert_eq!((stand.running("a").await, stand.running("b").await), (a, b));
    assert_eq!(stand.unit("a").await.problem, None);
    stand.clean_up().await;
}

#[tokio::test]
async fn a_unit_that_could_not_be_taken_back_starts_once_somebody_resets_it() {
    let (stand, a, _) = with_one_lost().await;
    signal_group(a, "KILL");
    assert!(stand.runner.reset(&target("a")).await.expect("it answers"));
    assert_ne!(stand.running("a").await, a);
    let stand = stand.again(&stanzas()).await;
    stand.running("a").await;
    stand.clean_up().await;
}
