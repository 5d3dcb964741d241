//! A store of your own. Where this one has a `Keyspace`, yours has a database, a log or a server.
//!
//! `Keyspace` is the pure state machine below fleet's own stores: it knows keys, revisions, leases
//! and the changes of late, and is handed the time. What is left is what every store does around
//! its state: it takes one change at a time, tells the watches, and ends the leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Revision, Timestamp};
use fleet_store::{
    Changes, Commit, Keyspace, LeaseId, Listing, Store, StoreError, Transaction, Watch, WatchSender,
};
use tokio::time::Instant;

/// How often leases are looked at, so by how much one may outlast its time to live.
const LEASE_CHECK: Duration = Duration::from_millis(20);

/// How many revisions a watch may be behind before it is cut off. Its reader then reads everything
/// again; a writer never waits for it.
const WATCH_CAPACITY: usize = 256;

/// A store that lives as long as somebody has it.
pub(crate) struct OwnStore {
    began: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    keyspace: Keyspace,
    /// Each watch with the prefix that it is about.
    watches: Vec<(String, WatchSender)>,
}

impl OwnStore {
    /// An empty store, and a task that ends its leases.
    pub(crate) fn open() -> Arc<Self> {
        let inner = Inner { keyspace: Keyspace::new(), watches: Vec::new() };
        let store = Arc::new(Self { began: Instant::now(), inner: Mutex::new(inner) });
        let weak = Arc::downgrade(&store);
        tokio::spawn(async move {
            while let Some(store) = weak.upgrade() {
                store.end_leases();
                drop(store);
                tokio::time::sleep(LEASE_CHECK).await;
            }
        });
        store
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).after(self.began.elapsed())
    }

    fn end_leases(&self) {
        let mut inner = self.lock();
        for ended in inner.keyspace.expire(self.now()) {
            inner.tell(ended.changes);
        }
    }
}

impl Inner {
    /// Hands the changes of one revision to the watches that they concern. This happens under the
    /// lock, so every watch sees the revisions in their order.
    fn tell(&mut self, changes: Option<Changes>) {
        let Some(changes) = changes else { return };
        self.watches.retain_mut(|(prefix, watch)| match changes.under(prefix) {
            Some(changes) => watch.try_send(changes),
            None => !watch.is_closed(),
        });
    }
}

#[async_trait]
impl Store for OwnStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.lock().keyspace.read(prefix))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let mut inner = self.lock();
        // The keyspace refuses what rests on a lease whose time is over, whether or not it was
        // looked at since.
        let outcome = inner.keyspace.apply(self.now(), &transaction)?;
        // A store that is to outlive the process makes the changes durable here, before anybody
        // hears of them.
        inner.tell(outcome.changes);
        Ok(outcome.commit)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let mut inner = self.lock();
        // Both under one lock: what came before is in the backlog, the rest will be told, and
        // nothing falls between the two.
        let backlog = inner.keyspace.changes_after(after, prefix)?;
        let (sender, watch) = Watch::with_backlog(backlog, WATCH_CAPACITY);
        inner.watches.push((prefix.to_owned(), sender));
        Ok(watch)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        Ok(self.lock().keyspace.grant(self.now(), ttl))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.lock().keyspace.renew(self.now(), lease)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if let Some(ended) = inner.keyspace.revoke(lease) {
            inner.tell(ended.changes);
        }
        Ok(())
    }
}
