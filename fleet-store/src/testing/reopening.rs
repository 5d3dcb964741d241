//! Promises about a store that is closed and opened again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{apply, next_plain, put, read, watch};
use crate::{Store, StoreError, Transaction};

/// Closes and opens a durable store.
#[async_trait]
pub trait Reopen: Send + Sync + 'static {
    /// Opens the store. If it was open, closes it first, as a restart of its process would. The
    /// caller has dropped the store of the earlier call.
    async fn reopen(&self) -> Arc<dyn Store>;
}

/// Short enough to wait for.
const TTL: Duration = Duration::from_secs(1);
/// Long enough not to end during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A reopened store has every acknowledged write, with its revision and lease, and no deleted key.
/// Its next revision and its next lease are new.
pub async fn acknowledged_writes_survive_reopening(durable: Arc<dyn Reopen>) {
    let store = durable.reopen().await;
    let lease = store.grant(LONG).await.expect("the store grants a lease");
    put(&store, "a", "1").await;
    put(&store, "b", "gone").await;
    apply(&store, Transaction::new().delete("b").put_leased("c", "3", lease)).await;
    let before = read(&store, "").await;
    drop(store);

    let store = durable.reopen().await;
    let after = read(&store, "").await;
    assert_eq!(after.entries, before.entries, "the entries before and after the reopening differ");
    assert!(after.revision >= before.revision, "the revision went back");
    assert!(put(&store, "d", "4").await > before.revision, "a revision was used twice");
    let other = store.grant(LONG).await.expect("the store grants a lease");
    assert_ne!(other, lease, "a lease ID was used twice");
}

/// A lease that has not ended goes on in a reopened store: it can be renewed, and ends otherwise. A
/// lease that has ended does not come back.
pub async fn lease_survives_reopening(durable: Arc<dyn Reopen>) {
    let store = durable.reopen().await;
    let mut leases = Vec::new();
    for (key, ttl) in [("kept", LONG), ("ends", TTL), ("ended", LONG)] {
        let lease = store.grant(ttl).await.expect("the store grants a lease");
        apply(&store, Transaction::new().put_leased(key, "x", lease)).await;
        leases.push(lease);
    }
    let [kept, ends, ended] = leases[..] else { return };
    store.revoke(ended).await.expect("the store revokes a lease");
    drop(store);

    let store = durable.reopen().await;
    store.renew(kept).await.expect("the lease survives the reopening");
    let mut watch = watch(&store, "ends").await;
    if !read(&store, "ends").await.entries.is_empty() {
        let (_, changes) = next_plain(&mut watch).await;
        assert_eq!(changes, [("ends".to_owned(), None)]);
    }
    for gone in [ends, ended] {
        let renewed = store.renew(gone).await;
        let is_lost = matches!(renewed, Err(StoreError::LeaseLost(lost)) if lost == gone);
        assert!(is_lost, "the lease {gone} has ended: {renewed:?}");
    }
    let left = read(&store, "").await.entries;
    assert_eq!(left.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["kept"]);
}
