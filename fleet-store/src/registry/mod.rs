//! The registry: typed writes of fleet's objects to any store.
//!
//! An operation that depends on stored state makes this state a condition of its transaction. So
//! operations are safe under concurrency, and any number of daemons can share a store.
//!
//! Concurrent operations on units are merged into one transaction. Nevertheless, each of them can
//! be refused separately.
//!
//! A store has a lineage: the identity of its history.

mod bulk;
mod destroy;
mod error;
mod group_commit;
mod history;
mod jobs;
mod leadership;
mod presence;
mod revisions;
mod rollouts;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing};
use fleet_core::{Epoch, Intent, MachineId, Revision};

use crate::codec::{
    decode_lineage, decode_rebalancing, encode_intent, encode_lineage, encode_rebalancing,
    encode_text,
};
use crate::transfer::Export;
use crate::{Commit, Condition, Entry, Layout, LeaseId, Store, StoreError, Transaction};
use group_commit::GroupCommit;
use leadership::raised_epoch_base;

pub use self::bulk::{BulkError, BulkWrite, PlacementsUnchanged, UnitWrite};
pub use crate::codec::CodecError;
pub use crate::layout::{ContentId, ContentIdError, Key};
pub use error::RegistryError;
pub use jobs::RecordUpdate;
#[cfg(feature = "embedded")]
pub(crate) use leadership::RESTORE_JUMP;
pub use leadership::{
    AdoptedUnit, Leadership, PlacementWrites, RebalanceUpdate, RemovePlacement, SetPlacement,
};
pub use presence::{MachineRecord, Presence};
pub use revisions::UnitRevision;
pub use rollouts::{DeferredFile, MemberFiles, NewRollout, RolloutFiles, RolloutStep};
pub use units::{ExpectUnit, NewUnit, UnusedContent};

/// Change of a machine's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataChange {
    /// Sets a key. An empty value hides the key, like [`Remove`](Self::Remove).
    Set {
        /// Machine, present or not.
        machine: MachineId,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Hides a key, even if it is in the machine's configuration.
    Remove {
        /// Machine, present or not.
        machine: MachineId,
        /// The key.
        key: String,
    },
}

/// Maximum number of attempts to write the request. The engine changes the request with every step
/// of a rebalancing, so conflicts are common.
const MAX_ATTEMPTS: usize = 8;

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

    /// Tries to become the leader. The leadership lasts for `ttl`, and longer if it is renewed.
    /// Returns `None` while another candidate leads, or if another candidate has just won.
    ///
    /// An existing leadership of the same candidate belongs to an earlier process of its daemon. It
    /// is replaced immediately, in a new term.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when the stored term or lineage cannot be read. Without them, no
    /// new term or epoch can be determined, so no candidate may lead.
    pub async fn campaign(
        &self,
        candidate: &MachineId,
        ttl: Duration,
    ) -> Result<Option<Leadership>, RegistryError> {
        Leadership::campaign(self, candidate, ttl).await
    }

    /// Makes a machine present. The presence lasts for `ttl`, and longer if it is renewed.
    ///
    /// `token` distinguishes the machine from a copy of it with the same identity. So the token
    /// must survive a restart of the daemon, but must not be copied with the disk. For example,
    /// store it in a file below `/run`.
    ///
    /// A claim with the same token belongs to an earlier process of the daemon, and is replaced
    /// immediately. The states that the earlier process published are deleted together with its
    /// lease. So the caller must publish them again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::MachineTaken`] when a machine with another token uses this identity, or
    /// this version cannot read the stored claim; [`RegistryError::Conflict`] when the claim
    /// changed concurrently.
    pub async fn join(
        &self,
        machine: MachineRecord,
        token: &str,
        ttl: Duration,
    ) -> Result<Presence, RegistryError> {
        Presence::join(self, machine, token, ttl).await
    }

    /// Returns the lineage of the store. If the store has none, stores `fresh` and returns it.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when the stored lineage cannot be read; it is left unchanged.
    /// [`RegistryError::Conflict`] when another process stored a lineage concurrently.
    pub async fn lineage(&self, fresh: &Lineage) -> Result<Lineage, RegistryError> {
        if let Some(found) = self.stored_lineage().await? {
            return Ok(found);
        }
        let key = self.key(&Key::Lineage);
        let put = Transaction::new().when(unchanged(&key, None)).put(key, encode_lineage(fresh));
        match self.store.commit(put).await? {
            Commit::Applied(_) => Ok(fresh.clone()),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Raises the epoch base, so that all later epochs exceed `past`, an epoch of another cluster.
    /// They also exceed the epochs that the other cluster may have created since then. This writes
    /// nothing if the epochs are already high enough.
    ///
    /// A leader uses the epoch base of its election, so the step that raises the base also deposes
    /// the current leader. That leader notices at its next write or renewal. The next leader uses
    /// the new base.
    ///
    /// [`Leadership::raise_epochs`] does the same for a leader that continues.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoLineage`] when the store has no lineage; [`RegistryError::Conflict`] when
    /// another process changed the lineage concurrently; [`StoreError::Invalid`] when `past` is
    /// beyond the limit for epochs.
    pub async fn raise_epochs(&self, past: Epoch) -> Result<(), RegistryError> {
        if past == Epoch::ZERO {
            return Ok(());
        }
        let (found, revision) = self.get(&Key::Lineage).await?;
        let Some(found) = found else { return Err(RegistryError::NoLineage) };
        let lineage = read_lineage(&found)?;
        let Some(next) = raised_epoch_base(past, lineage.epoch_base() + revision.0)? else {
            return Ok(());
        };
        let (leader, _) = self.get(&Key::Leader).await?;
        let raise = Transaction::new()
            .when(unchanged(&found.key, Some(&found)))
            .put(found.key, encode_lineage(&lineage.with_epoch_base(next)))
            .delete(self.key(&Key::Leader));
        let Commit::Applied(_) = self.store.commit(raise).await? else {
            return Err(RegistryError::Conflict);
        };
        if let Some(lease) = leader.and_then(|leader| leader.lease) {
            self.release_lease(lease).await;
        }
        Ok(())
    }

    /// Returns the base of the store's epochs and generations, or zero if the store has no lineage.
    pub(super) async fn epoch_base(&self) -> Result<u64, RegistryError> {
        Ok(self.epoch_base_condition().await?.0)
    }

    /// Returns the [epoch base](Self::epoch_base), and the condition that it is unchanged.
    pub(super) async fn epoch_base_condition(&self) -> Result<(u64, Condition), RegistryError> {
        let (found, _) = self.get(&Key::Lineage).await?;
        let lineage = found.as_ref().map(read_lineage).transpose()?;
        let same = unchanged(&self.key(&Key::Lineage), found.as_ref());
        Ok((lineage.map_or(0, |lineage| lineage.epoch_base()), same))
    }

    async fn stored_lineage(&self) -> Result<Option<Lineage>, RegistryError> {
        let (found, _) = self.get(&Key::Lineage).await?;
        found.as_ref().map(read_lineage).transpose()
    }

    /// Applies all changes in one step. If several changes have the same machine and key, the last
    /// one takes effect.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] as a [`RegistryError::Store`] when a key is empty, there are no
    /// changes, or the changes do not fit into one [transaction](Transaction::MAX_OPERATIONS).
    pub async fn patch_metadata(
        &self,
        changes: &[MetadataChange],
    ) -> Result<Revision, RegistryError> {
        let mut last = BTreeMap::new();
        for change in changes {
            let (machine, key, value) = match change {
                MetadataChange::Set { machine, key, value } => (machine, key, value.as_str()),
                MetadataChange::Remove { machine, key } => (machine, key, ""),
            };
            last.insert((machine, key), value);
        }
        if last.is_empty() || last.keys().any(|(_, key)| key.is_empty()) {
            let text = "a metadata change has no key".to_owned();
            return Err(StoreError::Invalid(text).into());
        }
        let put = |transaction: Transaction,
                   ((machine, key), value): ((&MachineId, &String), _)| {
            let key = Key::Metadata(machine.clone(), key.clone());
            transaction.put(self.key(&key), encode_text(value))
        };
        match self.store.commit(last.into_iter().fold(Transaction::new(), put)).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Sets or replaces the intent for a machine, even if the machine is absent. `None` removes the
    /// intent, so the machine accepts units again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails.
    pub async fn set_intent(
        &self,
        machine: &MachineId,
        intent: Option<Intent>,
    ) -> Result<Revision, RegistryError> {
        let key = self.key(&Key::Intent(machine.clone()));
        let transaction = match intent {
            Some(intent) => Transaction::new().put(key, encode_intent(intent)),
            None => Transaction::new().delete(key),
        };
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Requests a rebalancing of the cluster. If there is a request already, only its limits are
    /// replaced, so moves that have begun continue. A request with the same limits changes nothing.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails; [`RegistryError::Conflict`] when other
    /// writers changed the request during every attempt.
    pub async fn request_rebalancing(
        &self,
        limits: RebalanceLimits,
    ) -> Result<Revision, RegistryError> {
        let key = self.key(&Key::Rebalancing);
        for _ in 0..MAX_ATTEMPTS {
            let (entry, revision) = self.get(&Key::Rebalancing).await?;
            // An unreadable request is not executed, and is replaced.
            let before = entry.as_ref().and_then(|entry| decode_rebalancing(&entry.value).ok());
            if before.as_ref().is_some_and(|before| before.limits == limits) {
                return Ok(revision);
            }
            let under_way = before.map(|before| before.moves).unwrap_or_default();
            let order = Rebalancing { moves: under_way, ..Rebalancing::new(limits) };
            let order = encode_rebalancing(&order);
            let transaction = Transaction::new().when(unchanged(&key, entry.as_ref()));
            let commit = self.store.commit(transaction.put(&key, order)).await?;
            if let Commit::Applied(revision) = commit {
                return Ok(revision);
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Deletes the rebalancing request, if one exists. Units stay on their current machines.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails.
    pub async fn end_rebalancing(&self) -> Result<Revision, RegistryError> {
        let transaction = Transaction::new().delete(self.key(&Key::Rebalancing));
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Reads the cluster from the store for [exporting](Export), without a mirror.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store cannot be read; [`RegistryError::Value`] when the
    /// lineage cannot be read.
    pub async fn export(&self) -> Result<Export, RegistryError> {
        let listing = self.store().read(self.layout().prefix()).await?;
        crate::mirror::export_of(self.layout().clone(), listing)
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

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Identity of an unbroken history of revisions. The first daemon of a store creates it, and
/// restoring a backup starts a new lineage. Revisions can be compared only within one lineage.
///
/// In contrast, epochs and generations must stay comparable across lineages, because agents
/// remember them. An epoch or generation is therefore the sum of a revision and the lineage's
/// [epoch base](Self::epoch_base).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage {
    id: Box<str>,
    epoch_base: u64,
    predecessor: Option<Box<str>>,
}

/// Error for text that is not a lineage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a lineage (identity of a store): use 1 to 64 letters, digits or \"-\"")]
pub struct LineageError(String);

impl FromStr for Lineage {
    type Err = LineageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
            return Err(LineageError(text.to_owned()));
        }
        Ok(Self { id: text.into(), epoch_base: 0, predecessor: None })
    }
}

impl Lineage {
    /// Returns the same lineage with another epoch base; the default is zero.
    ///
    /// The base should exceed every epoch of earlier lineages that machines may remember. Otherwise
    /// agents would reject the first placements of this lineage as stale. The number of
    /// microseconds since 1970 is high enough, because no store creates a million revisions a
    /// second.
    #[must_use]
    pub fn with_epoch_base(self, epoch_base: u64) -> Self {
        Self { epoch_base, ..self }
    }

    /// Returns the same lineage as the successor of `earlier`: a person restored or imported the
    /// content of `earlier` here. Machines of that lineage follow this one.
    #[must_use]
    pub fn with_predecessor(self, earlier: &Self) -> Self {
        Self { predecessor: Some(earlier.id.clone()), ..self }
    }

    /// Returns whether a machine that has followed `earlier` may follow this lineage: both are the
    /// same history, or this one is the successor of `earlier`.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        self.same_history(earlier) || self.predecessor.as_ref() == Some(&earlier.id)
    }

    /// Returns the ID of the lineage whose content was restored or imported here.
    pub(crate) fn predecessor(&self) -> Option<&str> {
        self.predecessor.as_deref()
    }

    /// Returns whether both are the same history, even with different epoch bases.
    #[must_use]
    pub fn same_history(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns the base from which epochs and generations are counted.
    #[must_use]
    pub fn epoch_base(&self) -> u64 {
        self.epoch_base
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

fn read_lineage(entry: &Entry) -> Result<Lineage, RegistryError> {
    let named = |source| RegistryError::Value { key: entry.key.clone(), source };
    decode_lineage(&entry.value).map_err(named)
}
