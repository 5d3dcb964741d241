//! The watchdog reports loops that hang, even in an await.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::agent::StateKey;
use fleet_agent::testing::FakeManager;
use fleet_agent::watchdog::MAX_BUSY;
use fleet_agent::{Agent, AgentConfig, AgentState, MemoryState, ShutdownTrigger};
use fleet_core::{Revision, Timestamp};
use fleet_store::backend::WatchSender;
use fleet_store::registry::MachineRecord;
use fleet_store::{
    Commit, LeaseId, Listing, MemoryStore, Mirror, Registry, Store, StoreError, Transaction, Watch,
};

use crate::support::wait_until;

/// A state store that never responds.
struct LostNotes;

#[async_trait]
impl AgentState for LostNotes {
    async fn read(&self, _note: StateKey) -> io::Result<Option<Vec<u8>>> {
        std::future::pending().await
    }

    async fn write(&self, _note: StateKey, _content: Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

/// A store whose watches fall silent, which violates its contract.
#[derive(Debug)]
struct MuteStore {
    store: MemoryStore,
    watches: Mutex<Vec<WatchSender>>,
}

#[async_trait]
impl Store for MuteStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.store.commit(transaction).await
    }

    async fn watch(&self, _prefix: &str, _after: Revision) -> Result<Watch, StoreError> {
        let (sender, watch) = Watch::channel(1);
        self.watches.lock().unwrap().push(sender);
        Ok(watch)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.store.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke(lease).await
    }
}

/// Runs an agent, and waits until its watchdog reports these loops.
async fn hangs(store: Arc<dyn Store>, state: Arc<dyn AgentState>, expected: &[&str]) {
    let registry = Registry::new(store, "/watchdog");
    let (trigger, shutdown) = ShutdownTrigger::new();
    let mirror = Mirror::start(&registry);
    mirror.wait_current().await.unwrap();
    let machine = MachineRecord::new("m1".parse().unwrap());
    let mut config =
        AgentConfig::new(machine, "token", registry, mirror, FakeManager::new(), state);
    config.ttl = Duration::from_secs(60);
    let mut agent = Agent::start(config, &shutdown);
    agent.joined().await;
    let mut now = Timestamp::from_millis(0);
    let just_before = MAX_BUSY - Duration::from_millis(1);
    wait_until("all tasks are responsive at first", async || {
        agent.watchdog().check(now.after(just_before)).is_empty()
    })
    .await;
    // Each check comes when the busy periods observed by the previous one should be over.
    wait_until(&format!("these hang: {expected:?}"), async || {
        now = now.after(MAX_BUSY * 2);
        agent.watchdog().check(now) == expected
    })
    .await;
    trigger.fire();
}

#[tokio::test]
async fn task_stuck_in_await_is_reported() {
    let store = Arc::new(MemoryStore::new());
    hangs(store.clone(), Arc::new(MemoryState::default()), &[]).await;
    hangs(store, Arc::new(LostNotes), &["fence", "reconcile"]).await;
}

#[tokio::test]
async fn mirror_that_stops_following_is_reported() {
    let store = Arc::new(MuteStore { store: MemoryStore::new(), watches: Mutex::default() });
    hangs(store, Arc::new(MemoryState::default()), &["mirror"]).await;
}
