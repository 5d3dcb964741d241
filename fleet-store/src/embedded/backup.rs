//! Backups of a running store, and restoring a store from one.

use std::path::{Path, PathBuf};

use fleet_core::Revision;

use super::EmbeddedStore;
use super::disk::{Kind, write_new};
use super::load::{StoreImage, read_backup};
use crate::registry::{CodecError, Lineage};
use crate::registry::{RESTORE_JUMP, restored_entries};
use crate::{Layout, LeaseId, StoreError};

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
