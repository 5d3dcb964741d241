//! What lies between a daemon and the store: who wrote what, and what is under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Something that knows none of fleet's rules.
    Stranger,
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

    /// The link, to be tampered with.
    pub(crate) fn link(&self) -> &FaultyStore {
        &self.link
    }

    /// Lets the next write arrive so much later; whoever sent it hears at once that nobody knows.
    pub(crate) fn hold_up_next(&self, time: Duration) {
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    /// Lets the next answer to a leader's writing name a revision that is far ahead, as if it were
    /// another cluster's in the same store.
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
