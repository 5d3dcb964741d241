//! `/metrics` of a running daemon: exactly the documented metrics, which the examples use.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::daemon::Cluster;

const DOCUMENT: &str = include_str!("../../../docs/reference/metrics.md");
const ALERTS: &str = include_str!("../../../examples/monitoring/alerts.yml");
const DASHBOARD: &str = include_str!("../../../examples/monitoring/dashboard.json");

/// Returns the type of each documented metric, by its name without `_total`.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| row.split_once("` | "));
    rows.map(|(name, rest)| {
        let kind = rest.split(" |").next().unwrap_or_default();
        (name.strip_suffix("_total").unwrap_or(name), kind)
    })
    .collect()
}

/// Returns the text after each name in the lines that begin with `keyword`.
fn metadata<'a>(text: &'a str, keyword: &str) -> BTreeMap<&'a str, &'a str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(keyword));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

fn metrics(cluster: &Cluster) -> Option<String> {
    let mut stream = UnixStream::connect(cluster.path("data/fleet.sock")).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    Some(response.split_once("\r\n\r\n")?.1.to_owned())
}

// Holds: D-25
#[test]
fn metrics_match_the_documentation() {
    let cluster = Cluster::start(&[]);
    let unit = cluster.write("a.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    cluster.succeed(&["start", unit.to_str().unwrap()]);
    let nowhere = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=moon=full\n";
    let nowhere = cluster.write("nowhere.service", nowhere);
    cluster.succeed(&["start", "--no-block", nowhere.to_str().unwrap()]);
    let text = cluster.wait_for("the metrics show the units", |cluster| {
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
    assert!(!text.contains("fleet_engine_leader_start_time 0\n"), "the engine must lead");
    assert!(
        !text.contains("fleet_engine_reconcile_duration_second_count 0\n"),
        "the engine must have reconciled"
    );
    assert_eq!(metadata(&text, "# TYPE "), documented());
    let help = metadata(&text, "# HELP ");
    assert!(help.keys().eq(documented().keys()), "{help:?}");
    assert!(help.values().all(|help| help.len() > 10), "{help:?}");
}

/// Returns the names of fleet's metrics in a text.
fn used_metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c)).filter(|word| word.starts_with("fleet_")).collect()
}

#[test]
fn monitoring_examples_use_documented_metrics() {
    let known = documented();
    let is_known = |name: &&str| {
        let kind = |name| known.get(name).copied();
        let series = |suffix| name.strip_suffix(suffix).and_then(kind);
        kind(name) == Some("gauge")
            || series("_total") == Some("counter")
            || ["_bucket", "_sum", "_count"].into_iter().any(|it| series(it) == Some("histogram"))
    };
    for (file, text) in [("alerts.yml", ALERTS), ("dashboard.json", DASHBOARD)] {
        let used = used_metrics(text);
        let unknown: Vec<_> = used.iter().filter(|name| !is_known(name)).collect();
        assert!(used.len() > 5 && unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
}
