//! Backups of a running store, and restoring a store from one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fleet_core::{Epoch, Revision};

use super::EmbeddedStore;
use super::disk::{Kind, write_new};
use super::load::{StoreImage, read_backup};
use crate::codec::{
    decode_lineage, decode_placement, encode_lineage, encode_placement, encode_term,
};
use crate::registry::{CodecError, Key, Lineage, RESTORE_JUMP};
use crate::{Entry, Layout, LeaseId, StoreError};

impl EmbeddedStore {
    /// Writes a backup of the store's current revision to a new file, and returns that revision.
    /// The store stays usable meanwhile. The backup omits keys bound to leases (presences, states
    /// and the leadership), because they are valid only while their leases last.
    ///
    /// The file gets its final name only when it is complete and on disk. A backup can be
    /// [restored](Self::restore), but it cannot be opened as a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] when the file exists; [`StoreError::Unavailable`] when it cannot be
    /// written.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<Revision, StoreError> {
        let (readers, to) = (self.readers.clone(), to.as_ref().to_owned());
        blocking(to.clone(), move || {
            let listing = readers.read("")?;
            let last_lease = listing.entries.iter().filter_map(|entry| entry.lease).max();
            let lasting = listing.entries.into_iter().filter(|entry| entry.lease.is_none());
            let image = StoreImage {
                revision: listing.revision,
                last_lease: last_lease.unwrap_or(LeaseId(0)),
                entries: lasting.collect(),
                leases: Vec::new(),
            };
            write_new(&to, Kind::Backup, &image)?;
            Ok(image.revision)
        })
        .await
    }

    /// Creates a new store at `to` from a backup, and returns the revision of the new store.
    /// `layout` must be the key layout of the backed-up cluster. `lineage` becomes the lineage of
    /// the restored cluster, and must be a new one.
    ///
    /// The revision, the epochs of placements and the term all jump far ahead. Without the jump,
    /// agents that remember later epochs of the lost store would reject the restored placements as
    /// stale.
    ///
    /// # Errors
    ///
    /// [`StoreError::Format`] when `backup` is damaged, is not a backup, or has an unreadable
    /// lineage; [`StoreError::Exists`] when `to` exists; [`StoreError::Unavailable`] when a file
    /// cannot be read or written.
    pub async fn restore(
        backup: impl AsRef<Path>,
        to: impl AsRef<Path>,
        layout: &Layout,
        lineage: &Lineage,
    ) -> Result<Revision, StoreError> {
        let (backup, to) = (backup.as_ref().to_owned(), to.as_ref().to_owned());
        let (layout, lineage) = (layout.clone(), lineage.clone());
        blocking(backup.clone(), move || {
            let image = read_backup(&backup)?;
            let revision = Revision(image.revision.0 + RESTORE_JUMP);
            let entries = restored_entries(image.entries, &layout, revision, &lineage)
                .map_err(|error| unreadable_lineage(&backup, &error))?;
            let last_lease = LeaseId(image.last_lease.0 + RESTORE_JUMP);
            let leases = Vec::new();
            write_new(&to, Kind::Store, &StoreImage { revision, last_lease, entries, leases })?;
            Ok(revision)
        })
        .await
    }
}

/// Returns the error for a backup with an unreadable lineage. Such a backup cannot be restored,
/// because the epoch base of the new lineage depends on that of the old one.
fn unreadable_lineage(backup: &Path, error: &CodecError) -> StoreError {
    StoreError::Format(format!("{}: the lineage cannot be read: {error}", backup.display()))
}

/// Runs blocking file access on another thread. A panic is reported as damage of `path`, because
/// redb panics on some damaged files.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| super::damaged(&path))?
}

/// Converts the entries of a backup for a restored store at `revision`. This revision must exceed
/// all revisions that the lost store can have reached.
///
/// Agents and engines compare some values with those that they remember. So these values must not
/// be lower than in the lost store:
///
/// - Every placement gets the epoch of `revision`, so no agent rejects it as stale.
/// - The last term becomes `revision`, which is at least as high as any earlier term.
/// - The epoch base of the new lineage is at least that of the old lineage.
///
/// Generations need no change: each is at most the revision that created it plus the epoch base, so
/// later restarts get higher generations.
///
/// Superseded placements are dropped, because they cannot be recognized once all placements have
/// the same epoch.
fn restored_entries(
    entries: Vec<Entry>,
    layout: &Layout,
    revision: Revision,
    lineage: &Lineage,
) -> Result<Vec<Entry>, CodecError> {
    let lineage_key = layout.key(&Key::Lineage);
    let before = entries.iter().find(|entry| entry.key == lineage_key);
    let before = before.map(|entry| decode_lineage(&entry.value)).transpose()?;
    let lineage = match before {
        Some(before) => {
            let epoch_base = before.epoch_base().max(lineage.epoch_base());
            lineage.clone().with_epoch_base(epoch_base).with_predecessor(&before)
        }
        None => lineage.clone(),
    };
    let epoch = Epoch(lineage.epoch_base() + revision.0);
    let superseded = superseded(&entries, layout);
    let mut entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.key != lineage_key && !superseded.contains(&entry.key))
        .map(|entry| match restored_value(layout, &entry, revision, epoch) {
            Some(value) => Entry { value, modified: revision, ..entry },
            None => entry,
        })
        .collect();
    let at = entries.partition_point(|entry| entry.key < lineage_key);
    let value = encode_lineage(&lineage);
    entries.insert(at, Entry { key: lineage_key, value, modified: revision, lease: None });
    Ok(entries)
}

/// Returns the new value of an entry; `None` if it is unchanged.
fn restored_value(
    layout: &Layout,
    entry: &Entry,
    revision: Revision,
    epoch: Epoch,
) -> Option<Vec<u8>> {
    match layout.parse(&entry.key)? {
        Key::Placement(..) => {
            // An unreadable placement stays unchanged; it is a fault of its unit.
            decode_placement(&entry.value).ok()?;
            Some(encode_placement(epoch))
        }
        Key::Term => Some(encode_term(revision.0)),
        _ => None,
    }
}

/// Returns the keys of superseded placements, by the same rule as the mirror.
fn superseded(entries: &[Entry], layout: &Layout) -> BTreeSet<String> {
    let mut preferred = BTreeMap::new();
    let mut superseded = BTreeSet::new();
    for entry in entries {
        let Some(Key::Placement(machine, unit)) = layout.parse(&entry.key) else { continue };
        let Ok(epoch) = decode_placement(&entry.value) else { continue };
        let rank = ((epoch, Reverse(machine)), &entry.key);
        match preferred.get(&unit) {
            Some(best) if *best > rank => superseded.insert(entry.key.clone()),
            _ => preferred.insert(unit, rank).is_none_or(|(_, key)| superseded.insert(key.clone())),
        };
    }
    superseded
}
