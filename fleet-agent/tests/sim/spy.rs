//! What lies between a daemon and the store: who wrote what, and what is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::testing::FaultyStore;
use fleet_store::{Commit, LeaseId, Listing, MemoryStore, Store, StoreError, Transaction, Watch};

/// Who writes to the store. What no author wrote is the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// Whoever uses the API.
    Person,
    /// The daemon of this machine.
    Daemon(usize),
}

/// The authors of all revisions of one store.
pub(crate) type Authors = Arc<Mutex<BTreeMap<Revision, Author>>>;

/// One author's way to the store.
pub(crate) struct Spy {
    pub(crate) author: Author,
    pub(crate) authors: Authors,
    pub(crate) store: Arc<MemoryStore>,
}

#[async_trait]
impl Store for Spy {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let writes = !transaction.writes.is_empty();
        let result = self.store.commit(transaction).await;
        if let (true, Ok(Commit::Applied(revision))) = (writes, &result) {
            let mut authors = self.authors.lock().unwrap_or_else(PoisonError::into_inner);
            // A write that changes nothing answers with the revision of another one.
            authors.entry(*revision).or_insert(self.author);
        }
        result
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.store.watch(prefix, after).await
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

/// A daemon's way to the store: a write that was sent arrives, even if the daemon that sent it has
/// ended, or has given up on it.
pub(crate) struct Wire(pub(crate) FaultyStore);

#[async_trait]
impl Store for Wire {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.0.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let link = self.0.clone();
        let sent = tokio::spawn(async move { link.commit(transaction).await });
        sent.await.expect("a store does not panic")
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.0.watch(prefix, after).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.0.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.0.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.0.revoke(lease).await
    }
}
