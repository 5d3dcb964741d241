//! Lineages: the identity of a store's history.

use std::fmt;
use std::str::FromStr;

use super::RegistryError;
use crate::Entry;
use crate::codec::decode_lineage;

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

pub(super) fn read(entry: &Entry) -> Result<Lineage, RegistryError> {
    let named = |source| RegistryError::Value { key: entry.key.clone(), source };
    decode_lineage(&entry.value).map_err(named)
}
