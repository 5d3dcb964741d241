//! A store that lives as long as the process.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Revision, Timestamp};
use tokio::sync::watch as signal;

use crate::backend::Keyspace;
use crate::clock::Clock;
use crate::watch::Watchers;
use crate::{Changes, Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};

/// A [`Store`] in memory, for tests and for single-process clusters. Its content is lost when the
/// process ends.
///
/// Leases are measured with tokio's clock, so a test with paused time controls when they end.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    inner: Mutex<Inner>,
    /// End of the next lease, for the task that ends leases.
    next_expiry: signal::Sender<Option<Timestamp>>,
}

#[derive(Debug)]
struct Inner {
    keyspace: Keyspace,
    watchers: Watchers,
}

impl MemoryStore {
    /// Creates an empty store, and starts a task that ends expired leases until the store is
    /// dropped.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        let (next_expiry, expiry) = signal::channel(None);
        let inner = Inner { keyspace: Keyspace::new(), watchers: Watchers::default() };
        let shared = Shared { clock: Clock::start(), inner: Mutex::new(inner), next_expiry };
        let shared = Arc::new(shared);
        drop(tokio::spawn(end_leases(Arc::downgrade(&shared), shared.clock, expiry)));
        Self { shared }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it holds the keyspace")
    }

    /// Changes the keyspace, and then notifies the watches and the task that ends leases. This
    /// first ends all expired leases, so `work` cannot bind a key to one.
    fn change<T>(&self, work: impl FnOnce(&mut Keyspace, Timestamp, &mut Vec<Changes>) -> T) -> T {
        let now = self.clock.now();
        let mut inner = self.lock();
        let ended = inner.keyspace.expire(now);
        let mut made: Vec<_> = ended.into_iter().filter_map(|ended| ended.changes).collect();
        let result = work(&mut inner.keyspace, now, &mut made);
        made.iter().for_each(|changes| inner.watchers.publish(changes));
        let next = inner.keyspace.next_expiry();
        self.next_expiry.send_if_modified(|known| std::mem::replace(known, next) != next);
        result
    }

    fn expire(&self) {
        self.change(|_, _, _| ());
    }
}

/// Ends leases when they expire, until the store is dropped.
async fn end_leases(
    store: Weak<Shared>,
    clock: Clock,
    mut expiry: signal::Receiver<Option<Timestamp>>,
) {
    loop {
        let next = *expiry.borrow_and_update();
        tokio::select! {
            changed = expiry.changed() => if changed.is_err() { return },
            () = clock.wait_until(next) => match store.upgrade() {
                Some(store) => store.expire(),
                None => return,
            },
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.shared.lock().keyspace.read(prefix))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.shared.change(|keyspace, now, made| {
            let outcome = keyspace.apply(now, &transaction)?;
            made.extend(outcome.changes);
            Ok(outcome.commit)
        })
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let mut inner = self.shared.lock();
        let backlog = inner.keyspace.changes_after(after, prefix)?;
        Ok(inner.watchers.add(prefix, backlog))
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        Ok(self.shared.change(|keyspace, now, _| keyspace.grant(now, ttl)))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.shared.change(|keyspace, now, _| keyspace.renew(now, lease))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.shared.change(|keyspace, _, made| {
            made.extend(keyspace.revoke(lease).and_then(|ended| ended.changes));
        });
        Ok(())
    }
}
