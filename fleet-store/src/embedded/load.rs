//! Reading and checking a whole file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fleet_core::Revision;
use redb::{Builder, ReadableDatabase, ReadableTable};

use super::disk::{
    CACHE_BYTES, FORMAT, FileError, KEYS, Kind, LEASES, META, Row, checksum, lease_checksum, meta,
    number_checksum,
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
