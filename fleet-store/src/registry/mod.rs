//! The registry: typed writes of fleet's objects to any store.
//!
//! An operation that depends on stored state makes this state a condition of its transaction. So
//! operations are safe under concurrency, and any number of daemons can share a store.
//!
//! Concurrent operations on units are merged into one transaction. Nevertheless, each of them can
//! be refused separately.

mod destroy;
mod error;
mod group_commit;
mod leadership;
mod lineage;
mod metadata;
mod presence;
#[cfg(feature = "embedded")]
mod restore;
mod units;

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;

use crate::{Commit, Condition, Entry, Layout, LeaseId, Store, StoreError, Transaction};
use group_commit::GroupCommit;

pub use crate::codec::CodecError;
pub use crate::layout::{ContentId, ContentIdError, Key};
pub use error::RegistryError;
#[cfg(feature = "embedded")]
pub(crate) use leadership::RESTORE_JUMP;
pub use leadership::{
    AdoptedUnit, Leadership, PlacementWrites, RebalanceUpdate, RemovePlacement, SetPlacement,
};
pub use lineage::{Lineage, LineageError};
pub use metadata::MetadataChange;
pub use presence::{MachineRecord, Presence};
#[cfg(feature = "embedded")]
pub(crate) use restore::restored_entries;
pub use units::{ExpectUnit, NewUnit, UnusedContent};

/// Typed writes to one cluster. A registry is cheap to clone.
///
/// Reads are served by the [`Mirror`](crate::Mirror) instead. Every write returns its revision, so
/// a caller can wait until a mirror has reached this revision.
#[derive(Clone)]
pub struct Registry {
    store: Arc<dyn Store>,
    layout: Arc<Layout>,
    /// Merges concurrent writes of units.
    group_commit: Arc<GroupCommit>,
}

impl Registry {
    /// Uses the cluster with its keys under `prefix`; see [`Layout::DEFAULT_PREFIX`].
    #[must_use]
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        let layout = Arc::new(Layout::new(prefix));
        Self { store, layout, group_commit: Arc::default() }
    }

    /// Returns the underlying store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the keys of the cluster.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn key(&self, key: &Key) -> String {
        self.layout.key(key)
    }

    /// Condition that no leader has written placements since `last`.
    fn placements_unchanged_since(&self, last: Option<Revision>) -> Condition {
        let key = self.key(&Key::PlacementVersion);
        match last {
            Some(last) => Condition::modified_at(key, last),
            None => Condition::absent(key),
        }
    }

    /// Commits a transaction on units, merged with concurrent ones.
    async fn commit_grouped(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.group_commit.commit(&self.store, transaction).await
    }

    /// Returns the entry of a key, and the revision of the read.
    async fn get(&self, key: &Key) -> Result<(Option<Entry>, Revision), RegistryError> {
        let key = self.key(key);
        let listing = self.store.read(&key).await?;
        // Entries are in order, so the key itself precedes longer ones with the same prefix.
        let entry = listing.entries.into_iter().next().filter(|entry| entry.key == key);
        Ok((entry, listing.revision))
    }

    /// Grants a lease and commits a transaction with it. If the transaction is not applied, revokes
    /// the lease.
    async fn with_lease(
        &self,
        ttl: Duration,
        transaction: impl FnOnce(LeaseId) -> Transaction + Send,
    ) -> Result<(LeaseId, Commit), RegistryError> {
        let lease = self.store.grant(ttl).await?;
        let result = self.store.commit(transaction(lease)).await;
        if !matches!(result, Ok(Commit::Applied(_))) {
            self.release_lease(lease).await;
        }
        Ok((lease, result?))
    }

    /// Revokes a lease that is no longer needed. If the revocation fails, the lease ends when it
    /// expires.
    async fn release_lease(&self, lease: LeaseId) {
        if let Err(error) = self.store.revoke(lease).await {
            tracing::debug!(%lease, %error, "cannot revoke a lease: it will expire");
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Condition that a key has not changed since it was read.
fn unchanged(key: &str, found: Option<&Entry>) -> Condition {
    match found {
        Some(entry) => Condition::modified_at(key, entry.modified),
        None => Condition::absent(key),
    }
}
