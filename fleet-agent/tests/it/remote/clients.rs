//! Misbehaving clients affect no other client.

use std::sync::Arc;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::remote::{Connection, RequestError};
use fleet_agent::testing::FakeManager;
use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::served_manager::Served;
use crate::support::{name, wait_until};

const UNIT: &str = "a.service";

async fn served() -> (Served, Arc<FakeManager>) {
    let (mut served, machine) = (Served::new(), FakeManager::new());
    served.begin(Arc::clone(&machine));
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
    let unit = name(UNIT);
    machine.load(&unit, &file, Epoch(1)).await.expect("it loads");
    machine.start(&unit, Generation(1)).await.expect("it starts");
    (served, machine)
}

/// Checks that another client is served normally.
async fn all_is_well(served: &Served) {
    let manager = served.open().await;
    let listed = manager.list().await.expect("the call succeeds");
    assert_eq!(listed.len(), 1);
    manager.restart(&name(UNIT), Generation(9)).await.expect("it accepts requests");
}

#[tokio::test]
async fn silent_and_invalid_clients_block_no_other() {
    let (served, _machine) = served().await;
    let mut others = Vec::new();
    for noise in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02{}", b"\0\0\0\x01"] {
        let mut stream = UnixStream::connect(served.socket()).await.expect("it listens");
        stream.write_all(noise).await.expect("it can be written");
        others.push(stream);
    }
    all_is_well(&served).await;
}

#[tokio::test]
async fn slow_journal_reader_blocks_no_other_client() {
    let (served, machine) = served().await;
    // More than the buffers of a journal, a connection and a window hold together.
    let lines: Vec<String> = (0..1500).map(|line| format!("{line} {}", "x".repeat(9000))).collect();
    lines.iter().for_each(|line| machine.write(&name(UNIT), line));
    let slow = served.open().await;
    let query = JournalQuery::default();
    let mut journal = slow.journal(&name(UNIT), query).await.expect("a journal");
    // The same connection accepts other requests.
    slow.restart(&name(UNIT), Generation(2)).await.expect("it accepts requests");
    assert_eq!(slow.list().await.expect("the call succeeds").len(), 1);
    for line in &lines {
        assert_eq!(journal.next().await.as_ref(), Some(line));
    }
}

#[tokio::test]
async fn request_flood_is_limited_per_connection() {
    let (served, machine) = served().await;
    let unit = name(UNIT);
    machine.hang_stop(&unit);
    let connection = Connection::connect(&served.socket(), "test").await.expect("it listens");
    let stop = json!({"units": {"stop": {"unit": UNIT}}});
    let other = served.open().await;
    // Cancelled requests free their capacity on both sides.
    for _ in 0..3 {
        let mut responses = Vec::new();
        let refused = loop {
            match connection.request(&stop) {
                Ok(answer) => responses.push(answer),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, RequestError::Refused(_)), "{refused:?}");
        assert_eq!(other.list().await.expect("the call succeeds").len(), 1);
        drop(responses);
        let mut answer = connection.request(&json!({"units": "list"})).expect("there is room");
        assert!(answer.next().await.expect("it is answered").is_some());
    }
    machine.release(&unit);
}

#[tokio::test]
async fn unknown_request_keeps_the_connection() {
    let (served, _machine) = served().await;
    let connection = Connection::connect(&served.socket(), "test").await.expect("it listens");
    for ask in [json!({"units": {"dance": {}}}), json!(null), json!({"units": {"get": {}}})] {
        let failed = connection.request(&ask).expect("it is sent").next().await;
        let Err(RequestError::Failed(error)) = failed else { panic!("{failed:?}") };
        assert!(error.to_string().contains("not understood"), "{error}");
    }
    let mut answer =
        connection.request(&json!({"units": {"get": {"unit": UNIT}}})).expect("it is sent");
    let found = answer.next().await.expect("it is answered").expect("there is an item");
    assert_eq!(found["unit"], UNIT);
}

/// Encodes a frame with its length.
fn framed(frame: &Value) -> Vec<u8> {
    let text = frame.to_string();
    let length = u32::try_from(text.len()).expect("it is short").to_be_bytes();
    [&length, text.as_bytes()].concat()
}

/// All responses are dropped, so no request counts as pending.
#[tokio::test]
async fn requests_to_stopped_server_are_limited() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let hello = framed(&json!({"hello": {"version": 1, "program": "stopped"}}));
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        stream.write_all(&hello).await.expect("it reads");
        stream
    });
    let connection = Connection::connect(&served.socket(), "test").await.expect("it listens");
    let mut stream = server.await.expect("no panic");
    let ask = || connection.request(&json!({"units": "list"}));
    let refused = (0..100_000).find_map(|_| ask().err());
    assert!(matches!(refused, Some(RequestError::Refused(_))), "{refused:?}");
    let reads = tokio::spawn(async move { stream.read_to_end(&mut Vec::new()).await });
    wait_until("there is room as soon as it reads", async || ask().is_ok()).await;
    drop(connection);
    reads.await.expect("no panic").expect("it reads to the end");
}

/// Runs a server that sends one frame, whatever it receives.
async fn answered(served: &Served, frame: &Value) -> ServiceError {
    drop(std::fs::remove_file(served.socket()));
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let frame = framed(frame);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        stream.write_all(&frame).await.expect("it reads");
        stream.read_to_end(&mut Vec::new()).await.expect("the stream is readable");
    });
    let error = served.try_open().await.err().expect("it is not opened");
    server.await.expect("no panic");
    error
}

#[tokio::test]
async fn other_servers_are_refused_with_a_reason() {
    let served = Served::new();
    let rows = [
        (
            json!({"hello": {"version": 2, "program": "fleet-init 9"}}),
            "fleet-init 9 speaks version 2",
        ),
        (json!({"bye": "too many connections"}), "too many connections"),
        (json!({"cancel": {"id": 1}}), "not served by fleet-init"),
        (json!("?"), "not served by fleet-init"),
    ];
    for (frame, expected) in rows {
        let error = answered(&served, &frame).await;
        assert!(error.to_string().contains(expected), "{frame}: {error}");
    }
}
