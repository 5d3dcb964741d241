//! Helpers for several tests.

use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{Changes, Commit, EtcdStore, Store as _, Transaction, Watch};

/// Waits for an expected event; fails instead of hanging.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, work).await.expect("the event happens within a minute")
}

pub(crate) async fn put(store: &EtcdStore, key: &str, value: &str) -> Revision {
    match store.commit(Transaction::new().put(key, value)).await.unwrap() {
        Commit::Applied(revision) => revision,
        refused @ Commit::Refused { .. } => panic!("{refused:?}"),
    }
}

/// Returns the next non-empty changes.
pub(crate) async fn next(watch: &mut Watch) -> Changes {
    loop {
        let changes = soon(watch.next()).await.expect("the watch continues");
        if !changes.changes.is_empty() {
            return changes;
        }
    }
}

/// Formats an error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
