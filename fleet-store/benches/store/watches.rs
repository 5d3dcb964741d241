//! Time from the acknowledgement of a commit to its delivery by a watch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_core::Revision;
use fleet_store::{Commit, EmbeddedStore, MemoryStore, Store, Transaction};

use crate::{micros, report, spread};

const COMMITS: usize = 500;

pub(crate) async fn measure() {
    delivery("memory", Arc::new(MemoryStore::new())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(folder.path().join("store.redb")).await.expect("a store");
    delivery("embedded", Arc::new(store)).await;
}

async fn delivery(backend: &str, store: Arc<dyn Store>) {
    let mut watch = store.watch("", Revision::ZERO).await.expect("a watch");
    let reader = tokio::spawn(async move {
        let mut delivered = Vec::new();
        while delivered.len() < COMMITS {
            let changes = watch.next().await.expect("a change");
            delivered.push((changes.revision, Instant::now()));
        }
        delivered
    });
    let mut acknowledged = Vec::new();
    for number in 0..COMMITS {
        let put = Transaction::new().put("key", number.to_string());
        let commit = store.commit(put).await.expect("a commit");
        acknowledged.push((commit, Instant::now()));
        tokio::time::sleep(Duration::from_millis(1)).await; // so that the commits do not queue
    }
    let delivered = reader.await.expect("a reader");
    let pairs = acknowledged.into_iter().zip(delivered);
    let late = pairs.map(|((commit, acknowledged), (revision, delivered))| {
        assert_eq!(commit, Commit::Applied(revision));
        delivered.saturating_duration_since(acknowledged)
    });
    let (median, p99) = spread(late.collect());
    report(&format!("watch_{backend}_median_us"), micros(median));
    report(&format!("watch_{backend}_p99_us"), micros(p99));
}
