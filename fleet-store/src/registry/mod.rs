//! The registry: fleet's nouns over any store, written by typed operations.
//!
//! Every operation is one transaction with the conditions that make it safe beside all others, so
//! any number of daemons may use one store. What an operation needs to know beforehand it reads,
//! and what it has read is then a condition. Operations about units that come group_commit share a
//! transaction, and are each refused by themselves.

mod batch;
mod destroy;
mod error;
mod group_commit;
mod intents;
mod leadership;
mod lineage;
mod metadata;
mod presence;
mod rebalancing;
#[cfg(feature = "embedded")]
mod restore;
mod units;

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;

use crate::{Commit, Condition, Entry, Key, Layout, LeaseId, Store, StoreError, Transaction};
use group_commit::GroupCommit;

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

/// The typed writes of one cluster. Cloning is cheap.
///
/// Reads are served by the [`Mirror`](crate::Mirror); every write returns the revision for which a
/// mirror can be waited, so that whoever wrote can read it.
#[derive(Clone)]
pub struct Registry {
    store: Arc<dyn Store>,
    layout: Arc<Layout>,
    /// The writes of units that are made group_commit.
    group_commit: Arc<GroupCommit>,
}

impl Registry {
    /// The cluster whose keys are under `prefix`; see [`Layout::DEFAULT_PREFIX`].
    #[must_use]
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        let layout = Arc::new(Layout::new(prefix));
        Self { store, layout, group_commit: Arc::default() }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The keys of the cluster.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn key(&self, key: &Key) -> String {
        self.layout.key(key)
    }

    /// The condition that no leader wrote placements since `last`.
    fn placements_unchanged_since(&self, last: Option<Revision>) -> Condition {
        let key = self.key(&Key::PlacementVersion);
        match last {
            Some(last) => Condition::modified_at(key, last),
            None => Condition::absent(key),
        }
    }

    /// Commits a transaction about units, group_commit with others that come at the same time.
    async fn commit_grouped(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.group_commit.commit(&self.store, transaction).await
    }

    /// The entry of one key, and the revision at which it was looked for.
    async fn get(&self, key: &Key) -> Result<(Option<Entry>, Revision), RegistryError> {
        let key = self.key(key);
        let listing = self.store.read(&key).await?;
        // Entries are in order, so the key itself comes before those that only start with it.
        let entry = listing.entries.into_iter().next().filter(|entry| entry.key == key);
        Ok((entry, listing.revision))
    }

    /// Grants a lease, and runs with it a transaction that says whether it was applied. If it was
    /// not, the lease is given back.
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

    /// Ends a lease of which nobody else knows. If that fails, time will end it.
    async fn release_lease(&self, lease: LeaseId) {
        if let Err(error) = self.store.revoke(lease).await {
            tracing::debug!(%lease, %error, "a lease is left to its time");
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The condition that nothing happened to a key since it was read.
fn unchanged(key: &str, found: Option<&Entry>) -> Condition {
    match found {
        Some(entry) => Condition::modified_at(key, entry.modified),
        None => Condition::absent(key),
    }
}
