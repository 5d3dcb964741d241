//! Helpers for checking the promises.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;
use tokio::time::timeout;

use crate::{Changes, Commit, Entry, Listing, Store, StoreError, Transaction, Watch};

/// Time after which an operation counts as hanging. Stores may round up leases.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn read(store: &Arc<dyn Store>, prefix: &str) -> Listing {
    store.read(prefix).await.expect("the store can be read")
}

pub(super) async fn entry(store: &Arc<dyn Store>, key: &str) -> Option<Entry> {
    read(store, key).await.entries.into_iter().find(|entry| entry.key == key)
}

pub(super) async fn value(store: &Arc<dyn Store>, key: &str) -> Option<Vec<u8>> {
    entry(store, key).await.map(|entry| entry.value)
}

/// Commits a transaction that must be applied.
pub(super) async fn apply(store: &Arc<dyn Store>, transaction: Transaction) -> Revision {
    match store.commit(transaction).await.expect("the store takes a transaction") {
        Commit::Applied(revision) => revision,
        Commit::Refused { condition, .. } => panic!("condition {condition} did not hold"),
    }
}

pub(super) async fn put(store: &Arc<dyn Store>, key: &str, value: &str) -> Revision {
    apply(store, Transaction::new().put(key, value)).await
}

/// Watches from the current revision on.
pub(super) async fn watch(store: &Arc<dyn Store>, prefix: &str) -> Watch {
    let revision = read(store, prefix).await.revision;
    watch_after(store, prefix, revision).await
}

pub(super) async fn watch_after(store: &Arc<dyn Store>, prefix: &str, after: Revision) -> Watch {
    store.watch(prefix, after).await.expect("the store can be watched")
}

/// Returns the next non-empty changes within [`TIMEOUT`].
pub(super) async fn next(watch: &mut Watch) -> Changes {
    loop {
        let changes = timeout(TIMEOUT, watch.next()).await;
        let changes = changes.expect("the watch delivers in time").expect("the watch continues");
        if !changes.changes.is_empty() {
            return changes;
        }
    }
}

/// Changes in a comparable form: the revision, keys and values.
pub(super) type Plain = (Revision, Vec<(String, Option<String>)>);

pub(super) fn plain(changes: &Changes) -> Plain {
    let text = |value: &Arc<[u8]>| String::from_utf8_lossy(value).into_owned();
    let change =
        |change: &crate::KeyChange| (change.key.to_string(), change.value.as_ref().map(text));
    (changes.revision, changes.changes.iter().map(change).collect())
}

pub(super) async fn next_plain(watch: &mut Watch) -> Plain {
    plain(&next(watch).await)
}

pub(super) fn expect_invalid<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?} is not invalid");
}
