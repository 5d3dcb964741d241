//! Misbehaving clients affect no other client.

use std::sync::Arc;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::remote::{ChangedUnits, Connection, FileWire, ManagerRequest, RequestError};
use fleet_agent::testing::FakeManager;
use fleet_agent::{ManagedUnit, ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use futures_util::future::poll_immediate;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::served_manager::{Served, framed};
use crate::support::name;
use crate::wait::{DEADLINE, wait_until};

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
    // More than the buffers of a journal, a queue and a connection hold together.
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

/// Makes calls until one is refused. Returns the pending ones.
async fn flood(connection: &Arc<Connection>, call: fn() -> ManagerRequest) -> JoinSet<()> {
    let mut pending = JoinSet::new();
    for _ in 0..100_000 {
        let connection = Arc::clone(connection);
        let mut calling = Box::pin(async move { connection.call::<()>(call()).await });
        match poll_immediate(&mut calling).await {
            Some(Err(RequestError::Refused(why))) => {
                assert!(why.contains("too many requests"), "{why}");
                return pending;
            }
            Some(other) => panic!("{other:?}"),
            None => drop(pending.spawn(async move { drop(calling.await) })),
        }
    }
    panic!("it accepts everything");
}

#[tokio::test]
async fn request_flood_is_limited_per_connection() {
    let (served, machine) = served().await;
    let unit = name(UNIT);
    machine.hang_stop(&unit);
    let connection = Arc::new(served.connect().await);
    let stop = || ManagerRequest::Stop { unit: name(UNIT) };
    let other = served.open().await;
    // Cancelled requests free their capacity on both sides.
    for _ in 0..3 {
        let mut pending = flood(&connection, stop).await;
        assert_eq!(other.list().await.expect("the call succeeds").len(), 1);
        pending.shutdown().await;
        let listed: Vec<ManagedUnit> =
            connection.call(ManagerRequest::List).await.expect("there is room");
        assert_eq!(listed.len(), 1);
    }
    machine.release(&unit);
}

#[tokio::test]
async fn unknown_request_keeps_the_connection() {
    let (served, _machine) = served().await;
    let mut stream = UnixStream::connect(served.socket()).await.expect("it listens");
    let hello = json!({ "hello": { "version": 2, "program": "test" } });
    let requests =
        [json!({ "manager": { "dance": {} } }), json!(null), json!({ "manager": "list" })];
    stream.write_all(&framed(&hello)).await.expect("it reads");
    for (id, body) in requests.iter().enumerate() {
        let frame = json!({ "request": { "id": id, "body": body } });
        stream.write_all(&framed(&frame)).await.expect("it reads");
    }
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(UNIT) {
        stream.read_buf(&mut received).await.expect("it is connected");
    }
    let text = String::from_utf8_lossy(&received).into_owned();
    assert_eq!(text.matches("cannot decode the request").count(), 2, "{text}");
}

/// The client gets the server's version and is disconnected; others are served.
#[tokio::test]
async fn client_of_other_version_gets_ours() {
    let (served, _machine) = served().await;
    let mut stream = UnixStream::connect(served.socket()).await.expect("it listens");
    let hello = json!({ "hello": { "version": 1, "program": "fleetd 0" } });
    stream.write_all(&framed(&hello)).await.expect("it reads");
    let mut received = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut received)).await;
    read.expect("it is disconnected").expect("it can be read");
    let received: Value = serde_json::from_slice(&received[4..]).expect("it is one frame");
    assert_eq!(received, json!({ "hello": { "version": 2, "program": "test" } }));
    all_is_well(&served).await;
}

/// All calls are dropped, so no call counts as pending.
#[tokio::test]
async fn requests_to_stopped_server_are_limited() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let hello = framed(&json!({"hello": {"version": 2, "program": "stopped"}}));
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        stream.write_all(&hello).await.expect("it reads");
        stream
    });
    let connection = served.connect().await;
    let mut stream = server.await.expect("no panic");
    let call = async || {
        let mut calling = Box::pin(connection.call::<()>(ManagerRequest::List));
        poll_immediate(&mut calling).await.map(|result| result.expect_err("nothing responds"))
    };
    let mut refused = None;
    for _ in 0..100_000 {
        refused = call().await;
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(RequestError::Refused(_))), "{refused:?}");
    let reads = tokio::spawn(async move { stream.read_to_end(&mut Vec::new()).await });
    wait_until("there is room as soon as it reads", async || call().await.is_none()).await;
    drop(connection);
    reads.await.expect("no panic").expect("it reads to the end");
}

#[tokio::test]
async fn connection_can_load_and_watch_units() {
    let (served, machine) = served().await;
    let connection = served.connect().await;
    let mut watch = connection.stream(ManagerRequest::Watch).await.expect("it is served");
    let first: Option<ChangedUnits> = watch.next().await.expect("it has items");
    assert_eq!(first.expect("it has an item").here, [name(UNIT)]);
    let file = UnitFile::parse("[Service]\nExecStart=/bin/false\n").expect("it is well formed");
    let (unit, wire) = (name("b.service"), FileWire::from(&file));
    let load = ManagerRequest::Load { unit: unit.clone(), file: wire, epoch: 1 };
    connection.call::<()>(load).await.expect("it loads");
    let next: Option<ChangedUnits> = watch.next().await.expect("it has items");
    assert_eq!(next.expect("it has an item").here, std::slice::from_ref(&unit));
    let loaded = machine.get(&unit).await.expect("the call succeeds").expect("it is loaded");
    assert_eq!(loaded.known.hash, file.hash());
}

/// Serves a connection without its requests, and sends these frames on the next connection.
async fn sent_on_stream(listener: UnixListener, frames: Vec<Value>) -> (UnixStream, UnixStream) {
    let (mut calls, _) = listener.accept().await.expect("a client connects");
    let hello = framed(&json!({ "hello": { "version": 2, "program": "test" } }));
    calls.write_all(&hello).await.expect("it reads");
    let (mut stream, _) = listener.accept().await.expect("a client connects");
    let frames: Vec<u8> = frames.iter().flat_map(framed).collect();
    stream.write_all(&frames).await.expect("it reads");
    (calls, stream)
}

#[tokio::test]
async fn received_items_are_delivered_before_the_loss() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let hello = json!({ "hello": { "version": 2, "program": "test" } });
    let items = (0..30).map(|item| json!({ "item": { "id": 0, "body": item } }));
    let frames = [hello].into_iter().chain(items).collect();
    let server = tokio::spawn(sent_on_stream(listener, frames));
    let connection = served.connect().await;
    let mut stream = connection.stream(ManagerRequest::Watch).await.expect("it is served");
    let _sockets = server.await.expect("no panic");
    drop(connection);
    for item in 0..30 {
        assert_eq!(stream.next().await.expect("it has arrived"), Some(item));
    }
    let end = stream.next::<i32>().await;
    assert!(matches!(end, Err(RequestError::Lost(_))), "{end:?}");
}

#[tokio::test]
async fn refused_stream_names_the_reason() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let bye = json!({ "bye": "too many connections" });
    let server = tokio::spawn(sent_on_stream(listener, vec![bye]));
    let connection = served.connect().await;
    let error = connection.stream(ManagerRequest::Watch).await.expect_err("it is refused");
    let is_why = |why: &str| why.contains("too many connections");
    assert!(matches!(&error, RequestError::Refused(why) if is_why(why)), "{error:?}");
    let _sockets = server.await.expect("no panic");
    let error = connection.stream(ManagerRequest::Watch).await.expect_err("nothing listens");
    let is_why = |why: &str| why.contains("cannot connect") && why.contains("refused");
    assert!(matches!(&error, RequestError::Lost(why) if is_why(why)), "{error:?}");
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
            json!({"hello": {"version": 9, "program": "fleet-init 9"}}),
            "fleet-init 9 speaks version 9",
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
