//! `GET /units/<name>/journal`: selection of machines and lines, and errors.

use fleet_http::ClientError;
use fleet_http::client::JournalOptions;

use crate::harness::{BREAKS, Server, name, running};

async fn placed(on: &str) -> Server {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", on)], &[]).await;
    server
}

#[tokio::test]
async fn lines_are_plain_text() {
    let server = placed("m1").await;
    let response = server.get("/fleet/v1/units/a.service/journal?lines=2").await;
    assert_eq!(response.to_string(), "200 a.service 1\na.service 2\n");
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    let response = server.get("/fleet/v1/units/a.service/journal").await;
    assert_eq!(response.body.lines().count(), 10);
    let response = server.get("/fleet/v1/units/a.service/journal?lines=0").await;
    assert_eq!(response.to_string(), "200");
}

#[tokio::test]
async fn errors_name_the_machine_or_problem() {
    let server = placed("m3").await;
    let _m3 = server.machine("m3", &[]).await;
    server.sleepers(&["b.service", "b@.service", "unloaded.service"], "inactive").await;
    let cases = [
        ("x.service/journal", 404, "unit does not exist"),
        ("b.service/journal", 409, "b.service is on no machine: its desired state is inactive"),
        ("b@.service/journal", 409, "b@.service is on no machine: it is a template"),
        ("a.service/journal", 501, "the journal is on machine m3, which has not published the URL"),
        (
            "unloaded.service/journal?machine=m1",
            404,
            "unloaded.service has no journal on machine m1: the unit is",
        ),
        ("a.service/journal?machine=m4", 404, "machine \"m4\" is not present"),
        ("a.service/journal?machine=m2", 500, "cannot read the journal: the disk is on fire"),
        (
            "a.service/journal?machine=m0",
            404,
            "a.service has no journal on machine m0: the unit is",
        ),
        ("a.service/journal?machine=m/1", 400, "query parameter \"machine\": "),
        ("a.service/journal?lines=-1", 400, "query parameter \"lines\": "),
        ("a.service/journal?after=7", 400, "query parameter \"after\": "),
        ("a.service/journal?after=m1/%20", 400, "query parameter \"after\": "),
        ("a.service/journal?lines=100001", 400, "query parameter \"lines\": "),
        ("a.service/journal?since=noon", 400, "query parameter \"since\", "),
        ("a.service/journal?since=", 400, "query parameter \"since\", "),
        ("a.service/journal?follow=maybe", 400, "query parameter \"follow\": "),
    ];
    for (path, status, beginning) in cases {
        let response = server.get(&format!("/fleet/v1/units/{path}")).await;
        assert_eq!(response.status, status, "{path}: {response}");
        assert!(response.message().starts_with(beginning), "{path}: {response}");
    }
}

#[tokio::test]
async fn unplaced_unit_error_includes_reason() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let path = "/fleet/v1/units/a.service/journal";
    let response = server.get(path).await;
    assert_eq!(response.status, 409);
    assert!(response.message().ends_with("no engine has considered the unit yet"), "{response}");
    server.decide(&[], &[("a.service", fleet_core::Reason::NoMachines)]).await;
    let response = server.get(path).await;
    assert_eq!(response.message(), "a.service is on no machine: no machine is present");
}

#[tokio::test]
async fn global_unit_journal_merges_all_machines() {
    let server = Server::start().await;
    let global = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
    server.put("/fleet/v1/units/a.service", global).await;
    let path = "/fleet/v1/units/a.service/journal";
    let one = server.machine("m1", &[]).await;
    server.publish(&one, running("a.service", "m1")).await;
    assert_eq!(server.get(path).await.status, 200);
    let two = server.machine("m2", &[]).await;
    server.publish(&two, running("a.service", "m2")).await;
    let response = server.get(path).await;
    assert_eq!(response.status, 200);
    let mut lines: Vec<&str> = response.body.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[0], "m1: a.service 1");
    assert_eq!(lines[10], "m2: [cannot read the journal: the disk is on fire]");
    let one = server.get(&format!("{path}?machine=m1&lines=1")).await;
    assert_eq!(one.to_string(), "200 a.service 1\n");
}

#[tokio::test]
async fn client_reads_lines_as_they_arrive() {
    let server = placed("m1").await;
    let options = JournalOptions::default().with_lines(3).with_follow(true);
    let mut journal = server.client().journal(&name("a.service"), &options).await.unwrap();
    for number in 1..=3 {
        let line = journal.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!("a.service {number}"), "while the journal is still open");
    }
    // A followed journal ends only with the server.
    server.stop().await;
    assert!(matches!(journal.next_line().await, Err(ClientError::Broken { .. })));
}

#[tokio::test]
async fn since_is_passed_to_the_journal() {
    let server = placed("m1").await;
    let path = "/fleet/v1/units/a.service/journal";
    for (query, lines, first) in [
        ("since=1min%2030s", 12, "a.service 1, at most 90s old"),
        ("since=1min%2030s&lines=2", 2, "a.service 1, at most 90s old"),
        ("since=infinity&lines=2", 2, "a.service 1"),
    ] {
        let response = server.get(&format!("{path}?{query}")).await;
        assert_eq!(response.body.lines().count(), lines, "{query}");
        assert_eq!(response.body.lines().next(), Some(first), "{query}");
    }
    let since = Some("1500ms".parse().unwrap());
    let options = JournalOptions::default().with_since(since);
    let mut journal = server.client().journal(&name("a.service"), &options).await.unwrap();
    let line = journal.next_line().await.unwrap().unwrap();
    assert_eq!(line, "a.service 1, at most 1.5s old");
}

#[tokio::test]
async fn interrupted_journal_is_an_error() {
    let server = placed("m1").await;
    let options = JournalOptions::default().with_lines(BREAKS);
    let mut journal = server.client().journal(&name("a.service"), &options).await.unwrap();
    for _ in 0..BREAKS {
        assert!(journal.next_line().await.unwrap().is_some(), "the preceding lines arrive");
    }
    let end = journal.next_line().await;
    assert!(matches!(end, Err(ClientError::Broken { .. })), "{end:?}");
}
