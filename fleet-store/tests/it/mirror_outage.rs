//! The mirror during an outage of its store: the last snapshot stays readable but is not current.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, Snapshot, TargetState};
use fleet_store::mirror::MirrorStatus;
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, MemoryStore, Mirror, Registry, Store};

use crate::support::{destroy, join, mirror, name, soon, submit};

/// A mirror of a store with faults, and a registry that bypasses the faults.
async fn setting() -> (FaultyStore, Registry, Mirror) {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store = FaultyStore::new(memory.clone());
    let behind = Registry::new(memory, Layout::DEFAULT_PREFIX);
    submit(&behind, "a.service").await;
    let seen = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    (store, behind, mirror(&seen).await)
}

async fn until_behind(mirror: &Mirror) {
    let mut progress = mirror.subscribe();
    soon(progress.wait_for(|progress| !progress.is_current)).await.unwrap();
}

// Holds: I-24
#[tokio::test(start_paused = true)]
async fn cut_watch_causes_a_resync() {
    let (store, behind, mirror) = setting().await;
    for round in 0..5 {
        store.cut_watches();
        until_behind(&mirror).await;
        submit(&behind, &format!("u{round}.service")).await;
        destroy(&behind, if round == 0 { "a.service" } else { "gone.service" }).await.ok();
        let revision = behind.store().read("").await.unwrap().revision;
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        assert_eq!(snapshot.units().len(), round + 1);
        assert!(snapshot.unit("a.service").is_none());
        soon(mirror.wait_current()).await.unwrap();
    }
}

/// A resync keeps unchanged objects and does not parse them again.
#[tokio::test(start_paused = true)]
async fn resync_reuses_unchanged_objects() {
    let (store, behind, mirror) = setting().await;
    submit(&behind, "b.service").await;
    let revision = behind.store().read("").await.unwrap().revision;
    let before = soon(mirror.wait_for(revision)).await.unwrap();
    store.cut_watches();
    until_behind(&mirror).await;
    behind.set_desired(&name("b.service"), TargetState::Inactive).await.unwrap();
    let after = soon(mirror.wait_current()).await.unwrap();
    assert!(after.revision > before.revision);
    let unit = |snapshot: &Snapshot, unit: &str| snapshot.unit(unit).unwrap().clone();
    assert!(Arc::ptr_eq(&unit(&before, "a.service"), &unit(&after, "a.service")));
    let (old, new) = (unit(&before, "b.service"), unit(&after, "b.service"));
    assert!(!Arc::ptr_eq(&old, &new));
    assert!(Arc::ptr_eq(&old.requirements, &new.requirements));
    assert_eq!(old.file.source().as_ptr(), new.file.source().as_ptr());
    let news = mirror.delta_since(before.revision).changes.unwrap();
    assert_eq!(news.units.into_iter().collect::<Vec<_>>(), [name("b.service")]);
}

// Holds: I-8
#[tokio::test(start_paused = true)]
async fn outage_keeps_the_last_snapshot_not_current() {
    let (store, behind, mirror) = setting().await;
    let presence = join(&behind, "m-1").await;
    let revision = behind.store().read("").await.unwrap().revision;
    let known = soon(mirror.wait_for(revision)).await.unwrap();
    store.set_unreachable(true);
    until_behind(&mirror).await;
    destroy(&behind, "a.service").await.unwrap();
    presence.leave().await.unwrap();
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(!mirror.is_current() && mirror.current().is_none());
    let MirrorStatus::Behind { duration } = mirror.status() else { panic!("the mirror is behind") };
    assert!(duration >= Duration::from_secs(100), "{duration:?}");
    let snapshot = mirror.snapshot();
    assert_eq!(snapshot.revision, known.revision);
    assert!(snapshot.unit("a.service").is_some() && snapshot.machine("m-1").is_some());

    store.set_unreachable(false);
    let snapshot = soon(mirror.wait_current()).await.unwrap();
    assert!(snapshot.unit("a.service").is_none() && snapshot.machine("m-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn retry_pauses_grow_to_a_limit() {
    let (store, _, mirror) = setting().await;
    store.set_unreachable(true);
    until_behind(&mirror).await;
    let before = store.reads();
    tokio::time::timeout(Duration::from_secs(600), mirror.wait_current()).await.unwrap_err();
    let attempts = store.reads() - before;
    assert!((115..=130).contains(&attempts), "{attempts} in ten minutes");
}

/// A store that lost its data looks empty at a low revision. This must not stop any unit.
// Holds: I-8
#[tokio::test(start_paused = true)]
async fn older_store_is_rejected() {
    let (store, behind, mirror) = setting().await;
    let empty = Replaced::new(behind.store().clone());
    let registry = Registry::new(Arc::new(empty.clone()), Layout::DEFAULT_PREFIX);
    let mirror_of_replaced = self::mirror(&registry).await;
    empty.replace(Arc::new(MemoryStore::new()));
    soon(async {
        let mut progress = mirror_of_replaced.subscribe();
        progress.wait_for(|progress| !progress.is_current).await.unwrap();
    })
    .await;
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, mirror_of_replaced.wait_current()).await.unwrap_err();
    assert!(mirror_of_replaced.snapshot().unit("a.service").is_some());
    empty.replace(behind.store().clone());
    soon(mirror_of_replaced.wait_current()).await.unwrap();
    drop((store, mirror));
}

#[tokio::test(start_paused = true)]
async fn closed_mirror_returns_errors_and_keeps_its_snapshot() {
    let (_store, _, mirror) = setting().await;
    let other = mirror.clone();
    let mut progress = mirror.subscribe();
    mirror.shutdown();
    assert!(!other.is_current());
    assert!(soon(other.wait_for(Revision(u64::MAX))).await.is_err());
    assert!(soon(other.wait_current()).await.is_err());
    assert!(soon(progress.wait_for(|_| false)).await.is_err());
    assert_eq!(other.snapshot().units().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn mirror_task_ends_with_the_last_handle() {
    let (_store, _, mirror) = setting().await;
    let other = mirror.clone();
    let mut progress = mirror.subscribe();
    drop(mirror);
    submit_and_wait(&other).await;
    drop(other);
    assert!(soon(progress.wait_for(|_| false)).await.is_err());
}

async fn submit_and_wait(mirror: &Mirror) {
    let revision = mirror.snapshot().revision;
    soon(mirror.wait_for(revision)).await.unwrap();
    assert!(mirror.is_current());
}

use replaced::Replaced;

/// A store that can be replaced by another one while it is in use.
mod replaced {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use fleet_core::Revision;
    use fleet_store::testing::FaultyStore;
    use fleet_store::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};

    #[derive(Clone)]
    pub(super) struct Replaced(Arc<Mutex<FaultyStore>>);

    impl Replaced {
        pub(super) fn new(store: Arc<dyn Store>) -> Self {
            Self(Arc::new(Mutex::new(FaultyStore::new(store))))
        }

        pub(super) fn replace(&self, store: Arc<dyn Store>) {
            let before = std::mem::replace(&mut *self.0.lock().unwrap(), FaultyStore::new(store));
            before.cut_watches();
        }

        fn store(&self) -> FaultyStore {
            self.0.lock().unwrap().clone()
        }
    }

    #[async_trait::async_trait]
    impl Store for Replaced {
        async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
            self.store().read(prefix).await
        }

        async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
            self.store().commit(transaction).await
        }

        async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
            self.store().watch(prefix, after).await
        }

        async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
            self.store().grant(ttl).await
        }

        async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
            self.store().renew(lease).await
        }

        async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
            self.store().revoke(lease).await
        }
    }
}
