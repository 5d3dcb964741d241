//! A file that cannot be written, and its recovery.
//!
//! After a failed write, the database library refuses all further use of the open file, and it is
//! unknown whether the batch reached the disk. The writer therefore opens the file again and reads
//! it whole. If that fails too, it tries again later. Meanwhile the store is *offline*: all
//! requests, reads and watches fail, so that readers know that they may be out of date.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, Timestamp};

use super::disk::{Disk, FileError};
use super::load::StoreImage;
use super::writer::Batch;
use crate::StoreError;

/// Delay before the first new attempt to open the file. It doubles up to [`MAX_RETRY_DELAY`].
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(8);

/// State of the file.
#[derive(Debug)]
pub(super) enum DiskState {
    Open(Disk),
    Offline(Offline),
    Closed,
}

/// A file that cannot be written at present.
#[derive(Debug)]
pub(super) struct Offline {
    pub(super) failure: WriteFailure,
    /// The batch whose write failed. `None` if the file was never read.
    pub(super) lost: Option<Batch>,
    /// Time of the next attempt, and the delay after it.
    pub(super) retry_at: Timestamp,
    delay: Duration,
}

impl Offline {
    pub(super) fn new(failure: WriteFailure, lost: Option<Batch>, now: Timestamp) -> Self {
        Self { failure, lost, retry_at: now.after(RETRY_DELAY), delay: RETRY_DELAY }
    }

    /// Schedules the next attempt after one that failed.
    pub(super) fn postpone(&mut self, failure: WriteFailure, now: Timestamp) {
        self.failure = failure;
        self.delay = (self.delay * 2).min(MAX_RETRY_DELAY);
        self.retry_at = now.after(self.delay);
    }
}

impl DiskState {
    /// Returns why the file cannot be written.
    pub(super) fn failure(&self) -> Option<WriteFailure> {
        match self {
            Self::Open(_) => None,
            Self::Offline(offline) => Some(offline.failure.clone()),
            Self::Closed => Some(WriteFailure::Closed),
        }
    }
}

/// Opens the file of a store.
pub(super) trait Opener: Send + std::fmt::Debug {
    /// Opens and reads the file, and proves that it can be written. `create` allows creating a
    /// missing file.
    fn open(&self, create: bool) -> Result<(Disk, StoreImage), StoreError>;
}

/// Opens a store by its path.
#[derive(Debug)]
pub(super) struct PathOpener(pub(super) PathBuf);

impl Opener for PathOpener {
    fn open(&self, create: bool) -> Result<(Disk, StoreImage), StoreError> {
        let opened = if create { Disk::open(&self.0) } else { Disk::open_existing(&self.0) };
        opened.map_err(|error| error.at(&self.0))
    }
}

/// Opens the file again. `durable` is the revision that readers see.
///
/// The file must be at that revision, possibly with the `lost` batch. Any other content means that
/// another program replaced the file, so the state of this store would jump.
pub(super) fn reopen(
    opener: &dyn Opener,
    lost: Option<&Batch>,
    durable: Revision,
) -> Result<(Disk, StoreImage), WriteFailure> {
    // redb panics on some damaged files.
    let opened = catch_unwind(AssertUnwindSafe(|| opener.open(lost.is_none())))
        .map_err(|_| WriteFailure::new("the database library has panicked".into()))?;
    let (disk, image) = opened.map_err(WriteFailure::from_opening)?;
    let Some(lost) = lost else { return Ok((disk, image)) };
    let expected = if image.contains(lost) { lost.last_revision() } else { None };
    if image.revision != expected.unwrap_or(durable) {
        return Err(WriteFailure::Replaced);
    }
    Ok((disk, image))
}

/// Reason why the writer accepts no writes at present.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum WriteFailure {
    /// An error made the file unusable.
    #[error("the store's file cannot be written (fleetd tries again every few seconds)")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
    /// The file is not the one that was opened first.
    #[error("another program replaced the store's file: restart fleetd to use the new file")]
    Replaced,
    /// The writer is gone, for example because its runtime was shut down.
    #[error("the store was closed")]
    Closed,
}

impl WriteFailure {
    pub(super) fn new(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::Failed(error.into())
    }

    /// Converts an error of opening the file.
    pub(super) fn from_opening(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) => Self::new(cause),
            other => Self::new(Box::new(other)),
        }
    }

    pub(super) fn unavailable(self) -> StoreError {
        StoreError::Unavailable(Box::new(self))
    }

    pub(super) fn unknown(self) -> StoreError {
        StoreError::Unknown(Box::new(self))
    }
}

/// Result of a batch that was not written normally.
#[derive(Debug, Clone)]
pub(super) enum BatchFailure {
    /// The batch had no effect.
    NotWritten(WriteFailure),
    /// The batch may be in the file.
    Unknown(WriteFailure),
}

impl FileError {
    /// Returns whether the disk has no space left, or the user has used up a quota.
    pub(super) fn is_full_disk(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let Self::Other(error) = self else { return false };
        let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<std::io::Error>() {
                return matches!(error.kind(), StorageFull | QuotaExceeded);
            }
            cause = error.source();
        }
        false
    }
}
