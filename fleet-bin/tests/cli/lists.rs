//! `list-units`, `list-unit-files` and `list-machines`, in every format.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};

use crate::cluster::Cluster;
use crate::fake_engine::Role;
use crate::fleetctl::DEADLINE;
use crate::relay::Relay;

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.write_sleepers(&["asleep.service", "far.service", "web.service"]);
    let service = "[Service]\nExecStart=/bin/sleep 1d\n[X-Fleet]\nGlobal=true\n";
    cluster.write("all.service", &format!("[Unit]\nDescription=Everywhere\n{service}"));
    cluster.roles.set("far.service", Role::Unplaceable);
    cluster.run("submit asleep").await.ok();
    cluster.run("start all web").await.ok();
    cluster.run("start --no-block far").await.ok();
    cluster.wait_until(|it| it.reason("far.service").is_some()).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_units_prints_reasons() {
    let cluster = cluster().await;
    insta::assert_snapshot!(cluster.run("list-units").await, @r"
    exit 0
    UNIT→→MACHINE→→→ACTIVE→SUB→REASON
    all.service→282f949f.../10.0.0.2→active→running→-
    all.service→m1/10.0.0.1→→active→running→-
    far.service→-→→→-→-→no machine is present
    web.service→m1/10.0.0.1→→active→running→-
    ");
    let fields = cluster.run("list-units -l --no-legend --fields=unit,machine,load").await;
    insta::assert_snapshot!(fields, @r"
    exit 0
    all.service→282f949fc0de4711/10.0.0.2→loaded
    all.service→m1/10.0.0.1→→→loaded
    far.service→-→→→→-
    web.service→m1/10.0.0.1→→→loaded
    ");
    insta::assert_snapshot!(cluster.run("list-units -o name").await, @r"
    exit 0
    all.service
    far.service
    web.service
    ");
    let document: Value =
        serde_json::from_str(&cluster.run("list-units -o json").await.ok().stdout).unwrap();
    assert_eq!(document.as_array().unwrap().len(), 4);
    assert_eq!(document[2]["reason"], "no machine is present");
    assert_eq!(document[3]["mainPID"], 4711);
    let lines = cluster.run("list-units -o jsonl").await.ok().stdout;
    assert_eq!(lines.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unit_files_and_machines_are_listed() {
    let cluster = cluster().await;
    insta::assert_snapshot!(cluster.run("list-unit-files").await, @r"
    exit 0
    UNIT→→HASH→DSTATE→→STATE→→TARGET→→REASON
    all.service→e39f52f→launched→-→→global→→-
    asleep.service→6cff462→inactive→inactive→-→→-
    far.service→6cff462→launched→inactive→-→→no machine is present
    web.service→6cff462→launched→launched→m1/10.0.0.1→-
    ");
    insta::assert_snapshot!(cluster.run("list-unit-files --fields unit,global,desc").await, @r"
    exit 0
    UNIT→→GLOBAL→DESC
    all.service→true→Everywhere
    asleep.service→false→-
    far.service→false→-
    web.service→false→-
    ");
    insta::assert_snapshot!(cluster.run("list-machines").await, @r"
    exit 0
    MACHINE→→IP→→METADATA
    282f949f...→10.0.0.2→rack=r2
    m1→→10.0.0.1→rack=r1
    ");
    insta::assert_snapshot!(cluster.run("list-machines --l --no-legend -fields=machine").await, @r"
    exit 0
    282f949fc0de4711
    m1
    ");
    insta::assert_snapshot!(cluster.run("list-machines -o jsonl").await, @r#"
    exit 0
    {"ip":"10.0.0.2","machine":"282f949fc0de4711","metadata":{"rack":"r2"},"version":"1.2.3"}
    {"ip":"10.0.0.1","machine":"m1","metadata":{"rack":"r1"},"version":"1.2.3"}
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_cluster_prints_only_headers() {
    let cluster = Cluster::start(&[]).await;
    insta::assert_snapshot!(cluster.run("list-units").await, @r"
    exit 0
    UNIT→MACHINE→ACTIVE→SUB
    ");
    insta::assert_snapshot!(cluster.run("list-unit-files -o json").await, @r"
    exit 0
    []
    ");
    insta::assert_snapshot!(cluster.run("list-machines --no-legend").await, @"exit 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_span_several_pages() {
    let cluster = Cluster::start(&["m1"]).await;
    let names: Vec<String> = (0..150).map(|n| format!("u{n:03}.service")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    cluster.write_sleepers(&names);
    cluster.run(&format!("submit {}", names.join(" "))).await.ok();
    let listed = cluster.run("list-unit-files -o name").await.ok().stdout;
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_list_is_printed_after_each_change() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web").await.ok();
    let line = "list-units --watch --no-legend --fields unit,sub";
    let mut command = crate::fleetctl::command(cluster.folder(), &cluster.endpoint(), line);
    let mut fleetctl = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(fleetctl.stdout.take().unwrap()).lines();
    let mut wait_until = async |expected: &str| loop {
        let next = tokio::time::timeout(DEADLINE, lines.next_line()).await;
        if next.expect("the list is printed").unwrap().unwrap() == expected {
            break;
        }
    };
    wait_until("web.service\trunning").await;
    cluster.run("start db").await.ok();
    wait_until("").await;
    wait_until("db.service\trunning").await;
    cluster.run("destroy db web").await.ok();
    fleetctl.kill().await.unwrap();
}

/// A watched list that is out of date must say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_survives_a_daemon_restart() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web").await.ok();
    let at = cluster.folder().join("relay.sock");
    for (line, first, note, then) in [
        (
            "list-units --watch --no-legend --fields unit",
            "web.service",
            "fleetd does not respond, so the list may be out of date; reconnecting",
            "db.service",
        ),
        ("events -o jsonl", "\"event\":\"resync\"", "lost the event stream", "\"event\":\"unit\""),
    ] {
        let mut relay = Relay::open(&at, &cluster.endpoint());
        let mut command = crate::fleetctl::command(cluster.folder(), &relay.endpoint(), line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut fleetctl = command.spawn().unwrap();
        let mut output = BufReader::new(fleetctl.stdout.take().unwrap()).lines();
        let mut notes = BufReader::new(fleetctl.stderr.take().unwrap()).lines();
        wait_until(&mut output, first).await;
        relay.cut().await;
        wait_until(&mut notes, note).await;
        cluster.run("start db").await.ok();
        wait_until(&mut output, then).await;
        fleetctl.kill().await.unwrap();
        cluster.run("destroy db").await.ok();
        std::fs::remove_file(&at).unwrap();
    }
}

/// Waits for a line with this text.
async fn wait_until(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>, text: &str) {
    loop {
        let next = tokio::time::timeout(DEADLINE, lines.next_line()).await;
        if next.expect("there is a line").unwrap().expect("the output is open").contains(text) {
            break;
        }
    }
}
