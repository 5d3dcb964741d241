//! One of the two processes has another version, and keeps running while the other is upgraded.

use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::journal::JournalReader as _;
use fleet_agent::remote::{
    Connection, RequestHandler, ResponseSender, ServiceManagerHandler, serve_with,
};
use fleet_agent::testing::FakeManager;
use fleet_agent::{ServiceManager, SystemClock, UnitDetails};
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::served_manager::Served;
use crate::support::name;
use crate::wait::DEADLINE;

/// Sends only the text of lines, and does not know cursors.
struct Earlier;

#[async_trait]
impl RequestHandler for Earlier {
    async fn handle(&self, ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        let ask = &ask["units"];
        if ask == "watch" {
            response.send(&json!({ "here": [], "gone": [] })).await;
            std::future::pending::<()>().await;
        } else if ask.get("journal").is_some() {
            response.send(&["one"]).await;
            response.send(&["two", "three"]).await;
        } else {
            return Err(ServiceManagerHandler::unavailable(
                "request not understood: unknown variant",
            ));
        }
        Ok(())
    }
}

#[tokio::test]
async fn journals_of_earlier_version_are_read() {
    let served = Served::new();
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let clock = Arc::new(SystemClock::start());
    let server = tokio::spawn(serve_with(listener, Arc::new(Earlier), "test", clock));
    let (manager, unit) = (served.open().await, name("a.service"));
    let journal = manager.journal(&unit, JournalQuery::default()).await;
    let mut journal = journal.expect("the response is well formed");
    let lines = ["one", "two", "three"].map(JournalLine::new);
    for line in &lines {
        assert_eq!(journal.next_line().await.as_ref(), Some(line));
    }
    assert_eq!(journal.next_line().await, None);
    let journal =
        manager.journal(&unit, JournalQuery::default().with_after("a.cursor".to_owned())).await;
    let mut journal = journal.expect("it begins at the start");
    for line in [JournalLine::gap()].iter().chain(&lines) {
        assert_eq!(journal.next_line().await.as_ref(), Some(line));
    }
    let received = manager.details(&unit).await.expect("there are no details");
    assert_eq!(received, UnitDetails::default());
    server.abort();
}

/// The earlier version only understands lines of text.
#[tokio::test]
async fn earlier_version_can_read_journals() {
    let (mut served, machine, unit) = (Served::new(), FakeManager::new(), name("a.service"));
    served.begin(Arc::clone(&machine));
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
    machine.load(&unit, &file, Epoch(1)).await.expect("it loads");
    machine.start(&unit, Generation(1)).await.expect("it starts");
    machine.write(&unit, "one");
    let connection =
        Connection::connect(&served.socket(), "fleetd of once").await.expect("it listens");
    let query = json!({ "lines": null, "since": null, "follow": false });
    let ask = json!({ "units": { "journal": { "unit": "a.service", "query": query } } });
    let mut answer = connection.request(&ask).expect("it is sent");
    let mut lines = Vec::new();
    while let Some(part) = answer.next().await.expect("the response is well formed") {
        lines.extend(part.as_array().expect("a list").clone());
    }
    assert_eq!(lines, [json!("one")]);
}

/// The client gets the server's version and is disconnected; others are served.
#[tokio::test]
async fn client_of_other_version_gets_ours() {
    let (mut served, machine) = (Served::new(), FakeManager::new());
    served.begin(machine);
    let mut stream = UnixStream::connect(served.socket()).await.expect("it listens");
    let hello = json!({ "hello": { "version": 2, "program": "fleetd 9" } }).to_string();
    let ask = json!({ "request": { "id": 1, "body": { "units": "list" } } }).to_string();
    for frame in [hello, ask] {
        let length = u32::try_from(frame.len()).expect("it is short").to_be_bytes();
        stream.write_all(&[&length, frame.as_bytes()].concat()).await.expect("it reads");
    }
    let mut received = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut received)).await;
    // Some systems report that the last data was not read.
    drop(read.expect("it is disconnected"));
    let received: Value = serde_json::from_slice(&received[4..]).expect("it is one frame");
    assert_eq!(received, json!({ "hello": { "version": 1, "program": "test" } }));
    assert_eq!(served.open().await.list().await.expect("the call succeeds"), []);
}
