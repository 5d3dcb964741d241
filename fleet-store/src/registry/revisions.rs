//! Earlier files of units.
//!
//! One key per unit has its last revisions, each with the bytes of its file, except for the current
//! one. So neither the mirror nor the collection of unused contents has to know about them.

use fleet_unitfile::UnitName;

use super::{Registry, RegistryError};
use crate::clock::wall_millis;
use crate::codec::{
    CodecError, StoredRevision, decode_content, decode_revisions, decode_unit, encode_revisions,
};
use crate::registry::{ContentId, Key};
use crate::{Condition, Entry, Transaction};

/// Maximum number of revisions that are kept for a unit, including the current one.
const MAX_REVISIONS: usize = 10;

/// Maximum size of the stored history of a unit, in bytes.
const MAX_BYTES: usize = 128 << 10;

/// Upper bound of the size of all other keys and values in the transaction of a unit, in bytes.
const OTHER_BYTES: usize = 8 << 10;

/// A file that a unit has or had.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitRevision {
    /// Number of the revision, counted from 1 for the file with which the unit was created.
    pub number: u64,
    /// Time of the write by the clock of the daemon that made it, in milliseconds since 1970 (UTC).
    /// `None` if it is unknown.
    pub written_at: Option<u64>,
    /// The bytes of the file.
    pub source: Vec<u8>,
}

impl Registry {
    /// Returns the kept revisions of a unit, in the order of their numbers. The last one is the
    /// current one.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist; [`RegistryError::Value`] when the
    /// unit cannot be read. Unreadable earlier revisions are left out.
    pub async fn revisions(&self, name: &UnitName) -> Result<Vec<UnitRevision>, RegistryError> {
        let (entry, _) = self.get(&Key::Unit(name.clone())).await?;
        let entry = entry.ok_or_else(|| RegistryError::NotFound { name: name.clone() })?;
        let record = decode_unit(&entry.value)
            .map_err(|source| RegistryError::Value { key: entry.key, source })?;
        let current = self.stored_file(record.content).await?;
        let (history, _) = self.get(&Key::Revisions(name.clone())).await?;
        let stored = history.and_then(|it| decode_revisions(&it.value).ok()).unwrap_or_default();
        let mut revisions = Vec::new();
        let mut is_known = false;
        for StoredRevision { number, written_at, content, source } in stored {
            let is_current = source.is_none() && content == record.content;
            let source = if is_current { Some(current.clone()) } else { source };
            is_known = is_current;
            revisions.extend(source.map(|source| UnitRevision { number, written_at, source }));
        }
        if !is_known {
            let number = revisions.last().map_or(1, |last| last.number + 1);
            revisions.push(UnitRevision { number, written_at: None, source: current });
        }
        Ok(revisions)
    }

    /// Returns the bytes of a stored unit file.
    pub(super) async fn stored_file(&self, content: ContentId) -> Result<Vec<u8>, RegistryError> {
        let (entry, _) = self.get(&Key::Content(content)).await?;
        let key = || self.key(&Key::Content(content));
        let entry = entry.ok_or_else(|| RegistryError::Value {
            key: key(),
            source: CodecError::damaged("the file of the unit is missing"),
        })?;
        let source = decode_content(content, &entry.value);
        let source = source.map_err(|source| RegistryError::Value { key: key(), source })?;
        Ok(source.to_vec())
    }

    /// Returns the write that begins the history of a new unit.
    pub(super) fn first_revision(&self, name: &UnitName, content: ContentId) -> Transaction {
        let first = StoredRevision { number: 1, written_at: wall_millis(), content, source: None };
        Transaction::new().put(self.key(&Key::Revisions(name.clone())), encode_revisions(&[first]))
    }

    /// Returns the write that adds a revision to the history of a unit. Its file with the ID
    /// `before` is replaced by the file `after`, of `size` bytes. `source` has the bytes of the
    /// replaced file; `None` if they cannot be read. The result is empty if the file stays, or if a
    /// newer version of fleet wrote the history.
    pub(super) async fn next_revision(
        &self,
        name: &UnitName,
        (before, source): (ContentId, Option<&[u8]>),
        (after, size): (ContentId, usize),
    ) -> Result<Transaction, RegistryError> {
        if before == after {
            return Ok(Transaction::new());
        }
        let key = Key::Revisions(name.clone());
        let (entry, _) = self.get(&key).await?;
        let stored = entry.as_ref().map(|entry: &Entry| decode_revisions(&entry.value));
        let revisions = match stored {
            Some(Err(CodecError::Newer { .. })) => return Ok(Transaction::new()),
            Some(Ok(revisions)) => revisions,
            Some(Err(_)) | None => Vec::new(),
        };
        let next = with_revision(revisions, (before, source), after, wall_millis());
        // The new file is in the same transaction.
        let room = Transaction::MAX_BYTES.saturating_sub(size + OTHER_BYTES);
        let next = within(next, MAX_BYTES.min(room));
        let key = self.key(&key);
        let same = match entry {
            Some(entry) => Condition::modified_at(&key, entry.modified),
            None => Condition::absent(&key),
        };
        Ok(Transaction::new().when(same).put(key, encode_revisions(&next)))
    }
}

/// Adds a revision, and removes the oldest ones beyond the limits.
fn with_revision(
    mut revisions: Vec<StoredRevision>,
    (before, source): (ContentId, Option<&[u8]>),
    after: ContentId,
    written_at: Option<u64>,
) -> Vec<StoredRevision> {
    let last = revisions.last().map_or(0, |last| last.number);
    let number = match revisions.last_mut() {
        Some(current) if current.content == before => {
            current.source = source.map(<[u8]>::to_vec);
            last
        }
        // A daemon that keeps no revisions wrote the file. The one before it is lost.
        _ => {
            revisions.retain(|it| it.source.is_some());
            let (number, source) = (last + 1, source.map(<[u8]>::to_vec));
            revisions.push(StoredRevision { number, written_at: None, content: before, source });
            number
        }
    };
    let number = number + 1;
    revisions.push(StoredRevision { number, written_at, content: after, source: None });
    revisions
}

/// Removes the oldest revisions beyond the limits. `size` is the maximum size of the encoding, in
/// bytes. The current revision stays.
fn within(mut revisions: Vec<StoredRevision>, size: usize) -> Vec<StoredRevision> {
    let excess = revisions.len().saturating_sub(MAX_REVISIONS);
    revisions.drain(..excess);
    while revisions.len() > 1 && encode_revisions(&revisions).len() > size {
        revisions.remove(0);
    }
    revisions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(revisions: &[StoredRevision]) -> String {
        let line = |it: &StoredRevision| {
            let size = it
                .source
                .as_ref()
                .map_or_else(|| "current".to_owned(), |source| format!("{} bytes", source.len()));
            format!("{} at {:?}: {size}\n", it.number, it.written_at)
        };
        revisions.iter().map(line).collect()
    }

    #[test]
    fn last_revisions_are_kept() {
        let id = |number: usize| ContentId::of(&vec![b'a'; number]);
        let mut revisions = Vec::new();
        for number in 1..=12 {
            let source = vec![b'a'; number];
            let (before, after) = ((id(number), Some(&*source)), id(number + 1));
            revisions = with_revision(revisions, before, after, Some(number as u64));
            revisions = within(revisions, MAX_BYTES);
        }
        insta::assert_snapshot!(render(&revisions), @r"
        4 at Some(3): 4 bytes
        5 at Some(4): 5 bytes
        6 at Some(5): 6 bytes
        7 at Some(6): 7 bytes
        8 at Some(7): 8 bytes
        9 at Some(8): 9 bytes
        10 at Some(9): 10 bytes
        11 at Some(10): 11 bytes
        12 at Some(11): 12 bytes
        13 at Some(12): current
        ");
    }

    #[test]
    fn unknown_replaced_file_becomes_a_revision() {
        let id = |text: &[u8]| ContentId::of(text);
        let revisions = with_revision(Vec::new(), (id(b"b"), Some(b"b")), id(b"c"), Some(3));
        // Another daemon has replaced "c" by "dd" without a revision.
        let revisions = with_revision(revisions, (id(b"dd"), Some(b"dd")), id(b"e"), Some(5));
        insta::assert_snapshot!(render(&revisions), @r"
        1 at None: 1 bytes
        3 at None: 2 bytes
        4 at Some(5): current
        ");
    }

    #[test]
    fn large_files_are_kept_up_to_a_size() {
        let id = |number: u8| ContentId::of(&[number]);
        let mut revisions = Vec::new();
        for number in 1..=4 {
            let source = vec![b'a'; MAX_BYTES / 3];
            revisions = with_revision(revisions, (id(number), Some(&source)), id(number + 1), None);
            revisions = within(revisions, MAX_BYTES);
        }
        insta::assert_snapshot!(render(&revisions), @r"
        3 at None: 43690 bytes
        4 at None: 43690 bytes
        5 at None: current
        ");
        let huge = vec![b'a'; MAX_BYTES + 1];
        let revisions = with_revision(revisions, (id(5), Some(&huge)), id(6), None);
        let revisions = within(revisions, MAX_BYTES);
        assert_eq!(revisions.len(), 1, "{}", render(&revisions));
    }
}
