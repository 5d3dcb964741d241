//! Which unbroken history of revisions a store has.

use std::fmt;
use std::str::FromStr;

use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_lineage, encode_lineage};
use crate::{Commit, Key, Transaction};

/// The identity of an unbroken history of revisions. A store has one from its first daemon on; when
/// a backup is restored, a new one begins. Two revisions can be compared only within one lineage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(Box<str>);

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
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
        let (found, _) = self.get(&Key::Lineage).await?;
        if let Some(entry) = found {
            let key = entry.key;
            return decode_lineage(&entry.value)
                .map_err(|source| RegistryError::Value { key, source });
        }
        let key = self.key(&Key::Lineage);
        let put = Transaction::new().when(unchanged(&key, None)).put(key, encode_lineage(fresh));
        match self.store.commit(put).await? {
            Commit::Applied(_) => Ok(fresh.clone()),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }
}
