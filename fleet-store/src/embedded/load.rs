//! Reading and checking a whole file, and the recovery of a file that cannot be written.
//!
//! After a failed write, the database library refuses all further use of the open file, and it is
//! unknown whether the batch reached the disk. The writer therefore opens the file again and reads
//! it whole. If that fails too, it tries again later. Meanwhile the store is *offline*: all
//! requests, reads and watches fail, so that readers know that they may be out of date.

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, Timestamp};
use redb::{Builder, ReadableDatabase, ReadableTable};

use super::disk::{
    CACHE_BYTES, Disk, FORMAT, FileError, KEYS, Kind, LEASES, META, Row, checksum, lease_checksum,
    meta, number_checksum,
};
use super::writer::Batch;
use crate::{Entry, LeaseId, StoreError};

/// Content of a store file.
#[derive(Debug)]
pub(super) struct StoreImage {
    pub(super) revision: Revision,
    pub(super) last_lease: LeaseId,
    pub(super) entries: Vec<Entry>,
    pub(super) leases: Vec<(LeaseId, Duration)>,
}

/// Reads a whole backup.
pub(super) fn read_backup(path: &Path) -> Result<StoreImage, StoreError> {
    let read = || {
        let mut builder = Builder::new();
        let database = builder.set_cache_size(CACHE_BYTES).open_read_only(path)?;
        read(&database, Kind::Backup)
    };
    read().map_err(|error| error.at(path))
}

/// Reads and checks the whole file.
pub(super) fn read(database: &impl ReadableDatabase, kind: Kind) -> Result<StoreImage, FileError> {
    let transaction = database.begin_read()?;
    let (numbers, mut sum) = read_numbers(&transaction.open_table(META)?)?;
    let number = |name| numbers.get(name).copied().ok_or(FileError::Damaged);
    match number(meta::FORMAT)? {
        FORMAT => {}
        0 => return Err(FileError::Damaged),
        older @ ..FORMAT => return Err(FileError::Older(older)),
        newer => return Err(FileError::Newer(newer)),
    }
    let is_backup = numbers.contains_key(meta::BACKUP);
    let found = if is_backup { Kind::Backup } else { Kind::Store };
    if found != kind {
        return Err(FileError::WrongKind(found));
    }
    let image = StoreImage {
        revision: Revision(number(meta::REVISION)?),
        last_lease: LeaseId(number(meta::LAST_LEASE)?),
        entries: read_keys(&transaction.open_table(KEYS)?, &mut sum)?,
        leases: read_leases(&transaction.open_table(LEASES)?, &mut sum)?,
    };
    let is_whole = number(meta::SUM)? == sum && image.is_consistent();
    if is_whole { Ok(image) } else { Err(FileError::Damaged) }
}

impl StoreImage {
    /// Content of a new file.
    pub(super) fn empty() -> Self {
        let (entries, leases) = (Vec::new(), Vec::new());
        Self { revision: Revision::ZERO, last_lease: LeaseId(0), entries, leases }
    }

    /// Returns whether the file contains this batch, which was its last write or failed to be.
    pub(super) fn contains(&self, batch: &Batch) -> bool {
        if let Some(revision) = batch.last_revision() {
            return self.revision >= revision;
        }
        let has = |lease: LeaseId| self.leases.iter().any(|(known, _)| *known == lease);
        let ended = batch.ended.iter().all(|lease| !has(*lease));
        ended && batch.granted.iter().all(|(lease, _)| *lease <= self.last_lease)
    }

    /// Returns whether the parts of the image are consistent with each other:
    ///
    /// - Every lease that a key names exists.
    /// - No key was written after the image's revision.
    /// - No lease has a higher ID than `last_lease`, the highest ID ever granted.
    fn is_consistent(&self) -> bool {
        let known = |lease: LeaseId| self.leases.binary_search_by_key(&lease, |l| l.0).is_ok();
        let keys = self
            .entries
            .iter()
            .all(|entry| entry.modified <= self.revision && entry.lease.is_none_or(known));
        keys && self.leases.iter().all(|(lease, _)| *lease <= self.last_lease)
    }
}

/// Reads the numbers about the store, and the sum of their checksums.
fn read_numbers(
    table: &impl ReadableTable<&'static str, u64>,
) -> Result<(BTreeMap<String, u64>, u64), FileError> {
    let (mut numbers, mut sum) = (BTreeMap::new(), 0_u64);
    for row in table.iter()? {
        let (name, number) = row?;
        let (name, number) = (name.value(), number.value());
        if name != meta::SUM {
            sum = sum.wrapping_add(number_checksum(name, number));
        }
        numbers.insert(name.to_owned(), number);
    }
    Ok((numbers, sum))
}

/// Reads the keys, and adds their checksums to `sum`.
fn read_keys(
    table: &impl ReadableTable<&'static str, Row<'static>>,
    sum: &mut u64,
) -> Result<Vec<Entry>, FileError> {
    let mut entries = Vec::new();
    for row in table.iter()? {
        let (key, row) = row?;
        let (key, (modified, lease, row_sum, value)) = (key.value(), row.value());
        if row_sum != checksum(key, modified, lease, value) {
            return Err(FileError::Damaged);
        }
        *sum = sum.wrapping_add(row_sum);
        entries.push(Entry {
            key: key.to_owned(),
            value: value.to_vec(),
            modified: Revision(modified),
            lease: (lease != 0).then_some(LeaseId(lease)),
        });
    }
    Ok(entries)
}

/// Reads the leases, and adds their checksums to `sum`.
fn read_leases(
    table: &impl ReadableTable<u64, u64>,
    sum: &mut u64,
) -> Result<Vec<(LeaseId, Duration)>, FileError> {
    let mut leases = Vec::new();
    for row in table.iter()? {
        let (lease, ttl) = row?;
        let (lease, ttl) = (lease.value(), ttl.value());
        *sum = sum.wrapping_add(lease_checksum(lease, ttl));
        leases.push((LeaseId(lease), Duration::from_millis(ttl)));
    }
    Ok(leases)
}

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
