//! A store wrapper that counts and times calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};

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
        self.meter("commit", self.store.commit(transaction)).await
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
