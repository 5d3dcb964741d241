//! A store in which somebody destroys a unit at the worst moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::{
    Commit, LeaseId, Listing, MemoryStore, Store, StoreError, Transaction, Watch, Write,
};

/// A store in memory, from which a unit can be taken as it is about to be launched.
#[derive(Clone, Default)]
pub(crate) struct Thief {
    store: Arc<MemoryStore>,
    wanted: Arc<Mutex<Option<String>>>,
}

impl Thief {
    /// Destroys this unit when somebody first wants it to be launched.
    pub(crate) fn steal_when_launched(&self, unit: &str) {
        *self.wanted.lock().unwrap() = Some(format!("/units/{unit}"));
    }

    /// The key to take now, if this transaction launches the unit.
    fn prey(&self, transaction: &Transaction) -> Option<String> {
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
impl Store for Thief {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.store.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        if let Some(key) = self.prey(&transaction) {
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
