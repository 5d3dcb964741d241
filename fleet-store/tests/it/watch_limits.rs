//! Watches at the limits: a reader that is too slow, and one that starts too early.

use fleet_core::Revision;
use fleet_store::backend::Keyspace;
use fleet_store::{StoreError, Transaction};

use crate::support::{memory, soon};

#[tokio::test]
async fn slow_reader_is_cut_off_without_a_gap() {
    let store = memory();
    let mut slow = store.watch("", Revision::ZERO).await.unwrap();
    let mut written = 0;
    for i in 0..3000_u32 {
        soon(store.commit(Transaction::new().put("a", i.to_string()))).await.unwrap();
        written += 1;
    }
    let mut read = 0;
    let cut = loop {
        match soon(slow.next()).await {
            Ok(changes) => {
                read += 1;
                assert_eq!(changes.revision, Revision(read));
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(cut, StoreError::WatchLost));
    assert!((1000..written).contains(&read), "{read} revisions were kept for it");
    assert!(matches!(soon(slow.next()).await, Err(StoreError::WatchLost)));
    // The missed changes are still kept, so the reader can continue from its last revision.
    let mut again = store.watch("", Revision(read)).await.unwrap();
    assert_eq!(soon(again.next()).await.unwrap().revision, Revision(read + 1));
}

#[tokio::test]
async fn watch_from_a_dropped_revision_is_refused() {
    let store = memory();
    let per_revision = 100;
    let revisions = Keyspace::DEFAULT_HISTORY / per_revision + 5;
    for i in 0..revisions {
        let put = |transaction: Transaction, key| transaction.put(format!("{key}"), i.to_string());
        let transaction = (0..per_revision).fold(Transaction::new(), put);
        store.commit(transaction).await.unwrap();
    }
    let late = store.watch("", Revision::ZERO).await;
    let Err(StoreError::Compacted { oldest }) = late else { panic!("{late:?}") };
    assert_eq!(oldest, Revision(5));
    let mut watch = store.watch("", oldest).await.unwrap();
    for revision in 6..=revisions as u64 {
        assert_eq!(soon(watch.next()).await.unwrap().revision, Revision(revision));
    }
}
