//! Field names in JSON output, which are documented and stable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::fake_engine::Role;

/// Commands that cover all fields.
const RUNS: [&str; 32] = [
    "submit job@.service",
    "start web.service all.service",
    "start --wait-timeout 0 bad.service",
    "load late.service",
    "start --no-block lost.service odd.service",
    "diff changed/web.service more.service",
    "plan more.service --destroy web",
    "apply --dry-run changed/web.service more.service",
    "apply web.service late.service",
    "scale job@ 2 --dry-run",
    "scale job@ 1",
    "explain web lost",
    "logs web",
    "journal web",
    "doctor",
    "status web bad lost odd",
    "cat web",
    "verify odd/wrong.service",
    "list-units",
    "list-unit-files",
    "list-machines",
    "restart web",
    "machine cordon m2",
    "machine uncordon m2",
    "machine drain m2",
    "machine show m2",
    "machine show m1",
    "export out.jsonl",
    "import --dry-run out.jsonl",
    "version --server",
    "stop web",
    "destroy web",
];

/// Starts a cluster with units in all kinds of states.
async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    let service = "[Service]\nExecStart=/bin/sleep 1d\n";
    let check = "[X-Fleet]\nHealthCheck=tcp://127.0.0.1:1\n";
    cluster.write("web.service", &format!("[Unit]\nDescription=The web\n{service}{check}"));
    cluster.write("all.service", &format!("{service}[X-Fleet]\nGlobal=true\n"));
    let sleepers = ["bad", "late", "lost", "odd", "more"].map(|name| format!("{name}.service"));
    cluster.write_sleepers(&sleepers.each_ref().map(String::as_str));
    cluster.write_sleepers(&["job@.service"]);
    for folder in ["changed", "odd"] {
        std::fs::create_dir(cluster.folder().join(folder)).unwrap();
    }
    cluster.write_sleepers(&["changed/web.service"]);
    cluster.write("odd/wrong.service", "[Service]\nExecStrat=/bin/true\n");
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.roles.set("late.service", Role::Unplaceable);
    cluster.roles.set("lost.service", Role::Unplaceable);
    cluster.roles.set("odd.service", Role::Unsupported);
    cluster
}

/// Collects the paths of all fields. The keys of `metadata` are data and not collected.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                if name != "metadata" {
                    fields(value, &path, found);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| fields(value, path, found)),
        _ => {}
    }
}

/// Returns the name of a command without its arguments.
fn command(line: &str) -> String {
    let words = if line.starts_with("machine ") { 2 } else { 1 };
    let dry = if line.contains("--dry-run") { " --dry-run" } else { "" };
    line.split(' ').take(words).collect::<Vec<_>>().join(" ") + dry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_fields_match_the_documentation() {
    let cluster = cluster().await;
    let first = cluster.run("events -n 1 -o jsonl").await.ok().stdout;
    let first: Value = serde_json::from_str(&first).unwrap();
    let events = format!("events -n 9 --since {}", first["id"].as_str().unwrap());
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in RUNS.into_iter().chain([events.as_str()]) {
        let run = cluster.run(&format!("{line} -o jsonl")).await;
        let found = all.entry(command(line)).or_default();
        for printed in run.stdout.lines() {
            let value = serde_json::from_str(printed);
            fields(&value.unwrap_or_else(|error| panic!("{line}: {error}: {run}")), "", found);
        }
        assert!(!found.is_empty(), "{line}: {run}");
    }
    let undocumented = undocumented(&all);
    assert!(undocumented.is_empty(), "not in docs/reference/fleetctl.md: {undocumented:?}");
    // The fields of events depend on concurrent changes.
    all.remove("events");
    let lines = all.iter().map(|(command, fields)| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        format!("{command}: {}\n", fields.join(" "))
    });
    insta::assert_snapshot!("fields", lines.collect::<String>());
}

/// Returns the outermost fields that the documentation lacks in the row of their command.
fn undocumented(all: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/fleetctl.md"));
    let document = std::fs::read_to_string(path).unwrap();
    let json = document.split("\n## JSON\n").nth(1).expect("a chapter about JSON");
    let json = json.split("\n## ").next().unwrap();
    let mut missing = Vec::new();
    for (command, fields) in all {
        let command = command.replace("import --dry-run", "import");
        let is_of = |row: &&str| {
            let commands = row.split(" | ").next().unwrap_or_default();
            commands.contains(&format!("`{command}`"))
        };
        let row = json.lines().find(is_of).map(str::to_owned).unwrap_or_default();
        // Their fields are documented with the API.
        let is_of_api = row.contains("[API]");
        for field in fields.iter().filter(|field| !field.contains('.') && !is_of_api) {
            if !row.contains(&format!("`{field}`")) {
                missing.push(format!("{command}: {field}"));
            }
        }
        if row.is_empty() {
            missing.push(format!("{command}: the whole row"));
        }
    }
    missing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_list_prints_in_every_format() {
    let cluster = cluster().await;
    cluster.run("start web").await.ok();
    cluster.run("submit job@.service").await.ok();
    for line in [
        "list-units",
        "list-unit-files",
        "list-machines",
        "status web",
        "cat web",
        "explain web",
        "logs web",
        "journal web",
        "doctor",
        "plan more.service",
        "diff more.service",
        "scale job@ 3 --dry-run",
        "verify odd/wrong.service",
        "machine show m1",
        "version --server",
    ] {
        let table = cluster.run(line).await;
        let json = cluster.run(&format!("{line} -o json")).await;
        let jsonl = cluster.run(&format!("{line} -o jsonl")).await;
        let name = cluster.run(&format!("{line} -o name")).await;
        let short = cluster.run(&format!("{line} -o short")).await;
        assert_eq!(table.stdout, short.stdout, "{line}");
        for run in [&json, &jsonl, &name] {
            assert_eq!((run.code, &run.stderr), (table.code, &table.stderr), "{line}");
        }
        let document: Value = serde_json::from_str(&json.stdout).unwrap();
        let lines = jsonl.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(document, Value::Array(lines.collect()), "{line}");
        let names = name.stdout.lines().count();
        assert!((1..=document.as_array().unwrap().len()).contains(&names), "{line}: {name}");
        assert!(!name.stdout.contains(['\t', '{', ' ']), "{line}: {name}");
    }
}
