//! The runtime directory: notification sockets, records, and starts that cannot be recorded.

use std::path::PathBuf;
use std::process::Command;

use fleet_core::graph::Settings;

use super::graph::{SLEEP, Stand, graph, supervised, target};
use super::helper::stanza_with_steps;
use crate::support::{Bench, runs};

/// Starts these units with a runtime directory, which the second value is.
async fn start(stanzas: &str, goal: &str) -> (Stand, PathBuf) {
    let settings = Settings { goal: Some(target(goal)), ..Settings::default() };
    let stand = Stand::with(stanzas, settings, |config| {
        config.runtime_directory = Some(config.directory.with_file_name("run"));
    })
    .await;
    let mut entries = std::fs::read_dir(stand.home.path("run")).expect("it is there");
    let own = entries.next().expect("it has a supervisor").expect("it can be read").path();
    (stand, own)
}

/// Returns the names in a directory, in order.
fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("it can be read").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Regression: the address of the socket existed in one network namespace only.
#[tokio::test]
async fn message_from_another_network_namespace_arrives() {
    let isolates = Command::new("unshare").args(["-n", "true"]).output();
    if !isolates.is_ok_and(|output| output.status.success()) {
        return;
    }
    let steps = stanza_with_steps("say READY=1|sleep");
    let steps = steps.replacen("exec-start: ", "exec-start: /usr/bin/unshare -n ", 1);
    let stanza = format!("unit: a\ntype: foreground-notified\nprovides: a\n{steps}\n");
    let (stand, own) = start(&stanza, "a").await;
    assert!(runs(stand.running("a").await));
    assert_eq!(names(&own.join("notify")).len(), 1);
    stand.clean_up().await;
}

#[tokio::test]
async fn records_of_runs_are_in_the_runtime_directory() {
    let stanzas = supervised("a", SLEEP);
    let (stand, own) = start(&stanzas, "a").await;
    let pid = stand.running("a").await;
    assert_eq!(names(&own), ["boot", "notify", "runs", "units"]);
    assert_eq!(names(&stand.home.path("native")), ["boot", "lock", "logs", "runtime"]);
    let Stand { supervisor, home, settings } = stand;
    drop(supervisor);
    let graph = graph(&stanzas, &settings);
    let supervisor = Stand::open_with(&home, graph, &settings, |config| {
        config.runtime_directory = Some(home.path("run"));
    })
    .await;
    let stand = Stand { supervisor, home, settings };
    assert_eq!(stand.running("a").await, pid, "the run was not found");
    stand.clean_up().await;
}

/// Regression: a unit that did not start because of a full disk stayed down.
#[tokio::test]
async fn unit_starts_once_its_start_can_be_recorded() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStart=/bin/sleep 1000\nRestart=no\n").await;
    // The next record replaces a large file, by one that cannot be written.
    let record = bench.path("native/units/a.service/run.json");
    let large = std::fs::read_to_string(&record).expect("it is there") + &"\n".repeat(20_000);
    std::fs::write(&record, large).expect("it can be written");
    let full = bench.path("native/units/a.service/run.json.new");
    std::os::unix::fs::symlink("/dev/full", &full).expect("it can be created");
    bench.start("a.service").await.expect_err("it cannot be recorded");
    std::fs::remove_file(&full).expect("it is there");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

/// Regression: the unit was retried forever, as on a full disk.
#[tokio::test]
async fn record_that_is_no_file_is_an_ordinary_failure() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStart=/bin/sleep 1000\nRestart=no\n").await;
    let record = bench.path("native/units/a.service/run.json");
    std::fs::remove_file(&record).expect("it is there");
    std::fs::create_dir(&record).expect("it can be in the way");
    bench.start("a.service").await.expect_err("it cannot be recorded");
    let state = bench.state("a.service").await;
    assert_eq!((state.sub.as_str(), state.result.as_deref()), ("failed", Some("resources")));
    std::fs::remove_dir(&record).expect("it is there");
    bench.clean_up().await;
}
