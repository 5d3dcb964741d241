//! The other process is connected but does nothing, for example because it is stopped or frozen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::journal::JournalReader as _;
use fleet_agent::remote::{Connection, ManagerRequest, RemoteConfig, RemoteManager, RequestError};
use fleet_agent::testing::FakeManager;
use fleet_agent::{Clock, ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation, Timestamp};
use fleet_unitfile::UnitFile;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::served_manager::{Served, framed};
use crate::support::name;
use crate::wait::wait_until;

/// A clock that the test advances.
struct Hand(watch::Sender<Timestamp>);

#[async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut time = self.0.subscribe();
        time.wait_for(|now| *now >= at).await.expect("it is there");
    }
}

impl Hand {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Timestamp::from_millis(0))))
    }

    fn pass(&self, time: Duration) {
        self.0.send_modify(|now| *now = now.after(time));
    }

    /// Returns the number of tasks that wait for a deadline.
    fn sleepers(&self) -> usize {
        self.0.receiver_count()
    }
}

async fn open(served: &Served, clock: &Arc<Hand>) -> Arc<RemoteManager> {
    let mut config = RemoteConfig::new(served.socket(), "test");
    config.clock = Arc::clone(clock) as Arc<dyn Clock>;
    RemoteManager::open(config).await.expect("it is served")
}

/// Sends a handshake to each client, and one item to each stream. Then it stops responding.
async fn serve_and_stop(listener: UnixListener) {
    let mut clients = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        let (mut received, mut is_greeted) = (Vec::new(), false);
        clients.push(tokio::spawn(async move {
            while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&received).into_owned();
                let mut frames = Vec::new();
                if !std::mem::replace(&mut is_greeted, true) {
                    frames.push(json!({ "hello": { "version": 2, "program": "test" } }));
                }
                if text.contains("watch") {
                    let body = json!({ "here": [], "gone": [] });
                    frames.push(json!({ "item": { "id": 0, "body": body } }));
                }
                if text.contains("journal") {
                    let body = json!([{ "at": null, "text": "one", "cursor": null }]);
                    frames.push(json!({ "item": { "id": 0, "body": body } }));
                }
                if frames.iter().any(|frame| frame.get("item").is_some()) {
                    received.clear();
                }
                for frame in frames {
                    stream.write_all(&framed(&frame)).await.expect("it reads");
                }
            }
        }));
    }
}

#[tokio::test]
async fn silent_server_counts_as_lost() {
    let (served, clock) = (Served::new(), Hand::new());
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let server = tokio::spawn(serve_and_stop(listener));
    let (manager, unit) = (open(&served, &clock).await, name("a.service"));
    let query = JournalQuery::default().with_follow(true);
    let mut journal = manager.journal(&unit, query).await.expect("it sends a line");
    assert_eq!(journal.next().await.as_deref(), Some("one"));
    let listing = {
        let manager = Arc::clone(&manager);
        tokio::spawn(async move { manager.list().await })
    };
    let is_sent = async || {
        clock.pass(Duration::from_secs(1));
        listing.is_finished()
    };
    wait_until("it is sent", is_sent).await;
    let passed = clock.now().as_millis();
    assert!((30_000..60_000).contains(&passed), "after {passed} ms");
    let listed = listing.await.expect("no panic");
    let is_why = |error: &ServiceError| error.to_string().contains("does not respond");
    assert!(listed.as_ref().is_err_and(is_why), "{listed:?}");
    assert_eq!(journal.next().await, None, "its server does not respond either");
    assert!(journal.failure().as_ref().is_some_and(is_why));
    server.abort();
}

#[tokio::test]
async fn missing_handshake_times_out() {
    let (served, clock) = (Served::new(), Hand::new());
    let _listener = UnixListener::bind(served.socket()).expect("it can listen");
    let connecting = {
        let (socket, clock) = (served.socket(), Arc::clone(&clock) as Arc<dyn Clock>);
        tokio::spawn(async move { Connection::connect(&socket, "test", clock).await })
    };
    let is_over = async || {
        clock.pass(Duration::from_secs(1));
        connecting.is_finished()
    };
    wait_until("it gives up", is_over).await;
    let error = connecting.await.expect("no panic").expect_err("nothing responds").to_string();
    assert!(error.contains("does not respond"), "{error}");
}

/// Sends a handshake to this number of clients, and only responds to their pings.
async fn greet(listener: UnixListener, mut clients: usize) {
    let mut tasks = JoinSet::new();
    while clients > 0 {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        clients -= 1;
        tasks.spawn(async move {
            let hello = json!({ "hello": { "version": 2, "program": "test" } });
            stream.write_all(&framed(&hello)).await.expect("it reads");
            let mut received = Vec::new();
            while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
                if String::from_utf8_lossy(&received).contains("ping") {
                    stream.write_all(&framed(&json!("pong"))).await.expect("it reads");
                    received.clear();
                }
            }
        });
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn stream_without_handshake_times_out() {
    let (served, clock) = (Served::new(), Hand::new());
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let server = tokio::spawn(greet(listener, 1));
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let connection = Connection::connect(&served.socket(), "test", time).await.expect("it greets");
    let opening = tokio::spawn(async move {
        let opened = connection.stream(ManagerRequest::Watch).await;
        opened.expect_err("the second connection has no handshake")
    });
    let is_over = async || {
        clock.pass(Duration::from_secs(1));
        opening.is_finished()
    };
    wait_until("it gives up", is_over).await;
    let error = opening.await.expect("no panic");
    let is_why = |why: &str| why.contains("does not respond");
    assert!(matches!(&error, RequestError::Refused(why) if is_why(why)), "{error}");
    server.abort();
}

#[tokio::test]
async fn missing_list_of_units_times_out() {
    let (served, clock) = (Served::new(), Hand::new());
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let server = tokio::spawn(greet(listener, 2));
    let mut config = RemoteConfig::new(served.socket(), "test");
    config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let opening = tokio::spawn(RemoteManager::open(config));
    let is_over = async || {
        clock.pass(Duration::from_secs(1));
        opening.is_finished()
    };
    wait_until("it gives up", is_over).await;
    let error = opening.await.expect("no panic").err().expect("there is no list").to_string();
    assert!(error.contains("does not respond"), "{error}");
    server.abort();
}

#[tokio::test]
async fn slow_response_does_not_lose_the_connection() {
    let (mut served, machine, clock) = (Served::new(), FakeManager::new(), Hand::new());
    served.begin(Arc::clone(&machine));
    let (manager, unit) = (open(&served, &clock).await, name("a.service"));
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
    machine.hang_stop(&unit);
    manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
    manager.start(&unit, Generation(1)).await.expect("it starts");
    let stop = {
        let (manager, unit) = (Arc::clone(&manager), unit.clone());
        tokio::spawn(async move { manager.stop(&unit).await })
    };
    let minutes = async || {
        clock.pass(Duration::from_secs(1));
        clock.now().as_millis() >= 300_000
    };
    wait_until("minutes pass", minutes).await;
    assert!(!stop.is_finished(), "it is still stopping");
    machine.release(&unit);
    stop.await.expect("no panic").expect("it is stopped");
    // Without pending requests no time is measured.
    clock.pass(Duration::from_secs(60));
    wait_until("no call waits", async || clock.sleepers() == 0).await;
}
