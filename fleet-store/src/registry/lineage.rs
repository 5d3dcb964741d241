//! Which unbroken history of revisions a store has, and how a new one begins.

use std::fmt;
use std::str::FromStr;

use fleet_core::{Epoch, Placement, Revision};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{
    decode_lineage, decode_placement, encode_lineage, encode_placement, encode_term,
};
use crate::{Commit, Entry, Key, Layout, Transaction};

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

/// The entries of a backup as the beginning of a new life at `revision`, which is higher than any
/// that the lost life can have come to.
///
/// Whatever is compared with what agents and engines remember of the lost life is made to come
/// after it: every placement gets `revision` as its epoch, so that no agent takes it for overtaken,
/// and the last term becomes `revision`, which is at least as high as any term. No generation is
/// higher than the revision that it was made at, so restarts to come are higher by themselves.
#[cfg(feature = "embedded")]
pub(crate) fn new_life(
    entries: Vec<Entry>,
    layout: &Layout,
    revision: Revision,
    lineage: &Lineage,
) -> Vec<Entry> {
    let lineage_key = layout.key(&Key::Lineage);
    let mut entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.key != lineage_key)
        .map(|entry| match reborn(layout, &entry, revision) {
            Some(value) => Entry { value, modified: revision, ..entry },
            None => entry,
        })
        .collect();
    let at = entries.partition_point(|entry| entry.key < lineage_key);
    let value = encode_lineage(lineage);
    entries.insert(at, Entry { key: lineage_key, value, modified: revision, lease: None });
    entries
}

/// The value that an entry gets in its new life, if it gets another.
#[cfg(feature = "embedded")]
fn reborn(layout: &Layout, entry: &Entry, revision: Revision) -> Option<Vec<u8>> {
    match layout.parse(&entry.key)? {
        Key::Placement(_) => {
            // One that cannot be understood stays what it is: a fault of its unit.
            let Placement { machine, .. } = decode_placement(&entry.value).ok()?;
            Some(encode_placement(&Placement { machine, epoch: Epoch(revision.0) }))
        }
        Key::Term => Some(encode_term(revision.0)),
        _ => None,
    }
}
