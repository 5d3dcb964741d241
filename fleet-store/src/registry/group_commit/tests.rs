//! Merged transactions get the same results as consecutive ones.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use proptest::prelude::*;

use super::*;
use crate::{Condition, LeaseId, Listing, MemoryStore, Watch};

/// Reduces a result to the part that does not depend on the merging of transactions. This part is
/// `Ok` for an applied transaction, or the index of the condition that did not hold.
fn result(commit: CommitResult) -> Result<(), usize> {
    match commit.expect("a store in memory does not fail") {
        Commit::Applied(_) => Ok(()),
        Commit::Refused { condition, .. } => Err(condition),
    }
}

async fn contents(store: &Arc<dyn Store>) -> Vec<(String, Vec<u8>)> {
    let entries = store.read("").await.expect("the store can be read").entries;
    entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

async fn one_after_the_other(all: &[Transaction]) -> (Vec<Result<(), usize>>, Contents) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut results = Vec::new();
    for transaction in all {
        results.push(result(store.commit(transaction.clone()).await));
    }
    (results, contents(&store).await)
}

type Contents = Vec<(String, Vec<u8>)>;

/// Commits all concurrently; also returns the number of revisions.
async fn at_once(all: &[Transaction]) -> (Vec<Result<(), usize>>, Contents, u64) {
    at_once_on(Arc::new(LimitedStore { inner: MemoryStore::new(), most: usize::MAX }), all).await
}

async fn at_once_on(
    store: Arc<dyn Store>,
    all: &[Transaction],
) -> (Vec<Result<(), usize>>, Contents, u64) {
    let group = Arc::new(GroupCommit::default());
    let tasks = all.iter().map(|transaction| {
        let (group, store, transaction) = (group.clone(), store.clone(), transaction.clone());
        tokio::spawn(async move { group.commit(&store, transaction).await })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(result(task.await.expect("the task does not panic")));
    }
    let revision = store.read("").await.expect("the store can be read").revision;
    (results, contents(&store).await, revision.0)
}

fn key() -> impl Strategy<Value = String> {
    (0..6_u8).prop_map(|number| format!("key-{number}"))
}

fn condition() -> impl Strategy<Value = Condition> {
    (key(), 0..4_u8).prop_map(|(key, kind)| match kind {
        0 | 1 => Condition::absent(key),
        2 => Condition::present(key),
        _ => Condition::value(key, "0"),
    })
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let write = (key(), prop_oneof![Just(None), (0..2_u8).prop_map(Some)]);
    let writes = prop::collection::btree_map(write.0, write.1, 0..3);
    (prop::collection::vec(condition(), 0..3), writes).prop_map(|(conditions, writes)| {
        let begin = conditions.into_iter().fold(Transaction::new(), Transaction::when);
        writes.into_iter().fold(begin, |transaction, (key, value)| match value {
            Some(value) => transaction.put(key, value.to_string()),
            None => transaction.delete(key),
        })
    })
}

proptest! {
    #[test]
    fn merged_results_equal_sequential_results(
        all in prop::collection::vec(transaction(), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            let (results, contents, _) = at_once(&all).await;
            let expected = one_after_the_other(&all).await;
            prop_assert_eq!((results, contents), expected);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn hundred_concurrent_writes_make_two_revisions() {
    let write = |number: usize| {
        let key = format!("unit-{number}");
        Transaction::new().when(Condition::absent(&key)).put("content", "same").put(key, "new")
    };
    let all: Vec<_> = (0..100).map(write).collect();
    let (results, contents, revisions) = at_once(&all).await;
    assert_eq!((results, contents.len(), revisions), (vec![Ok(()); 100], 101, 2));
}

#[tokio::test]
async fn batch_waits_while_transactions_arrive() {
    let store: Arc<dyn Store> =
        Arc::new(LimitedStore { inner: MemoryStore::new(), most: usize::MAX });
    let group = Arc::new(GroupCommit::default());
    let tasks = (0..10).map(|number| {
        let (group, store) = (group.clone(), store.clone());
        tokio::spawn(async move {
            result(group.commit(&store, put(number)).await)
                .expect("an unconditional commit is applied");
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            result(group.commit(&store, put(10 + number)).await)
                .expect("an unconditional commit is applied");
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("the task does not panic");
    }
    // The first alone, then the others, then all second writes.
    assert_eq!(store.read("").await.expect("the store can be read").revision, Revision(3));
}

#[tokio::test]
async fn large_batch_is_split() {
    let most = Transaction::MAX_OPERATIONS;
    let all: Vec<_> =
        (0..most + 2).map(|number| Transaction::new().put(number.to_string(), "")).collect();
    assert_eq!(at_once(&all).await.2, 3);
    let large = |number: usize| Transaction::new().put(number.to_string(), vec![0; 600_000]);
    let all: Vec<_> = (0..4).map(large).collect();
    assert_eq!(at_once(&all).await.2, 4);
}

/// A store that yields before it commits, like a store that waits for a disk. `most` is the maximum
/// number of writes in a transaction. If `most` is zero, commits hang.
struct LimitedStore {
    inner: MemoryStore,
    most: usize,
}

#[async_trait]
impl Store for LimitedStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.inner.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        tokio::task::yield_now().await;
        match transaction.writes.len() {
            _ if self.most == 0 => std::future::pending().await,
            count if count > self.most => Err(StoreError::Invalid("too many operations".into())),
            _ => self.inner.commit(transaction).await,
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(prefix, after).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.inner.revoke(lease).await
    }
}

fn put(number: usize) -> Transaction {
    Transaction::new().put(number.to_string(), "")
}

#[tokio::test]
async fn store_with_lower_limits_gets_smaller_batches() {
    let all: Vec<_> = (0..100).map(put).collect();
    let store = LimitedStore { inner: MemoryStore::new(), most: 3 };
    let (results, contents, _) = at_once_on(Arc::new(store), &all).await;
    assert_eq!((results, contents.len()), (vec![Ok(()); 100], 100));
}

#[tokio::test]
async fn abandoned_commits_are_dropped_while_the_store_hangs() {
    let store: Arc<dyn Store> = Arc::new(LimitedStore { inner: MemoryStore::new(), most: 0 });
    let group = Arc::new(GroupCommit::default());
    let mut hanging = pin!(group.commit(&store, put(0)));
    poll_fn(|context| Poll::Ready(hanging.as_mut().poll(context).is_pending())).await;
    for number in 1..10 * MIN_PRUNE_LEN {
        let mut abandoned = pin!(group.commit(&store, put(number)));
        poll_fn(|context| Poll::Ready(abandoned.as_mut().poll(context).is_pending())).await;
    }
    let waiting = group.lock().waiting.len();
    assert!((1..=MIN_PRUNE_LEN).contains(&waiting), "{waiting} commits are queued");
}
