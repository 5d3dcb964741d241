//! Lineages: the identity of a store's history.

use std::fmt;
use std::str::FromStr;

use fleet_core::Epoch;

use super::leadership::raised_epoch_base;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_lineage, encode_lineage};
use crate::registry::Key;
use crate::{Commit, Condition, Entry, Transaction};

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

impl Registry {
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
    ///
    /// [`StoreError::Invalid`]: crate::StoreError::Invalid
    /// [`Leadership::raise_epochs`]: crate::registry::Leadership::raise_epochs
    pub async fn raise_epochs(&self, past: Epoch) -> Result<(), RegistryError> {
        if past == Epoch::ZERO {
            return Ok(());
        }
        let (found, revision) = self.get(&Key::Lineage).await?;
        let Some(found) = found else { return Err(RegistryError::NoLineage) };
        let lineage = read(&found)?;
        let Some(next) = raised_epoch_base(past, lineage.epoch_base + revision.0)? else {
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
        let lineage = found.as_ref().map(read).transpose()?;
        let same = unchanged(&self.key(&Key::Lineage), found.as_ref());
        Ok((lineage.map_or(0, |lineage| lineage.epoch_base), same))
    }

    async fn stored_lineage(&self) -> Result<Option<Lineage>, RegistryError> {
        let (found, _) = self.get(&Key::Lineage).await?;
        found.as_ref().map(read).transpose()
    }
}

fn read(entry: &Entry) -> Result<Lineage, RegistryError> {
    let named = |source| RegistryError::Value { key: entry.key.clone(), source };
    decode_lineage(&entry.value).map_err(named)
}
