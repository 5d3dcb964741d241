//! Backups of a running store, and restoring a store from one.

use std::path::{Path, PathBuf};

use fleet_core::Revision;

use super::EmbeddedStore;
use super::disk::{Kind, write_new};
use super::load::{StoreImage, read_backup};
use crate::registry::{RESTORE_JUMP, restored_entries};
use crate::{CodecError, Layout, LeaseId, Lineage, StoreError};

impl EmbeddedStore {
    /// Backs up the store at its current revision to a new file while the store is in use. Returns
    /// that revision. The backup leaves out keys bound to leases: presences, states and the
    /// leadership. They are only valid while their leases last.
    ///
    /// The file gets its final name once it is complete and on disk. It can be
    /// [restored](Self::restore) but not opened as a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] when the file exists; [`StoreError::Unavailable`] when it cannot be
    /// written.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<Revision, StoreError> {
        let (readers, to) = (self.readers.clone(), to.as_ref().to_owned());
        blocking(to.clone(), move || {
            let listing = readers.read("");
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

    /// Creates a new store at `to` from a backup and returns the revision of the new store.
    /// `lineage` must be a new lineage. The cluster under `layout` continues in this lineage.
    ///
    /// The revision, the epochs of placements and the term all jump ahead. Agents may remember
    /// later epochs of the lost store. After the jump they do not reject the restored placements as
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

/// Creates the error for a backup with an unreadable lineage. Restoring it is impossible, because
/// the new lineage must start after the old one.
fn unreadable_lineage(backup: &Path, error: &CodecError) -> StoreError {
    StoreError::Format(format!("{}: the lineage cannot be read: {error}", backup.display()))
}

/// Runs blocking file access on another thread. redb panics on some damaged files, so a panic is
/// reported as damage of `path`.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| super::damaged(&path))?
}
