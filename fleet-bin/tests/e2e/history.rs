//! What `fleetctl` shows of the past of a unit, and of the resources that it uses.

use serde_json::Value;

use crate::daemon::Cluster;

/// Returns the kinds of a unit's events.
fn events(cluster: &Cluster, unit: &str) -> Vec<Value> {
    serde_json::from_str(&cluster.succeed(&["history", "-o", "json", unit])).unwrap()
}

#[test]
fn history_shows_times_and_causes() {
    let cluster = Cluster::start(&[]);
    let file = cluster.write("web.service", "[Service]\nExecStart=/bin/sh -c 'exit 3'\n");
    let output = cluster.fleetctl(&["start", file.to_str().unwrap()]);
    assert!(!output.status.success(), "it fails");
    let failed = cluster.wait_for("the failure is recorded", |cluster| {
        let failed = |event: &Value| event["event"] == "failed";
        events(cluster, "web").into_iter().find(failed)
    });
    assert_eq!(failed["cause"], "exited with status 3");
    let all = events(&cluster, "web");
    let kinds: Vec<&str> = all.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"revision"), "{kinds:?}");
    let placed = all.iter().find(|event| event["event"] == "placed").expect("it is placed");
    assert_eq!(placed["cause"], "it is wanted");
    let times: Vec<&str> = all.iter().filter_map(|event| event["at"].as_str()).collect();
    assert!(times.len() == all.len() && times.is_sorted(), "{times:?}");
    let table = cluster.succeed(&["history", "web"]);
    assert!(table.contains("failed: exited with status 3"), "{table}");
    cluster.succeed(&["destroy", "web"]);
    let unknown = cluster.fleetctl(&["history", "web"]);
    assert!(!unknown.status.success());
}

#[test]
fn status_shows_since_when_and_the_resources_in_use() {
    let cluster = Cluster::start(&[]);
    let file = cluster.write("web.service", "[Service]\nExecStart=/bin/sleep 1d\n");
    cluster.succeed(&["start", file.to_str().unwrap()]);
    let shown = cluster.wait_for("the usage is shown", |cluster| {
        let output = cluster.fleetctl(&["status", "-o", "json", "web"]);
        let shown: Value = serde_json::from_slice(&output.stdout).ok()?;
        let machine = shown[0]["machines"][0].clone();
        machine["memory"].as_u64().filter(|bytes| *bytes > 0)?;
        Some(machine)
    });
    assert!(shown["tasks"].as_u64() >= Some(1) && shown["cpuNanoseconds"].is_u64(), "{shown}");
    assert!(shown["since"].is_string(), "{shown}");
    let text = cluster.succeed(&["status", "web"]);
    for line in ["    Active: active (running) since ", "     Tasks: 1\n", "    Memory: "] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn logs_show_automatic_restarts_with_their_cause() {
    let cluster = Cluster::start(&[]);
    let service = "ExecStart=/bin/sh -c 'echo up; exit 3'\nRestart=on-failure\nRestartSec=10ms\n";
    let file = cluster.write("web.service", &format!("[Service]\n{service}"));
    cluster.fleetctl(&["start", "--no-block", file.to_str().unwrap()]);
    let restarted = "fleet: automatic restart 1: the main process exited with status 3";
    cluster.wait_for("the log shows the first restart", |cluster| {
        let output = cluster.fleetctl(&["logs", "--raw", "-n", "100", "web"]);
        let text = String::from_utf8(output.stdout).ok()?;
        text.lines().take(2).eq(["up", restarted]).then_some(())
    });
}
