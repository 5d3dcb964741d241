//! A store that destroys a unit in the middle of a command.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::{
    Commit, LeaseId, Listing, MemoryStore, Store, StoreError, Transaction, Watch, Write,
};

/// A memory store that can destroy a unit right before it is launched.
#[derive(Clone, Default)]
pub(crate) struct RacingStore {
    store: Arc<MemoryStore>,
    wanted: Arc<Mutex<Option<String>>>,
}

impl RacingStore {
    /// Destroys this unit before the first commit that launches it.
    pub(crate) fn destroy_on_launch(&self, unit: &str) {
        *self.wanted.lock().unwrap() = Some(format!("/units/{unit}"));
    }

    /// Returns the unit's key if this transaction launches it.
    fn launched_key(&self, transaction: &Transaction) -> Option<String> {
        let mut wanted = self.wanted.lock().unwrap();
        let end = wanted.clone()?;
        let launches = |write: &&Write| match write {
            Write::Put { key, value, .. } => {
                key.ends_with(&end) && String::from_utf8_lossy(value).contains("launched")
            }
            Write::Delete { .. } => false,
        };
        let key = transaction.writes.iter().find(launches)?.key().to_owned();
        *wanted = None;
        Some(key)
    }
}

#[async_trait]
impl Store for RacingStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        if let Some(key) = self.launched_key(&transaction) {
            self.store.commit(Transaction::new().delete(key)).await?;
        }
        self.store.commit(transaction).await
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
