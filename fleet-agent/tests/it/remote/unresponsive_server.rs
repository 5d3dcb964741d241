//! The other process is connected but does nothing, for example because it is stopped or frozen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::remote::{
    RemoteConfig, RemoteManager, RequestHandler, ResponseSender, serve_with,
};
use fleet_agent::testing::FakeManager;
use fleet_agent::{Clock, ServiceError, ServiceManager, SystemClock};
use fleet_core::{Epoch, Generation, Timestamp};
use fleet_unitfile::UnitFile;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::served_manager::Served;
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
    let config = RemoteConfig {
        socket: served.socket(),
        directory: None,
        program: "test".to_owned(),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
    };
    RemoteManager::open(config).await.expect("it is served")
}

/// Sends the list of units, and then stops responding.
struct Stopped;

#[async_trait]
impl RequestHandler for Stopped {
    async fn handle(&self, ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        if ask["units"] == "watch" {
            response.send(&json!({ "here": [], "gone": [] })).await;
        }
        std::future::pending().await
    }
}

#[tokio::test]
async fn silent_server_counts_as_lost() {
    let (served, clock) = (Served::new(), Hand::new());
    let listener = UnixListener::bind(served.socket()).expect("it can listen");
    let server = serve_with(listener, Arc::new(Stopped), "test", Arc::new(SystemClock::start()));
    let server = tokio::spawn(server);
    let manager = open(&served, &clock).await;
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
    assert!((60_000..120_000).contains(&passed), "after {passed} ms");
    let listed = listing.await.expect("no panic");
    let is_why = matches!(&listed, Err(ServiceError::Unavailable(why)) if why.contains("stopped"));
    assert!(is_why, "{listed:?}");
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
