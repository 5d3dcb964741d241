//! A store wrapper that counts and times calls, and remembers refused writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};

use super::failure::error_chain;
use super::metrics::Metrics;
use crate::clock::Stopwatch;

/// A store that counts and times its calls. Cancelled calls are not counted.
pub(super) struct MeteredStore {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl MeteredStore {
    pub(super) fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }

    async fn meter<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let watch = Stopwatch::start();
        let result = call.await;
        self.metrics.operation(name, result.is_ok(), watch.elapsed());
        result
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.meter("read", self.store.read(prefix)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let result = self.meter("commit", self.store.commit(transaction)).await;
        self.metrics.writes().note(&result);
        result
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.meter("watch", self.store.watch(prefix, after)).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.meter("grant", self.store.grant(ttl)).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.meter("renew", self.store.renew(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.meter("revoke", self.store.revoke(lease)).await
    }
}

/// The last write that a store refused, unless a later one succeeded.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteHealth(Arc<Mutex<Option<(Stopwatch, String)>>>);

impl WriteHealth {
    /// Time after which a refusal is no longer reported. A daemon without further writes could not
    /// notice that the store accepts writes again.
    const MAX_AGE: Duration = Duration::from_secs(60);

    fn note(&self, result: &Result<Commit, StoreError>) {
        let refusal = match result {
            Ok(_) => None,
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unknown(_))) => {
                Some((Stopwatch::start(), error_chain(error)))
            }
            // The store has decided on the transaction, so it can write.
            Err(_) => return,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Returns the error of the last write, if the store refused it within the last minute.
    pub(super) fn problem(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.filter(|(since, _)| since.elapsed() < Self::MAX_AGE).map(|(_, error)| error)
    }
}
