//! Runs the story of each unit. The same stories run under systemd in a booted machine.

use std::sync::Arc;

use fleet_agent::ServiceManager;

use crate::histories::{Case, cases, run_all};
use crate::support::Bench;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/systemd-options.md");

// Holds: G-30
#[tokio::test]
async fn each_unit_follows_its_story() {
    let bench = Bench::new().await;
    let manager: Arc<dyn ServiceManager> = Arc::clone(&bench.manager) as _;
    let cases = cases(rustix::process::geteuid().is_root());
    let problems = run_all(&manager, &bench.path("stories"), &cases, Case::by_native).await;
    assert_eq!(problems, [""; 0], "units differ from their stories");
    drop(manager);
    bench.clean_up().await;
}

/// The document lists the differences, with the reasons.
// Holds: G-30
#[test]
fn differences_to_systemd_are_documented() {
    let text = std::fs::read_to_string(DOCUMENT).expect("it is there");
    let table = text.split_once("<!-- histories: begin -->").expect("it has the table").1;
    let table = table.split_once("<!-- histories: end -->").expect("it has an end").0;
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let listed: Vec<String> =
        rows.map(|row| row.rsplitn(3, '|').last().unwrap_or("").to_owned()).collect();
    let cases = cases(true);
    let others = cases.iter().filter(|case| case.by_native() != case.by_systemd());
    let rows =
        others.map(|it| format!("| {} | `{}` | `{}` ", it.name, it.by_systemd(), it.by_native()));
    assert_eq!(listed, rows.collect::<Vec<_>>());
    assert!(cases.len() >= 240, "there are too few cases");
}

#[test]
fn story_names_are_unique() {
    let cases = cases(true);
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
}
