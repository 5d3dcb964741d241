//! Promises about what may befall a store: being cut off, slowness, a lost lease, compaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::support::{TIMEOUT, apply, entry, next, next_plain, put, read, value, watch};
use super::{
    exactly_one_of_many_writers_wins, failed_condition_prevents_all_writes,
    read_sees_acknowledged_commits, watch_delivers_whole_revisions_once,
};
use crate::clock::sleep;
use crate::{Store, StoreError, Transaction, Watch};

/// Brings about what may befall the store that is tested.
///
/// [`FaultyStore`](super::FaultyStore) does it to any store from outside, by making more changes
/// than a [`Keyspace`](crate::Keyspace) keeps. A store that keeps more has a `FaultInjector` of its own
/// that tells it what to forget, and a backend with a server has the real thing: a link that is
/// cut, a compaction that the server is asked for.
#[async_trait]
pub trait FaultInjector: Send + Sync + 'static {
    /// From now on nothing reaches the store.
    async fn disconnect(&self);

    /// From now on the store takes noticeably longer for everything.
    async fn slow_down(&self);

    /// The store is reached as before.
    async fn heal(&self);

    /// Lets the store forget the changes up to its present revision, or to one not far before it.
    async fn compact(&self);
}

/// Short enough to be waited for.
const TTL: Duration = Duration::from_secs(1);

/// A store that cannot be reached says so: it has no answer that could be taken for an empty store
/// or a lost lease, and does nothing that it says was not done. Afterwards everything is there.
pub async fn disconnected_store_reports_unavailable(
    store: Arc<dyn Store>,
    faults: Arc<dyn FaultInjector>,
) {
    let lease = store.grant(TIMEOUT * 10).await.expect("the store grants a lease");
    let before = put(&store, "a", "1").await;
    let mut watch = watch(&store, "").await;
    faults.disconnect().await;
    let unseen = |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?} is no word for it");
    };
    unseen(store.read("").await.map(drop));
    unseen(store.renew(lease).await);
    unseen(store.watch("", before).await.map(drop));
    let lost = store.commit(Transaction::new().put("b", "1")).await;
    let may_be = match &lost {
        Err(StoreError::Unavailable(_)) => false,
        Err(StoreError::Unknown(_)) => true,
        other => panic!("{other:?} came from a store that cannot be reached"),
    };
    faults.heal().await;
    let last = apply(&store, Transaction::new().put("c", "1")).await;
    let is_there = entry(&store, "b").await.is_some();
    assert!(may_be || !is_there, "what was said not to be done was done");
    assert_eq!(value(&store, "a").await.as_deref(), Some(&b"1"[..]));
    store.renew(lease).await.expect("a long lease outlives a short outage");
    goes_on_or_says_so(&mut watch, is_there, last).await;
}

/// A watch that was there during an outage either missed nothing, or ends with an error.
async fn goes_on_or_says_so(watch: &mut Watch, b_too: bool, last: fleet_core::Revision) {
    let keys: &[&str] = if b_too { &["b", "c"] } else { &["c"] };
    for key in keys {
        let changes = loop {
            match timeout(TIMEOUT, watch.next()).await.expect("no watch falls silent") {
                Ok(changes) if changes.changes.is_empty() => {}
                Ok(changes) => break changes,
                Err(StoreError::WatchLost | StoreError::Compacted { .. }) => return,
                Err(error) => panic!("{error} is not how a watch ends"),
            }
        };
        assert_eq!(&*changes.changes[0].key, *key, "a change is missing");
        assert!(changes.revision <= last);
    }
}

/// A slow store keeps what it promises.
pub async fn slow_store_keeps_the_contract(store: Arc<dyn Store>, faults: Arc<dyn FaultInjector>) {
    faults.slow_down().await;
    read_sees_acknowledged_commits(store.clone()).await;
    failed_condition_prevents_all_writes(store.clone()).await;
    exactly_one_of_many_writers_wins(store.clone()).await;
    watch_delivers_whole_revisions_once(store).await;
    faults.heal().await;
}

/// A lease that could not be renewed in time ends in the store, whoever was cut off, and whoever
/// comes back is told. While it is cut off it is told nothing of the lease.
pub async fn lease_not_renewed_in_outage_is_lost(
    store: Arc<dyn Store>,
    faults: Arc<dyn FaultInjector>,
) {
    let lease = store.grant(TTL).await.expect("the store grants a lease");
    let bind = || Transaction::new().put_leased("bound", "x", lease);
    apply(&store, bind()).await;
    faults.disconnect().await;
    sleep(TTL * 2).await;
    let unseen = store.renew(lease).await;
    assert!(matches!(unseen, Err(StoreError::Unavailable(_))), "{unseen:?}");
    faults.heal().await;
    // The store may have lengthened it.
    let mut watch = watch(&store, "bound").await;
    if entry(&store, "bound").await.is_some() {
        let (_, changes) = next_plain(&mut watch).await;
        assert_eq!(changes, [("bound".to_owned(), None)]);
    }
    for lost in [store.renew(lease).await, store.commit(bind()).await.map(drop)] {
        assert!(matches!(lost, Err(StoreError::LeaseLost(id)) if id == lease), "{lost:?}");
    }
}

/// A watch from what the store has forgotten is refused with the oldest revision from which one is
/// possible; reading again and watching from there misses nothing.
pub async fn watch_from_compacted_revision_is_refused(
    store: Arc<dyn Store>,
    faults: Arc<dyn FaultInjector>,
) {
    let old = put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    faults.compact().await;
    let listing = read(&store, "a").await;
    assert_eq!(listing.entries[0].value, b"2", "compaction takes only the past");
    let late = store.watch("a", old).await;
    let Err(StoreError::Compacted { oldest }) = late else {
        let late = late.map(|_| "a watch");
        panic!("of a revision that `FaultInjector::compact` let it forget, the store gave {late:?}")
    };
    assert!(old < oldest && oldest <= listing.revision, "{oldest} is not the oldest");
    store.watch("a", oldest).await.expect("what is said to be kept is kept");
    let mut watch = store.watch("a", listing.revision).await.expect("the present is kept");
    let revision = put(&store, "a", "3").await;
    assert_eq!(next(&mut watch).await.revision, revision);
}
