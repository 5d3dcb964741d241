//! Promises about watches.

use std::sync::Arc;

use tokio::time::timeout;

use super::{
    TIMEOUT, apply, expect_invalid, next, next_plain, put, read, value, watch, watch_after,
};
use crate::{Store, StoreError, Transaction};

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
