//! Which unbroken history of revisions a store has.

use std::fmt;
use std::str::FromStr;

use fleet_core::Epoch;

use super::leadership::raised_epoch_base;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_lineage, encode_lineage};
use crate::{Commit, Condition, Entry, Key, Transaction};

/// The identity of an unbroken history of revisions. A store has one from its first daemon on; when
/// a backup is restored, a new one begins. Two revisions can be compared only within one lineage.
///
/// Epochs and generations can be compared across lineages, because agents remember them: those of
/// a lineage are counted from where it [begins](Self::with_epoch_base), and its revisions are added.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage {
    id: Box<str>,
    epoch_base: u64,
}

/// A text that is no lineage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no lineage: 1 to 64 letters, digits or \"-\" are")]
pub struct LineageError(String);

impl FromStr for Lineage {
    type Err = LineageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
            return Err(LineageError(text.to_owned()));
        }
        Ok(Self { id: text.into(), epoch_base: 0 })
    }
}

impl Lineage {
    /// The same lineage, with its epochs and generations counted from `epoch_base` instead of zero.
    ///
    /// Let it be more than any earlier lineage has come to whose orders the machines may remember,
    /// and no agent takes the first orders of this one for overtaken. The microseconds since 1970
    /// are: no store makes a million revisions in a second.
    #[must_use]
    pub fn with_epoch_base(self, epoch_base: u64) -> Self {
        Self { epoch_base, ..self }
    }

    /// Whether both are one history, be it said to begin elsewhere now.
    #[must_use]
    pub fn same_history(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// What its epochs and generations are counted from.
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
    /// The lineage of the store: the one that it has, or `fresh`, which it gets if it has none.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when the stored one cannot be read, and is left as it is;
    /// [`RegistryError::Conflict`] when someone else gave it one at this very moment.
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

    /// Lets all epochs from now on come after `past`, to which another cluster has come, and after
    /// those that were made there meanwhile; see [`Leadership::raise_epochs`].
    ///
    /// A leader counts from where the lineage began at its election. So it is deposed in the same
    /// step, learns of it when it writes or renews, and whoever is elected next counts anew.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoLineage`] when the store has none; [`RegistryError::Conflict`] when
    /// somebody else changed it at this very moment; [`StoreError::Invalid`] when no cluster gets
    /// as far as `past`.
    ///
    /// [`StoreError::Invalid`]: crate::StoreError::Invalid
    /// [`Leadership::raise_epochs`]: crate::Leadership::raise_epochs
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

    /// What the epochs and generations of this store are counted from: zero if it has no lineage.
    pub(super) async fn epoch_base(&self) -> Result<u64, RegistryError> {
        Ok(self.epoch_base_condition().await?.0)
    }

    /// The [epoch_base](Self::epoch_base), and the condition that it is still the same.
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
