//! Promises about faults: disconnection, slowness, a lost lease, compaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{
    TIMEOUT, apply, entry, exactly_one_of_many_writers_wins, failed_condition_prevents_all_writes,
    next, next_plain, put, read, read_sees_acknowledged_commits, value, watch,
    watch_delivers_whole_revisions_once,
};
use crate::clock::sleep;
use crate::{Store, StoreError, Transaction, Watch};

/// Causes faults in the tested store.
///
/// [`FaultyStore`](super::FaultyStore) implements this trait for any store, without access to its
/// internals. To cause compaction, it makes more changes than a
/// [`Keyspace`](crate::backend::Keyspace) keeps.
///
/// A store that keeps more changes needs its own implementation, which can trigger compaction
/// directly. For a backend with a server, that implementation can also cut the connection.
#[async_trait]
pub trait FaultInjector: Send + Sync + 'static {
    /// Disconnects the store from now on.
    async fn disconnect(&self);

    /// Makes all operations of the store noticeably slower from now on.
    async fn slow_down(&self);

    /// Ends all faults.
    async fn heal(&self);

    /// Makes the store drop its history up to about the current revision.
    async fn compact(&self);
}

/// Short enough to wait for.
const TTL: Duration = Duration::from_secs(1);

/// An unreachable store returns errors that cannot be mistaken for an empty store or a lost lease.
/// It applies no commit that it reports as not applied. When the store is reachable again, its data
/// is unchanged.
pub async fn disconnected_store_reports_unavailable(
    store: Arc<dyn Store>,
    faults: Arc<dyn FaultInjector>,
) {
    let lease = store.grant(TIMEOUT * 10).await.expect("the store grants a lease");
    let before = put(&store, "a", "1").await;
    let mut watch = watch(&store, "").await;
    faults.disconnect().await;
    let unseen = |result: Result<(), StoreError>| {
        assert!(
            matches!(result, Err(StoreError::Unavailable(_))),
            "{result:?} does not report unavailability"
        );
    };
    unseen(store.read("").await.map(drop));
    unseen(store.renew(lease).await);
    unseen(store.watch("", before).await.map(drop));
    let lost = store.commit(Transaction::new().put("b", "1")).await;
    let may_be = match &lost {
        Err(StoreError::Unavailable(_)) => false,
        Err(StoreError::Unknown(_)) => true,
        other => panic!("an unreachable store returned {other:?}"),
    };
    faults.heal().await;
    let last = apply(&store, Transaction::new().put("c", "1")).await;
    let is_there = entry(&store, "b").await.is_some();
    assert!(may_be || !is_there, "a commit reported as not applied was applied");
    assert_eq!(value(&store, "a").await.as_deref(), Some(&b"1"[..]));
    store.renew(lease).await.expect("a long lease outlives a short outage");
    goes_on_or_says_so(&mut watch, is_there, last).await;
}

/// A watch during an outage either misses nothing or ends with an error.
async fn goes_on_or_says_so(watch: &mut Watch, b_too: bool, last: fleet_core::Revision) {
    let keys: &[&str] = if b_too { &["b", "c"] } else { &["c"] };
    for key in keys {
        let changes = loop {
            match timeout(TIMEOUT, watch.next()).await.expect("the watch delivers or ends in time")
            {
                Ok(changes) if changes.changes.is_empty() => {}
                Ok(changes) => break changes,
                Err(StoreError::WatchLost | StoreError::Compacted { .. }) => return,
                Err(error) => panic!("a watch must not end with {error}"),
            }
        };
        assert_eq!(&*changes.changes[0].key, *key, "a change is missing");
        assert!(changes.revision <= last);
    }
}

/// A slow store keeps the contract.
pub async fn slow_store_keeps_the_contract(store: Arc<dyn Store>, faults: Arc<dyn FaultInjector>) {
    faults.slow_down().await;
    read_sees_acknowledged_commits(store.clone()).await;
    failed_condition_prevents_all_writes(store.clone()).await;
    exactly_one_of_many_writers_wins(store.clone()).await;
    watch_delivers_whole_revisions_once(store).await;
    faults.heal().await;
}

/// A lease that was not renewed in time because of an outage ends in the store. Clients see the end
/// of the lease after the outage, but not during it.
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
    // The store may have rounded up the time to live.
    let mut watch = watch(&store, "bound").await;
    if entry(&store, "bound").await.is_some() {
        let (_, changes) = next_plain(&mut watch).await;
        assert_eq!(changes, [("bound".to_owned(), None)]);
    }
    for lost in [store.renew(lease).await, store.commit(bind()).await.map(drop)] {
        assert!(matches!(lost, Err(StoreError::LeaseLost(id)) if id == lease), "{lost:?}");
    }
}

/// A watch from a compacted revision is refused, and the error contains the oldest revision from
/// which a watch is possible. A reader misses nothing if it reads again and watches from the
/// revision of that read on.
pub async fn watch_from_compacted_revision_is_refused(
    store: Arc<dyn Store>,
    faults: Arc<dyn FaultInjector>,
) {
    let old = put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    faults.compact().await;
    let listing = read(&store, "a").await;
    assert_eq!(listing.entries[0].value, b"2", "compaction removes only history");
    let late = store.watch("a", old).await;
    let Err(StoreError::Compacted { oldest }) = late else {
        let late = late.map(|_| "a watch");
        panic!("a watch from a compacted revision returned {late:?}")
    };
    assert!(old < oldest && oldest <= listing.revision, "{oldest} is not the oldest");
    store.watch("a", oldest).await.expect("the reported revision is kept");
    let mut watch = store.watch("a", listing.revision).await.expect("the present is kept");
    let revision = put(&store, "a", "3").await;
    assert_eq!(next(&mut watch).await.revision, revision);
}
