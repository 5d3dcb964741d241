//! Helpers for several tests.

use std::path::Path;
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{Changes, Commit, EtcdStore, Store as _, Transaction, Watch};
use tempfile::TempDir;

/// Returns a directory for the data of etcd, in memory if possible: etcd flushes each write, which
/// takes long on a busy disk. It writes at least 128 MiB.
pub(crate) fn etcd_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|info| info.f_bavail.saturating_mul(info.f_frsize) > 1 << 30);
    let in_memory = has_room.then(|| tempfile::tempdir_in(memory)).and_then(Result::ok);
    in_memory.unwrap_or_else(|| tempfile::tempdir().expect("a directory can be created"))
}

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
