//! Promises about leases and watches, and about faults: disconnection, slowness, a lost lease,
//! compaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{
    TIMEOUT, apply, entry, exactly_one_of_many_writers_wins, expect_invalid,
    failed_condition_prevents_all_writes, next, next_plain, put, read,
    read_sees_acknowledged_commits, value, watch, watch_after,
};
use crate::clock::sleep;
use crate::{LeaseId, Store, StoreError, Transaction, Watch};

/// Time to live that is short enough to wait for, and long enough for a busy machine to renew in
/// time.
const TTL: Duration = Duration::from_secs(1);
/// Long enough not to end during a test.
const LONG: Duration = Duration::from_secs(3600);

async fn grant(store: &Arc<dyn Store>, ttl: Duration) -> LeaseId {
    store.grant(ttl).await.expect("the store grants a lease")
}

fn is_lost<T>(result: &Result<T, StoreError>, lease: LeaseId) -> bool {
    matches!(result, Err(StoreError::LeaseLost(lost)) if *lost == lease)
}

/// When a lease is not renewed, it ends, and one revision deletes all keys bound to it. Other keys
/// remain.
pub async fn lease_end_deletes_its_keys_in_one_revision(store: Arc<dyn Store>) {
    let (lease, other) = (grant(&store, TTL).await, grant(&store, LONG).await);
    let bound = Transaction::new()
        .put_leased("a/1", "x", lease)
        .put_leased("a/2", "x", lease)
        .put_leased("a/3", "x", other)
        .put("a/4", "x");
    let mut watch = watch(&store, "a/").await;
    let written = apply(&store, bound).await;
    let changes = next(&mut watch).await;
    let leases: Vec<_> = changes.changes.iter().map(|change| change.lease).collect();
    assert_eq!(leases, [Some(lease), Some(lease), Some(other), None]);
    let (revision, changes) = next_plain(&mut watch).await;
    assert!(revision > written);
    assert_eq!(changes, [("a/1".to_owned(), None), ("a/2".to_owned(), None)]);
    let left = read(&store, "a/").await;
    assert_eq!(left.entries.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["a/3", "a/4"]);
    assert_eq!(left.entries[0].lease, Some(other));
}

/// A lease lasts beyond its time to live while it is renewed.
pub async fn renewed_lease_outlives_its_ttl(store: Arc<dyn Store>) {
    let kept = grant(&store, TTL).await;
    apply(&store, Transaction::new().put_leased("kept", "x", kept)).await;
    let mut watch = watch(&store, "left").await;
    // As long as three other leases with the same time to live last in sequence.
    for round in 0..3 {
        let left = grant(&store, TTL).await;
        let key = format!("left/{round}");
        apply(&store, Transaction::new().put_leased(&key, "x", left)).await;
        next(&mut watch).await;
        let gone = timeout(TIMEOUT, async {
            loop {
                store.renew(kept).await.expect("a lease that lasts can be renewed");
                if let Ok(gone) = timeout(TTL / 8, next_plain(&mut watch)).await {
                    return gone;
                }
            }
        });
        assert_eq!(gone.await.expect("a lease ends in time").1, [(key, None)]);
        assert!(is_lost(&store.renew(left).await, left));
    }
    assert!(entry(&store, "kept").await.is_some());
}

/// Revoking ends a lease early, and can be repeated.
pub async fn revoked_lease_ends_immediately(store: Arc<dyn Store>) {
    let lease = grant(&store, LONG).await;
    let revision = apply(&store, Transaction::new().put_leased("a", "x", lease)).await;
    for _ in 0..2 {
        store.revoke(lease).await.expect("a lease can be revoked, ended or not");
        let listing = read(&store, "a").await;
        assert_eq!(listing.entries, []);
        assert_eq!(listing.revision, revision.next());
    }
    assert!(is_lost(&store.renew(lease).await, lease));
}

/// An ended lease can neither be bound to keys nor renewed.
pub async fn ended_lease_cannot_be_used(store: Arc<dyn Store>) {
    let lease = grant(&store, LONG).await;
    store.revoke(lease).await.expect("a lease can be revoked");
    put(&store, "a", "x").await;
    let bind = Transaction::new().put_leased("a", "y", lease);
    assert!(is_lost(&store.commit(bind).await, lease));
    assert!(is_lost(&store.renew(lease).await, lease));
    assert_eq!(value(&store, "a").await.as_deref(), Some(&b"x"[..]));
    let never = LeaseId(u64::MAX >> 1);
    assert!(is_lost(&store.renew(never).await, never));
    store.revoke(never).await.expect("revoking an unknown lease is not an error");
}

/// A key is deleted when the lease of its last write ends. If its last write had no lease, the key
/// remains.
pub async fn key_is_bound_to_its_last_lease(store: Arc<dyn Store>) {
    let (first, second) = (grant(&store, LONG).await, grant(&store, LONG).await);
    let bind = |key: &str, lease| Transaction::new().put_leased(key, "x", lease);
    for key in ["moved", "freed", "deleted"] {
        apply(&store, bind(key, first)).await;
    }
    apply(&store, bind("moved", second)).await;
    put(&store, "freed", "x").await;
    apply(&store, Transaction::new().delete("deleted")).await;
    put(&store, "deleted", "again").await;
    let revision = read(&store, "").await.revision;
    store.revoke(first).await.expect("a lease can be revoked");
    assert_eq!(
        read(&store, "").await.revision,
        revision,
        "a lease without keys creates no revision"
    );
    assert_eq!(read(&store, "").await.entries.len(), 3);
    store.revoke(second).await.expect("a lease can be revoked");
    let left = read(&store, "").await.entries;
    assert_eq!(left.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["deleted", "freed"]);
    assert!(left.iter().all(|entry| entry.lease.is_none()));
}

/// No two leases have the same ID, including ended ones.
pub async fn lease_ids_are_unique(store: Arc<dyn Store>) {
    let mut names = BTreeSet::new();
    for i in 0..50 {
        let lease = grant(&store, LONG).await;
        assert!(names.insert(lease), "{lease} was granted twice");
        if i % 2 == 0 {
            store.revoke(lease).await.expect("a lease can be revoked");
        }
    }
}

/// Every revision is delivered once, in order, with all its changes.
pub async fn watch_delivers_whole_revisions_once(store: Arc<dyn Store>) {
    let mut watch = watch(&store, "a/").await;
    let first = apply(&store, Transaction::new().put("a/2", "x").put("a/1", "y")).await;
    let second = put(&store, "a/1", "z").await;
    let third = apply(&store, Transaction::new().delete("a/1").put("a/3", "")).await;
    let some = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
    let both = vec![some("a/1", "y"), some("a/2", "x")];
    assert_eq!(next_plain(&mut watch).await, (first, both));
    assert_eq!(next_plain(&mut watch).await, (second, vec![some("a/1", "z")]));
    let last = vec![("a/1".to_owned(), None), some("a/3", "")];
    assert_eq!(next_plain(&mut watch).await, (third, last));
}

/// If a revision also changes keys without the prefix of a watch, the watch delivers only the
/// changes of keys with the prefix.
pub async fn watch_delivers_only_its_prefix(store: Arc<dyn Store>) {
    let mut watch = watch(&store, "a/").await;
    put(&store, "b/1", "x").await;
    put(&store, "a", "x").await;
    let mixed = apply(&store, Transaction::new().put("a/1", "x").put("c", "x")).await;
    let changes = next_plain(&mut watch).await;
    assert_eq!(changes, (mixed, vec![("a/1".to_owned(), Some("x".to_owned()))]));
}

/// A watch from an earlier revision first delivers the changes since.
pub async fn watch_can_start_at_a_past_revision(store: Arc<dyn Store>) {
    let start = put(&store, "a", "0").await;
    let mut made = Vec::new();
    for i in 1..=5 {
        made.push(put(&store, "a", &i.to_string()).await);
    }
    let mut watch = watch_after(&store, "a", start).await;
    made.push(put(&store, "a", "6").await);
    for (i, revision) in (1..).zip(made) {
        let expected = vec![("a".to_owned(), Some(format!("{i}")))];
        assert_eq!(next_plain(&mut watch).await, (revision, expected));
    }
}

/// The changes since an earlier revision are delivered as whole revisions, like later ones.
pub async fn watch_from_past_delivers_whole_revisions(store: Arc<dyn Store>) {
    let start = put(&store, "a/1", "x").await;
    let several = Transaction::new().put("a/3", "z").put("a/2", "y").put("b", "").delete("a/1");
    let first = apply(&store, several).await;
    let second = apply(&store, Transaction::new().put("a/4", "").delete("a/2")).await;
    let mut watch = watch_after(&store, "a/", start).await;
    let change = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    let expected = vec![change("a/1", None), change("a/2", Some("y")), change("a/3", Some("z"))];
    assert_eq!(next_plain(&mut watch).await, (first, expected));
    let expected = vec![change("a/2", None), change("a/4", Some(""))];
    assert_eq!(next_plain(&mut watch).await, (second, expected));
}

/// Reading and then watching from the result leaves no gap, despite concurrent writes.
pub async fn watch_from_listing_misses_nothing(store: Arc<dyn Store>) {
    const LAST: u32 = 200;
    put(&store, "count", "0").await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for i in 1..=LAST {
                put(&store, "count", &i.to_string()).await;
            }
        }
    });
    for _ in 0..10 {
        let listing = read(&store, "count").await;
        let text = String::from_utf8_lossy(&listing.entries[0].value).into_owned();
        let mut count: u32 = text.parse().expect("the count is a number");
        let mut watch = watch_after(&store, "count", listing.revision).await;
        while count < LAST {
            let (_, changes) = next_plain(&mut watch).await;
            assert_eq!(changes, [("count".to_owned(), Some((count + 1).to_string()))]);
            count += 1;
        }
    }
    writer.await.expect("the writer does not panic");
    assert_eq!(value(&store, "count").await, Some(LAST.to_string().into_bytes()));
}

/// A store refuses a watch from a future revision, because that revision may never exist.
pub async fn watch_from_future_revision_is_refused(store: Arc<dyn Store>) {
    let revision = put(&store, "a", "1").await;
    expect_invalid(store.watch("a", revision.next()).await);
}

/// All watches of a prefix see the same revisions in the same order.
pub async fn watches_see_the_same_order(store: Arc<dyn Store>) {
    let mut watches = Vec::new();
    for _ in 0..8 {
        watches.push(watch(&store, "a/").await);
    }
    let writers = (0..4).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..10 {
                put(&store, &format!("a/{writer}"), &i.to_string()).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer does not panic");
    }
    let mut seen = Vec::new();
    for watch in &mut watches {
        let mut changes = Vec::new();
        for _ in 0..40 {
            changes.push(next(watch).await);
        }
        seen.push(changes);
    }
    assert!(seen.iter().all(|changes| *changes == seen[0]));
    assert!(seen[0].is_sorted_by(|a, b| a.revision < b.revision));
}

/// A reader that takes no revisions does not block writers. When it reads later, there is no gap:
/// the watch returns all revisions, or the buffered ones and then an error.
pub async fn slow_reader_blocks_no_writer_and_has_no_gap(store: Arc<dyn Store>) {
    const WRITES: usize = 1500;
    let mut watch = watch(&store, "slow").await;
    let mut made = Vec::new();
    for i in 0..WRITES {
        let revision = timeout(TIMEOUT, put(&store, "slow", &i.to_string())).await;
        made.push(revision.expect("a writer is not blocked"));
    }
    for revision in made {
        match timeout(TIMEOUT, watch.next()).await.expect("the watch delivers or ends in time") {
            Ok(changes) => assert_eq!(changes.revision, revision, "a revision is missing"),
            Err(StoreError::WatchLost) => break,
            Err(error) => panic!("a watch must not end with {error}"),
        }
    }
}

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
