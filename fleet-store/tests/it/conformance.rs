//! Every backend keeps the contract.

use std::sync::Arc;

use fleet_store::testing::{
    FAULT_PROMISES, FaultInjector, FaultyStore, PROMISES, conformance, conformance_under_faults,
};
use fleet_store::{MemoryStore, Store};

use crate::support::memory;

#[tokio::test(start_paused = true)]
async fn memory_store_keeps_the_contract_in_paused_time() {
    conformance(|| async { memory() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_store_keeps_the_contract_in_real_time() {
    conformance(|| async { memory() }).await;
}

/// The suite's fault injection must not break a store without faults.
#[tokio::test(start_paused = true)]
async fn faulty_store_without_faults_keeps_the_contract() {
    conformance(|| async { Arc::new(FaultyStore::new(memory())) as Arc<dyn Store> }).await;
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_store_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    let make = || async {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.path().join(format!("{number}.redb"));
        let store = fleet_store::EmbeddedStore::open(path).await.unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    conformance(make).await;
}

fn with_faults(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<dyn FaultInjector>) {
    let store = FaultyStore::new(store);
    (Arc::new(store.clone()), Arc::new(store))
}

#[tokio::test(start_paused = true)]
async fn memory_store_keeps_the_contract_under_faults() {
    conformance_under_faults(|| async { with_faults(memory()) }).await;
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_keeps_the_contract_under_faults() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    let make = || async {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.path().join(format!("{number}.redb"));
        with_faults(Arc::new(fleet_store::EmbeddedStore::open(path).await.unwrap()))
    };
    conformance_under_faults(make).await;
}

/// A store that breaks one promise: its leases never end.
struct EndlessLeases(MemoryStore);

#[async_trait::async_trait]
impl Store for EndlessLeases {
    async fn read(&self, prefix: &str) -> Result<fleet_store::Listing, fleet_store::StoreError> {
        self.0.read(prefix).await
    }

    async fn commit(
        &self,
        transaction: fleet_store::Transaction,
    ) -> Result<fleet_store::Commit, fleet_store::StoreError> {
        self.0.commit(transaction).await
    }

    async fn watch(
        &self,
        prefix: &str,
        after: fleet_core::Revision,
    ) -> Result<fleet_store::Watch, fleet_store::StoreError> {
        self.0.watch(prefix, after).await
    }

    async fn grant(
        &self,
        _ttl: std::time::Duration,
    ) -> Result<fleet_store::LeaseId, fleet_store::StoreError> {
        self.0.grant(std::time::Duration::MAX).await
    }

    async fn renew(&self, lease: fleet_store::LeaseId) -> Result<(), fleet_store::StoreError> {
        self.0.renew(lease).await
    }

    async fn revoke(&self, lease: fleet_store::LeaseId) -> Result<(), fleet_store::StoreError> {
        self.0.revoke(lease).await
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "lease_end_deletes_its_keys_in_one_revision")]
async fn conformance_names_the_broken_promise() {
    conformance(|| async { Arc::new(EndlessLeases(MemoryStore::new())) as Arc<dyn Store> }).await;
}

#[test]
fn promises_are_unique() {
    let all = [PROMISES, FAULT_PROMISES].concat();
    let names: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(names.len(), all.len());
}
