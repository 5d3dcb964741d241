//! Reading and checking a whole file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fleet_core::Revision;
use redb::{Builder, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::disk::{CACHE_BYTES, FORMAT, KEYS, Kind, LEASES, LOG, META, Row, checksum, meta, sum};
use super::error::FileError;
use super::log::{self, PendingWrites};
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
        read(&database, Kind::Backup).map(|(image, _)| image)
    };
    read().map_err(|error| error.at(path))
}

/// Reads and checks the whole file. Returns the content of the store after all logged writes, and
/// separately the merged writes of the log (`None` if the log is empty).
pub(super) fn read(
    database: &impl ReadableDatabase,
    kind: Kind,
) -> Result<(StoreImage, Option<PendingWrites>), FileError> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    let number =
        |row| -> Result<u64, FileError> { Ok(meta.get(row)?.ok_or(FileError::Damaged)?.value()) };
    match number(meta::FORMAT)? {
        FORMAT => {}
        0 => return Err(FileError::Damaged),
        older @ ..FORMAT => return Err(FileError::Older(older)),
        newer => return Err(FileError::Newer(newer)),
    }
    let found = if meta.get(meta::BACKUP)?.is_some() { Kind::Backup } else { Kind::Store };
    if found != kind {
        return Err(FileError::WrongKind(found));
    }
    let leases = transaction.open_table(LEASES)?;
    if number(meta::SUM)? != sum(&meta, &leases)? {
        return Err(FileError::Damaged);
    }
    let mut image = StoreImage {
        revision: Revision(number(meta::REVISION)?),
        last_lease: LeaseId(number(meta::LAST_LEASE)?),
        entries: read_keys(&transaction.open_table(KEYS)?)?,
        leases: read_leases(&leases)?,
    };
    if image.entries.len() as u64 != number(meta::KEYS)? {
        return Err(FileError::Damaged);
    }
    let pending = read_log(&transaction, image.revision)?;
    if let Some(pending) = &pending {
        image.add(pending);
    }
    if image.is_consistent() { Ok((image, pending)) } else { Err(FileError::Damaged) }
}

/// Reads the log and merges its writes, or returns `None` if the log is empty. `revision` is the
/// revision of the other tables. The file is damaged unless the log's revisions continue from there
/// without a gap.
fn read_log(
    transaction: &ReadTransaction,
    mut revision: Revision,
) -> Result<Option<PendingWrites>, FileError> {
    let log = transaction.open_table(LOG)?;
    let (mut pending, mut rows) = (PendingWrites::default(), 0);
    for row in log.iter()? {
        let (number, row) = row?;
        let batch = log::decode(rows, row.value()).filter(|_| number.value() == rows);
        let batch = batch.ok_or(FileError::Damaged)?;
        for changes in &batch.revisions {
            revision = revision.next();
            if changes.revision != revision {
                return Err(FileError::Damaged);
            }
        }
        pending.add(&batch);
        rows += 1;
    }
    if rows != log.len()? {
        return Err(FileError::Damaged);
    }
    Ok((rows > 0).then_some(pending))
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

    /// Applies the content of the log.
    fn add(&mut self, pending: &PendingWrites) {
        pending.apply_to(&mut self.entries);
        let mut leases: BTreeMap<LeaseId, Duration> = self.leases.drain(..).collect();
        for (lease, ttl) in &pending.leases {
            match ttl {
                Some(ttl) => leases.insert(*lease, *ttl),
                None => leases.remove(lease),
            };
            self.last_lease = self.last_lease.max(*lease);
        }
        self.leases = leases.into_iter().collect();
        self.revision = pending.revision.unwrap_or(self.revision);
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

fn read_keys(
    table: &impl ReadableTable<&'static str, Row<'static>>,
) -> Result<Vec<Entry>, FileError> {
    let mut entries = Vec::new();
    for row in table.iter()? {
        let (key, row) = row?;
        let (key, (modified, lease, sum, value)) = (key.value(), row.value());
        if sum != checksum(key, modified, lease, value) {
            return Err(FileError::Damaged);
        }
        entries.push(Entry {
            key: key.to_owned(),
            value: value.to_vec(),
            modified: Revision(modified),
            lease: (lease != 0).then_some(LeaseId(lease)),
        });
    }
    Ok(entries)
}

fn read_leases(
    table: &impl ReadableTable<u64, u64>,
) -> Result<Vec<(LeaseId, Duration)>, FileError> {
    let mut leases = Vec::new();
    for row in table.iter()? {
        let (lease, ttl) = row?;
        leases.push((LeaseId(lease.value()), Duration::from_millis(ttl.value())));
    }
    Ok(leases)
}
