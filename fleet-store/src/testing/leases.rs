//! Promises about leases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{TIMEOUT, apply, entry, next, next_plain, put, read, value, watch};
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
