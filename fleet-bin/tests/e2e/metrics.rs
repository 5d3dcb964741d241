//! `/metrics` of a daemon at work: all that the documents name, and nothing else.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::daemon::Cluster;

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

/// The names of all that is documented, without `_total`, with their kinds.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| row.split_once("` | "));
    rows.map(|(name, rest)| {
        let kind = rest.split(" |").next().unwrap_or_default();
        (name.strip_suffix("_total").unwrap_or(name), kind)
    })
    .collect()
}

/// What follows each name in lines that begin with that word.
fn said<'a>(text: &'a str, word: &str) -> BTreeMap<&'a str, &'a str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

fn metrics(cluster: &Cluster) -> Option<String> {
    let mut stream = UnixStream::connect(cluster.path("data/fleet.sock")).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

// Holds: D-25
#[test]
fn all_that_is_counted_is_documented_and_the_other_way_round() {
    let cluster = Cluster::start(&[]);
    let unit = cluster.write("a.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    cluster.succeed(&["start", unit.to_str().unwrap()]);
    let nowhere = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=moon=full\n";
    let nowhere = cluster.write("nowhere.service", nowhere);
    cluster.succeed(&["start", "--no-block", nowhere.to_str().unwrap()]);
    let text = cluster.wait_for("what is done is counted", |cluster| {
        let has = |text: &str, line: &str| text.lines().any(|other| other == line);
        let lines = [
            "fleet_engine_task_count_total{type=\"attemptscheduleunit\"} 1",
            "fleet_agent_units{active=\"active\"} 1",
            "fleet_agent_units{active=\"failed\"} 0",
            "fleet_agent_retries_total 0",
            "fleet_engine_task_failure_count_total{type=\"moveunit\"} 0",
            "fleet_engine_reconcile_failure_count_total{type=\"deposed\"} 0",
            "fleet_refusals{rule=\"MachineMetadata\"} 3",
        ];
        metrics(cluster).filter(|text| lines.iter().all(|line| has(text, line)))
    });
    assert!(!text.contains("fleet_engine_leader_start_time 0\n"), "it leads");
    assert!(!text.contains("fleet_engine_reconcile_duration_second_count 0\n"), "it has looked");
    assert_eq!(said(&text, "# TYPE "), documented());
    let help = said(&text, "# HELP ");
    assert!(help.keys().eq(documented().keys()), "{help:?}");
    assert!(help.values().all(|help| help.len() > 10), "{help:?}");
}
