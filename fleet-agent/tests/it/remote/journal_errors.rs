//! A journal that ends early in the other process reports the reason in this one.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fleet_agent::journal::Journal;
use fleet_agent::journal::JournalReader as _;
use fleet_agent::remote::{Connection, RequestError, RequestHandler, ResponseSender, serve_with};
use fleet_agent::{NativeConfig, NativeManager, ServiceError, ServiceManager, SystemClock};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::served_manager::Served;
use crate::support::name;

#[tokio::test]
async fn missing_log_error_reaches_the_client() {
    let mut served = Served::new();
    let (home, gate) = (served.directory.path().join("n"), served.directory.path().join("gate"));
    let native = NativeManager::open(NativeConfig::new(&home)).await.expect("it opens");
    served.begin(Arc::clone(&native));
    let (manager, unit) = (served.open().await, name("a.service"));
    let waits = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let script = format!("echo one; {waits}; echo two; exec sleep 100000");
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/sh -c '{script}'\n"));
    manager.load(&unit, &file.expect("it is well formed"), Epoch(1)).await.expect("it loads");
    manager.start(&unit, Generation(1)).await.expect("it starts");
    let query = JournalQuery::default().with_follow(true);
    let mut journal = manager.journal(&unit, query).await.expect("it can be followed");
    assert_eq!(journal.next().await.as_deref(), Some("one"));

    std::fs::remove_file(home.join("units/a.service/log")).expect("it is there");
    std::fs::write(gate, "").expect("it can be created");
    assert_eq!(journal.next().await, None, "it cannot be read any more");
    let failure = journal.failure();
    let is_why = matches!(&failure, Some(ServiceError::Io { source, .. })
        if source.kind() == ErrorKind::NotFound);
    assert!(is_why, "{failure:?}");
    manager.unload(&unit).await.expect("it ends");
}

/// Responds with one journal, like `fleet-init logs`.
struct Plain(Mutex<Option<Journal>>);

#[async_trait]
impl RequestHandler for Plain {
    async fn handle(&self, _ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        let journal = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let journal = journal.expect("it is asked once");
        response.send_journal(journal).await.map_err(|error| json!(error.to_string()))
    }
}

#[tokio::test]
async fn plain_journal_ends_with_its_error() {
    let served = Served::new();
    let (sender, broken, journal) = Journal::fallible();
    sender.send("one".to_owned().into()).await.expect("there is room");
    broken.send(ServiceError::Unavailable("its disk is gone".to_owned())).expect("it is read");
    drop(sender);
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let (service, clock) = (Plain(Mutex::new(Some(journal))), SystemClock::start());
    let server = tokio::spawn(serve_with(listener, Arc::new(service), "test", Arc::new(clock)));
    let connection = Connection::connect(&served.socket(), "test").await.expect("it listens");
    let mut answer = connection.request(&json!("logs")).expect("it is sent");
    let mut lines = Vec::new();
    let why = loop {
        match answer.next().await {
            Ok(Some(part)) => {
                lines.extend(serde_json::from_value::<Vec<String>>(part).expect("lines"));
            }
            end => break end,
        }
    };
    assert_eq!(lines, ["one"]);
    let is_why =
        matches!(&why, Err(RequestError::Failed(why)) if why.to_string().contains("its disk"));
    assert!(is_why, "{why:?}");
    server.abort();
}
