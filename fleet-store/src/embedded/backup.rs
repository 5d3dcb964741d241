//! Backups of a store in use, and how a store begins again from one.

use std::path::{Path, PathBuf};

use fleet_core::Revision;

use super::EmbeddedStore;
use super::disk::{Kind, write_new};
use super::load::{StoreImage, read_backup};
use crate::registry::{RESTORE_JUMP, restored_entries};
use crate::{CodecError, Layout, LeaseId, Lineage, StoreError};

impl EmbeddedStore {
    /// Writes a backup of the store at its present revision to a new file, while the store is in
    /// use; returns that revision. What is bound to a lease is left out: presences, states and
    /// leadership speak of their moment alone.
    ///
    /// The file gets its name when it is complete and on the disk. It can be
    /// [restored](Self::restore), and is not opened as a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] when there is such a file; [`StoreError::Unavailable`] when it cannot
    /// be written.
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

    /// Makes a new store at `to` out of a backup: the cluster under `layout` begins a new life, of
    /// the lineage `lineage`, which must be a new one. Returns its revision.
    ///
    /// The revision leaps ahead, and so do the epochs of placements and the term: agents that come
    /// back with what they remember of the lost life take nothing that was restored for overtaken.
    ///
    /// # Errors
    ///
    /// [`StoreError::Format`] when `backup` is damaged or no backup, or its lineage cannot be read;
    /// [`StoreError::Exists`] when there is a file at `to`; [`StoreError::Unavailable`] when one
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

/// Where the lost life began is needed to begin after it.
fn unreadable_lineage(backup: &Path, error: &CodecError) -> StoreError {
    StoreError::Format(format!("{}: the lineage cannot be read: {error}", backup.display()))
}

/// Runs what waits for the disk. What the file's library takes for impossible, it answers with a
/// panic: then `path` is damaged.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| super::damaged(&path))?
}
