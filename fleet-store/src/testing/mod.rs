//! Helpers for testing stores and code that uses them: the conformance suite, and a store that
//! fails on demand.
//!
//! A backend passes the suite if a test calls [`conformance`] with a function that creates empty
//! stores:
//!
//! ```
//! use std::sync::Arc;
//!
//! use fleet_store::testing::conformance;
//! use fleet_store::{MemoryStore, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance(|| async { Arc::new(MemoryStore::new()) as Arc<dyn Store> }).await;
//! # }
//! ```
//!
//! A second suite, [`conformance_under_faults`], checks the behaviour under faults. It needs a way
//! to disconnect the store, slow it down and compact it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use fleet_store::testing::{FaultyStore, FaultInjector, conformance_under_faults};
//! use fleet_store::{MemoryStore, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance_under_faults(|| async {
//!     let store = FaultyStore::new(Arc::new(MemoryStore::new()));
//!     (Arc::new(store.clone()) as Arc<dyn Store>, Arc::new(store) as Arc<dyn FaultInjector>)
//! })
//! .await;
//! # }
//! ```
//!
//! A third suite, [`conformance_after_reopening`], checks that a durable store keeps its data and
//! its leases when it is closed and opened again. It needs an implementation of [`Reopen`].
//!
//! Each promise of the contract has a public function that checks it, so a broken promise can be
//! tested alone. The store may have any revision, but there must be no other writer.

mod commits;
mod faulty;
mod leases;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use tokio::time::timeout;

use crate::{Changes, Commit, Entry, Listing, Store, StoreError, Transaction, Watch};

pub use commits::*;
pub use faulty::FaultyStore;
pub use leases::*;

macro_rules! suite {
    ($($name:ident),+ $(,)?) => {
        /// Names of the promises that [`conformance`] checks, in order.
        pub const PROMISES: &[&str] = &[$(stringify!($name)),+];

        /// Checks every promise of the [`Store`] contract, each on a new store.
        ///
        /// This takes a few seconds if leases are measured in real time.
        ///
        /// # Panics
        ///
        /// Panics with the name of the promise if one is broken.
        pub async fn conformance<F>(make: impl Fn() -> F)
        where
            F: Future<Output = Arc<dyn Store>>,
        {
            $(
                let checked = tokio::spawn($name(make().await)).await;
                if let Err(error) = checked {
                    panic!("the store breaks the promise `{}`: {error}", stringify!($name));
                }
            )+
        }
    };
}

macro_rules! fault_suite {
    ($($name:ident),+ $(,)?) => {
        /// Names of the promises that [`conformance_under_faults`] checks, in order.
        pub const FAULT_PROMISES: &[&str] = &[$(stringify!($name)),+];

        /// Checks the promises of a [`Store`] under faults, each on a new store with its fault
        /// injector.
        ///
        /// # Panics
        ///
        /// Panics with the name of the promise if one is broken.
        pub async fn conformance_under_faults<F>(make: impl Fn() -> F)
        where
            F: Future<Output = (Arc<dyn Store>, Arc<dyn FaultInjector>)>,
        {
            $(
                let (store, faults) = make().await;
                let checked = tokio::spawn($name(store, faults)).await;
                if let Err(error) = checked {
                    panic!("the store breaks the promise `{}`: {error}", stringify!($name));
                }
            )+
        }
    };
}

macro_rules! reopening_suite {
    ($($name:ident),+ $(,)?) => {
        /// Names of the promises that [`conformance_after_reopening`] checks, in order.
        pub const REOPENING_PROMISES: &[&str] = &[$(stringify!($name)),+];

        /// Checks the promises of a durable [`Store`] that is closed and opened again, each on a
        /// new store.
        ///
        /// # Panics
        ///
        /// Panics with the name of the promise if one is broken.
        pub async fn conformance_after_reopening<F>(make: impl Fn() -> F)
        where
            F: Future<Output = Arc<dyn Reopen>>,
        {
            $(
                let checked = tokio::spawn($name(make().await)).await;
                if let Err(error) = checked {
                    panic!("the store breaks the promise `{}`: {error}", stringify!($name));
                }
            )+
        }
    };
}

reopening_suite! {
    acknowledged_writes_survive_reopening,
    lease_survives_reopening,
}

fault_suite! {
    disconnected_store_reports_unavailable,
    slow_store_keeps_the_contract,
    lease_not_renewed_in_outage_is_lost,
    watch_from_compacted_revision_is_refused,
}

suite! {
    read_sees_acknowledged_commits,
    read_returns_prefix_in_key_order,
    read_is_one_consistent_state,
    keys_and_values_round_trip,
    every_write_makes_one_revision,
    commit_without_effect_makes_no_revision,
    failed_condition_prevents_all_writes,
    refusal_returns_condition_and_entry,
    transaction_is_atomic,
    invalid_transactions_are_refused,
    transaction_at_the_limits_is_accepted,
    exactly_one_of_many_writers_wins,
    conflicting_writers_lose_no_update,
    watch_delivers_whole_revisions_once,
    watch_delivers_only_its_prefix,
    watch_can_start_at_a_past_revision,
    watch_from_past_delivers_whole_revisions,
    watch_from_listing_misses_nothing,
    watch_from_future_revision_is_refused,
    watches_see_the_same_order,
    slow_reader_blocks_no_writer_and_has_no_gap,
    lease_end_deletes_its_keys_in_one_revision,
    renewed_lease_outlives_its_ttl,
    revoked_lease_ends_immediately,
    ended_lease_cannot_be_used,
    key_is_bound_to_its_last_lease,
    lease_ids_are_unique,
}

/// Time after which an operation counts as hanging. Stores may round up leases.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn read(store: &Arc<dyn Store>, prefix: &str) -> Listing {
    store.read(prefix).await.expect("the store can be read")
}

async fn entry(store: &Arc<dyn Store>, key: &str) -> Option<Entry> {
    read(store, key).await.entries.into_iter().find(|entry| entry.key == key)
}

async fn value(store: &Arc<dyn Store>, key: &str) -> Option<Vec<u8>> {
    entry(store, key).await.map(|entry| entry.value)
}

/// Commits a transaction that must be applied.
async fn apply(store: &Arc<dyn Store>, transaction: Transaction) -> Revision {
    match store.commit(transaction).await.expect("the store takes a transaction") {
        Commit::Applied(revision) => revision,
        Commit::Refused { condition, .. } => panic!("condition {condition} did not hold"),
    }
}

async fn put(store: &Arc<dyn Store>, key: &str, value: &str) -> Revision {
    apply(store, Transaction::new().put(key, value)).await
}

/// Watches from the current revision on.
async fn watch(store: &Arc<dyn Store>, prefix: &str) -> Watch {
    let revision = read(store, prefix).await.revision;
    watch_after(store, prefix, revision).await
}

async fn watch_after(store: &Arc<dyn Store>, prefix: &str, after: Revision) -> Watch {
    store.watch(prefix, after).await.expect("the store can be watched")
}

/// Returns the next non-empty changes within [`TIMEOUT`].
async fn next(watch: &mut Watch) -> Changes {
    loop {
        let changes = timeout(TIMEOUT, watch.next()).await;
        let changes = changes.expect("the watch delivers in time").expect("the watch continues");
        if !changes.changes.is_empty() {
            return changes;
        }
    }
}

/// Changes in a comparable form: the revision, keys and values.
type Plain = (Revision, Vec<(String, Option<String>)>);

fn plain(changes: &Changes) -> Plain {
    let text = |value: &Arc<[u8]>| String::from_utf8_lossy(value).into_owned();
    let change =
        |change: &crate::KeyChange| (change.key.to_string(), change.value.as_ref().map(text));
    (changes.revision, changes.changes.iter().map(change).collect())
}

async fn next_plain(watch: &mut Watch) -> Plain {
    plain(&next(watch).await)
}

fn expect_invalid<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?} is not invalid");
}

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
