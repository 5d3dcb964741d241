//! A store that fails on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use tokio::sync::broadcast;

use super::FaultInjector;
use crate::backend::Keyspace;
use crate::clock::sleep;
use crate::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};

/// A [`Store`] that wraps another store. It can be disconnected, slowed down and made to lose
/// responses.
///
/// Clones share the same faults, so a test can keep one handle and pass on another.
///
/// ```
/// use std::sync::Arc;
///
/// use fleet_store::testing::FaultyStore;
/// use fleet_store::{MemoryStore, Store, StoreError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
/// store.set_unreachable(true);
/// assert!(matches!(store.read("").await, Err(StoreError::Unavailable(_))));
/// store.set_unreachable(false);
/// assert!(store.read("").await.is_ok());
/// # }
/// ```
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
}

struct Faults {
    unreachable: AtomicBool,
    /// Number of further calls that fail as unavailable.
    unavailable: AtomicUsize,
    /// Number of further commits that are applied but fail as unknown.
    lost_responses: AtomicUsize,
    /// Number of further commits that are not applied and fail as unknown.
    lost_requests: AtomicUsize,
    delay: Mutex<Duration>,
    /// Channel that cuts off all existing watches, in the order in which they were opened.
    /// Simulations depend on this order.
    cuts: broadcast::Sender<()>,
    reads: AtomicUsize,
    commits: AtomicUsize,
    renewals: AtomicUsize,
}

/// Cause of every injected failure.
#[derive(Debug, thiserror::Error)]
#[error("injected fault")]
struct InjectedFault;

impl FaultyStore {
    /// Creates a store without faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let faults = Faults {
            unreachable: AtomicBool::new(false),
            unavailable: AtomicUsize::new(0),
            lost_responses: AtomicUsize::new(0),
            lost_requests: AtomicUsize::new(0),
            delay: Mutex::new(Duration::ZERO),
            cuts: broadcast::Sender::new(1),
            reads: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            renewals: AtomicUsize::new(0),
        };
        Self { inner, faults: Arc::new(faults) }
    }

    /// Returns the underlying store, which has no faults.
    #[must_use]
    pub fn inner(&self) -> Arc<dyn Store> {
        self.inner.clone()
    }

    /// Makes the store and its watches unreachable, or reachable again. While the store is
    /// unreachable, its leases continue to expire, as behind a broken network.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.faults.unreachable.store(unreachable, Ordering::SeqCst);
        if unreachable {
            self.cut_watches();
        }
    }

    /// Makes the next `calls` calls fail as [`StoreError::Unavailable`].
    pub fn fail_next(&self, calls: usize) {
        self.faults.unavailable.store(calls, Ordering::SeqCst);
    }

    /// Makes the next `commits` commits succeed but return [`StoreError::Unknown`].
    pub fn lose_responses(&self, commits: usize) {
        self.faults.lost_responses.store(commits, Ordering::SeqCst);
    }

    /// Makes the next `commits` commits fail as [`StoreError::Unknown`] without being applied.
    pub fn lose_requests(&self, commits: usize) {
        self.faults.lost_requests.store(commits, Ordering::SeqCst);
    }

    /// Cuts off all existing watches.
    pub fn cut_watches(&self) {
        // An error means that there are no watches.
        let _told = self.faults.cuts.send(()).is_ok();
    }

    /// Delays every further call, and every delivery of a watch, by this time.
    pub fn set_delay(&self, delay: Duration) {
        *self.faults.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// Returns the number of reads, including failed ones.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.faults.reads.load(Ordering::SeqCst)
    }

    /// Returns the number of commits, including failed ones.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.faults.commits.load(Ordering::SeqCst)
    }

    /// Returns the number of lease renewals, including failed ones.
    #[must_use]
    pub fn renewals(&self) -> usize {
        self.faults.renewals.load(Ordering::SeqCst)
    }
}

impl Faults {
    /// Applies the faults that all calls share.
    async fn pass(&self) -> Result<(), StoreError> {
        self.apply_delay().await;
        if self.unreachable.load(Ordering::SeqCst) || take(&self.unavailable) {
            return Err(StoreError::Unavailable(Box::new(InjectedFault)));
        }
        Ok(())
    }

    async fn apply_delay(&self) {
        let delay = *self.delay.lock().unwrap_or_else(PoisonError::into_inner);
        if !delay.is_zero() {
            sleep(delay).await;
        }
    }
}

/// Decrements a number of scripted failures. Returns `false` if none is left.
fn take(left: &AtomicUsize) -> bool {
    let fewer = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
}

#[async_trait]
impl Store for FaultyStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        self.faults.pass().await?;
        self.inner.read(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.faults.commits.fetch_add(1, Ordering::SeqCst);
        self.faults.pass().await?;
        if take(&self.faults.lost_requests) {
            return Err(StoreError::Unknown(Box::new(InjectedFault)));
        }
        let result = self.inner.commit(transaction).await;
        if take(&self.faults.lost_responses) {
            return Err(StoreError::Unknown(Box::new(InjectedFault)));
        }
        result
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        // Subscribe before the call, so that a concurrent cut is not missed.
        let cuts = self.faults.cuts.subscribe();
        self.faults.pass().await?;
        let watch = self.inner.watch(prefix, after).await?;
        Ok(relay(watch, self.faults.clone(), cuts))
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.faults.pass().await?;
        self.inner.grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.faults.renewals.fetch_add(1, Ordering::SeqCst);
        self.faults.pass().await?;
        self.inner.renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.faults.pass().await?;
        self.inner.revoke(lease).await
    }
}

/// Delay of all operations of a slow store.
const SLOW: Duration = Duration::from_millis(20);

#[async_trait]
impl FaultInjector for FaultyStore {
    async fn disconnect(&self) {
        self.set_unreachable(true);
    }

    async fn slow_down(&self) {
        self.set_delay(SLOW);
    }

    async fn heal(&self) {
        self.set_unreachable(false);
        self.set_delay(Duration::ZERO);
    }

    /// Makes so many changes that a [`Keyspace`] drops its earlier history.
    async fn compact(&self) {
        let most = Transaction::MAX_OPERATIONS;
        for round in 0..=Keyspace::DEFAULT_HISTORY / most + 1 {
            let put = |transaction: Transaction, key| {
                transaction.put(format!("compaction/{key}"), round.to_string())
            };
            let filling = (0..most).fold(Transaction::new(), put);
            self.inner.commit(filling).await.expect("the store below can be written");
        }
    }
}

/// Creates a watch that forwards `watch` until it is cut off.
fn relay(mut watch: Watch, faults: Arc<Faults>, mut cuts: broadcast::Receiver<()>) -> Watch {
    let (mut sender, relayed) = Watch::channel(1024);
    let relaying = async move {
        loop {
            let changes = tokio::select! {
                biased;
                _ = cuts.recv() => return,
                () = sender.closed() => return,
                changes = watch.next() => changes,
            };
            faults.apply_delay().await;
            let Ok(changes) = changes else { return };
            if !sender.try_send(changes) {
                return;
            }
        }
    };
    drop(tokio::spawn(relaying));
    relayed
}
