//! Every backend keeps the contract.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::testing::{
    FAULT_PROMISES, FaultInjector, FaultyStore, PROMISES, REOPENING_PROMISES, Reopen, conformance,
    conformance_after_reopening, conformance_under_faults, lease_survives_reopening,
};
use fleet_store::{
    Changes, Commit, LeaseId, Listing, MemoryStore, Store, StoreError, Transaction, Watch,
};

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

#[cfg(feature = "embedded")]
#[derive(Default)]
struct Reopened {
    folder: Option<tempfile::TempDir>,
    open: std::sync::Mutex<Option<Arc<fleet_store::EmbeddedStore>>>,
}

#[cfg(feature = "embedded")]
#[async_trait]
impl Reopen for Reopened {
    async fn reopen(&self) -> Arc<dyn Store> {
        let open = self.open.lock().unwrap().take();
        if let Some(open) = open {
            Arc::into_inner(open).expect("the caller has dropped the store").close().await;
        }
        let path = self.folder.as_ref().unwrap().path().join("store.redb");
        let store = Arc::new(fleet_store::EmbeddedStore::open(path).await.unwrap());
        *self.open.lock().unwrap() = Some(store.clone());
        store
    }
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_keeps_the_contract_after_reopening() {
    let make = || async {
        let folder = Some(tempfile::tempdir().unwrap());
        Arc::new(Reopened { folder, ..Reopened::default() }) as Arc<dyn Reopen>
    };
    conformance_after_reopening(make).await;
}

/// The promise that a store breaks.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    /// Its leases never end.
    EndlessLeases,
    /// A watch from an earlier revision delivers the changes of a revision one by one.
    SplitBacklog,
}

/// A store that breaks one promise.
struct Broken(MemoryStore, Flaw);

#[async_trait]
impl Store for Broken {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.0.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.0.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let mut inner = self.0.watch(prefix, after).await?;
        if self.1 != Flaw::SplitBacklog {
            return Ok(inner);
        }
        let now = self.0.read("").await?.revision;
        let (mut sender, outer) = Watch::channel(64);
        tokio::spawn(async move {
            while let Ok(Changes { revision, changes }) = inner.next().await {
                let size = if revision <= now { 1 } else { changes.len().max(1) };
                for part in changes.chunks(size) {
                    let changes = part.to_vec();
                    if !sender.send(Changes { revision, changes }).await {
                        return;
                    }
                }
            }
        });
        Ok(outer)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.0.grant(if self.1 == Flaw::EndlessLeases { Duration::MAX } else { ttl }).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.0.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.0.revoke(lease).await
    }
}

async fn check_broken(flaw: Flaw) {
    conformance(|| async { Arc::new(Broken(MemoryStore::new(), flaw)) as Arc<dyn Store> }).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "lease_end_deletes_its_keys_in_one_revision")]
async fn conformance_detects_endless_leases() {
    check_broken(Flaw::EndlessLeases).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "watch_from_past_delivers_whole_revisions")]
async fn conformance_detects_a_split_backlog() {
    check_broken(Flaw::SplitBacklog).await;
}

/// A store that forgets its data, or only its leases, when it is reopened.
struct Forgetful {
    current: std::sync::Mutex<Arc<MemoryStore>>,
    only_leases: bool,
}

#[async_trait]
impl Reopen for Forgetful {
    async fn reopen(&self) -> Arc<dyn Store> {
        let (old, new) = (self.current.lock().unwrap().clone(), Arc::new(MemoryStore::new()));
        if self.only_leases {
            for entry in old.read("").await.unwrap().entries {
                new.commit(Transaction::new().put(&entry.key, entry.value)).await.unwrap();
            }
        }
        *self.current.lock().unwrap() = new.clone();
        new
    }
}

fn forgetful(only_leases: bool) -> Arc<dyn Reopen> {
    Arc::new(Forgetful { current: std::sync::Mutex::default(), only_leases })
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "acknowledged_writes_survive_reopening")]
async fn conformance_detects_lost_writes_after_reopening() {
    conformance_after_reopening(|| async { forgetful(false) }).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the lease survives the reopening")]
async fn conformance_detects_lost_leases_after_reopening() {
    lease_survives_reopening(forgetful(true)).await;
}

#[test]
fn promises_are_unique() {
    let all = [PROMISES, FAULT_PROMISES, REOPENING_PROMISES].concat();
    let names: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(names.len(), all.len());
}
