//! Promises about leases and watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{
    TIMEOUT, apply, entry, expect_invalid, next, next_plain, put, read, value, watch, watch_after,
};
use crate::{LeaseId, Store, StoreError, Transaction};

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
