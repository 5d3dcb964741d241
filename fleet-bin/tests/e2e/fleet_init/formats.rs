//! Structure of the JSON documents that `fleet-init` prints.

use fleet_agent::ServiceManager as _;
use fleet_core::Epoch;
use fleet_core::Generation;
use fleet_unitfile::{UnitFile, UnitName};
use serde_json::{Value, json};

use super::Init;
use super::files::{start, succeed, wait_state};
use crate::daemon::{output_text, wait_for};

/// Returns the JSON document that a client command prints.
fn document(init: &Init, args: &[&str]) -> Value {
    let output = init.output(&[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn commands_print_json_results() {
    let init = start();
    wait_state(&init, "db", "running");
    wait_state(&init, "bad", "failed");
    assert_eq!(document(&init, &["reload"]), json!([{ "goal": "all", "extraTargets": [] }]));
    let goals = json!([{ "goal": "web", "extraTargets": ["extra"] }]);
    assert_eq!(document(&init, &["set-target", "web", "--with", "extra"]), goals);
    assert_eq!(document(&init, &["reset-failed", "db"]), json!([{ "unit": "db", "reset": false }]));
    wait_state(&init, "extra", "running");
    let lines = document(&init, &["logs", "db", "-n", "1"]);
    let timestamp = &lines[0]["timestamp"];
    assert!(timestamp.is_u64(), "{lines}");
    assert_eq!(lines, json!([{ "unit": "db", "line": "db is up", "timestamp": timestamp }]));
    let (status, printed) = init.client(&["logs", "db", "-f", "-o", "json"]);
    assert_eq!(status.code(), Some(2), "{printed}");
    assert!(printed.contains("-o jsonl"), "{printed}");
}

#[test]
fn graph_prints_json() {
    let init = start();
    let units = init.home.path().join("units").display().to_string();
    let output = init.output(&["graph", &units, "--goal", "web", "-o", "json"]);
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(graph["goal"], "web");
    let web = json!({
        "unit": "web",
        "type": "foreground-supervised",
        "description": "",
        "provides": ["web"],
        "needed": true,
        "depends": [{ "kind": "depends-on", "unit": "db" }],
    });
    let units = graph["units"].as_array().unwrap();
    assert!(units.contains(&web), "{graph:#}");
    assert!(units.iter().any(|it| it["unit"] == "bad" && it["needed"] == false), "{graph:#}");
}

#[test]
fn status_of_fleetd_units_is_a_tree_with_reasons() {
    let init = Init::start();
    let load = async |manager: &dyn fleet_agent::ServiceManager, unit: &str, text: &str| {
        let file = UnitFile::parse(text).unwrap();
        manager.load(&UnitName::parse(unit).unwrap(), &file, Epoch(1)).await.unwrap();
    };
    init.with_manager(async |manager| {
        load(&*manager, "db.service", "[Service]\nExecStart=/bin/sleep 100000\n").await;
        let web = "[Unit]\nWants=db.service cache.service\nAfter=db.service cache.service\n\
                   [Service]\nExecStart=/bin/sleep 100000\n";
        let cache = "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=1h\n";
        load(&*manager, "cache.service", cache).await;
        load(&*manager, "web.service", web).await;
        load(&*manager, "off.service", "[Service]\nExecStart=/bin/true\n").await;
        load(&*manager, "at.timer", "[Timer]\nOnActiveSec=1h\nUnit=off.service\n").await;
        manager.start(&UnitName::parse("web.service").unwrap(), Generation(1)).await.unwrap();
    });
    let printed = wait_for("the cache waits for its retry", || {
        Some(succeed(&init, &["status"])).filter(|printed| printed.contains("retry in 59min"))
    });
    for shown in [
        "web.service\t",
        "├─cache.service (waits-for)",
        "└─db.service (waits-for)",
        "auto-restart",
        "running, degraded",
        "without cache.service",
        "at.timer",
    ] {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
    assert!(
        printed.contains("processes are tracked") || printed.contains("are not tracked"),
        "{printed}"
    );
    let all = document(&init, &["status"]);
    let all = all.as_array().unwrap();
    let cache = all.iter().find(|it| it["unit"] == "cache.service").unwrap();
    assert_eq!((&cache["sub"], &cache["state"]), (&json!("auto-restart"), &json!("failed")));
    assert!(cache["retryInMilliseconds"].as_u64().unwrap() > 3_000_000, "{cache:#}");
    assert!(cache["milliseconds"].is_u64(), "{cache:#}");
    let off = all.iter().find(|it| it["unit"] == "off.service").unwrap();
    assert_eq!(off["milliseconds"], Value::Null, "the unit never ran: {off:#}");
}
