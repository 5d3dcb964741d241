//! Connections between daemons and the store: authors of writes, and writes in flight.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::testing::FaultyStore;
use fleet_store::{Commit, LeaseId, Listing, MemoryStore, Store, StoreError, Transaction, Watch};

/// Author of a write. Revisions without an author are ends of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// A user of the API.
    Person,
    /// The daemon of this machine.
    Daemon(usize),
    /// A writer that knows none of fleet's rules.
    Stranger,
}

/// The authors of all revisions of one store.
pub(crate) type Authors = Arc<Mutex<BTreeMap<Revision, Author>>>;

/// One author's connection to the store.
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
            // A write without changes returns the revision of another one.
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

/// A daemon's connection to the store: a write that was sent arrives, even if its daemon has ended,
/// or has given up on it.
#[derive(Clone)]
pub(crate) struct Wire {
    link: FaultyStore,
    late: Arc<Mutex<Option<Duration>>>,
    ahead: Arc<AtomicBool>,
}

impl Wire {
    pub(crate) fn new(link: FaultyStore) -> Self {
        Self { link, late: Arc::default(), ahead: Arc::default() }
    }

    /// Returns the fault injector of the connection.
    pub(crate) fn link(&self) -> &FaultyStore {
        &self.link
    }

    /// Delays the next write by this time; its sender gets an unknown outcome at once.
    pub(crate) fn hold_up_next(&self, time: Duration) {
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    /// Makes the next response to a leader's write have a far higher revision, as if it belonged to
    /// another cluster in the same store.
    pub(crate) fn answer_ahead(&self) {
        self.ahead.store(true, Ordering::Relaxed);
    }

    fn told(&self, answer: Commit, by_leader: bool) -> Commit {
        match answer {
            Commit::Applied(revision) if by_leader && self.ahead.swap(false, Ordering::Relaxed) => {
                Commit::Applied(Revision(revision.0 + 1_000_000))
            }
            other => other,
        }
    }
}

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

#[async_trait]
impl Store for Wire {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.link.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner).take();
        let by_leader = transaction.writes.iter().any(|write| write.key().ends_with("/placed"));
        let link = self.link.clone();
        let sent = tokio::spawn(async move {
            if let Some(time) = late {
                wait(time).await;
            }
            link.commit(transaction).await
        });
        match late {
            Some(_) => Err(StoreError::Unknown("the answer is late".into())),
            None => {
                let answer = sent.await.expect("a store does not panic")?;
                Ok(self.told(answer, by_leader))
            }
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.link.watch(prefix, after).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.link.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.link.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.link.revoke(lease).await
    }
}
