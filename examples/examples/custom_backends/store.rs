//! A custom store. This one keeps its state in a `Keyspace`. Yours could use a database, a log or a
//! server.
//!
//! `Keyspace` is the pure state machine on which fleet's own stores are built. It holds keys,
//! revisions, leases and recent changes, and takes the time as an argument. This file adds what
//! every store has to do around its state: serialize changes, notify the watches, and expire the
//! leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Revision, Timestamp};
use fleet_store::backend::{Keyspace, WatchSender};
use fleet_store::{Changes, Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};
use tokio::time::Instant;

/// Interval of lease checks. A lease may outlast its time to live by up to this interval.
const LEASE_CHECK: Duration = Duration::from_millis(20);

/// Number of revisions by which a watch may lag behind. If it lags further, the watch is dropped,
/// and its reader reads everything again. In this way, a writer never waits for a reader.
const WATCH_CAPACITY: usize = 256;

/// A store that lives as long as there is a handle to it.
pub(crate) struct OwnStore {
    began: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    keyspace: Keyspace,
    /// Each watch with its prefix.
    watches: Vec<(String, WatchSender)>,
}

impl OwnStore {
    /// Creates an empty store, and starts a task that expires its leases.
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
            inner.send(ended.changes);
        }
    }
}

impl Inner {
    /// Sends the changes of one revision to the watches for their prefixes. The caller holds the
    /// lock, so that every watch gets the revisions in order.
    fn send(&mut self, changes: Option<Changes>) {
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
        // The keyspace refuses operations on an expired lease, even before the next lease check.
        let outcome = inner.keyspace.apply(self.now(), &transaction)?;
        // A durable store would persist the changes here, before any reader can see them.
        inner.send(outcome.changes);
        Ok(outcome.commit)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let mut inner = self.lock();
        // Both happen under one lock: earlier changes are in the backlog and later ones are sent,
        // so none is lost.
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
            inner.send(ended.changes);
        }
        Ok(())
    }
}
