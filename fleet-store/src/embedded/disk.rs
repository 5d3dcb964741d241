//! The file of the store: its tables, and functions that create, read and write it.
//!
//! The whole file is read and checked when it is opened, so damage is found before any data is
//! used. Each key and each log row has a checksum. One more checksum covers the table of leases and
//! the table of numbers about the store, such as its revision. The number of keys is also stored,
//! so missing keys are noticed.
//!
//! Recent writes are only in the log. They move to the other tables when the log is full or when
//! the file is opened again.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::{
    Builder, Database, ReadableTable, ReadableTableMetadata, StorageError, TableDefinition,
    TableError, WriteTransaction,
};
use sha1::{Digest as _, Sha1};

use super::error::FileError;
use super::load::{StoreImage, read};
use super::log::{self, PendingWrites};
use super::writer::Batch;
use crate::{Entry, StoreError};

/// Numbers about the whole store; their names are in [`meta`].
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Table of keys. Each row has the revision that wrote the key, the key's lease (zero if none), the
/// row's checksum, and the value.
pub(super) const KEYS: TableDefinition<'_, &str, Row<'_>> = TableDefinition::new("keys");
/// For each lease: its time to live in milliseconds.
pub(super) const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
/// Log of the writes that are not yet in the other tables. Each write of the file adds one row;
/// rows are numbered from zero.
pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

pub(super) type Row<'a> = (u64, u64, u64, &'a [u8]);

/// Format of the tables; files of any other format are refused.
pub(super) const FORMAT: u64 = 2;

/// Names of the rows in [`META`].
pub(super) mod meta {
    pub(in crate::embedded) const FORMAT: &str = "format";
    pub(in crate::embedded) const REVISION: &str = "revision";
    pub(in crate::embedded) const LAST_LEASE: &str = "last lease";
    pub(in crate::embedded) const KEYS: &str = "keys";
    /// Present only in a backup, which cannot be opened as a store.
    pub(in crate::embedded) const BACKUP: &str = "backup";
    /// Checksum of all other numbers here and of the leases.
    pub(in crate::embedded) const SUM: &str = "sum";
}

/// Mode of a new file. Only the owner can access it, because unit files may contain secrets.
const FILE_MODE: u32 = 0o600;

/// Size of redb's page cache. It is small, because the store also keeps its whole content in
/// memory.
pub(super) const CACHE_BYTES: usize = 32 << 20;

/// Maximum size of the log in bytes. A write that would exceed it goes to the tables at once,
/// together with all logged writes. A larger log makes this flush cheaper per key, because more of
/// the keys share a page. But all writers wait longer for each flush.
const MAX_LOG_BYTES: usize = 4 << 20;

/// The open file.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
    /// Merged content of the log.
    pending: PendingWrites,
    /// Number of rows in the log, and their total size.
    rows: u64,
    bytes: usize,
    max_log_bytes: usize,
}

/// Purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Store,
    Backup,
}

impl Disk {
    /// Opens or creates the file, and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, StoreImage), FileError> {
        if !path.try_exists()? {
            create_file(path, Kind::Store, &StoreImage::empty())?;
        }
        Self::open_existing(path)
    }

    /// Opens the file, reads all of it, and writes to it, so that a full disk is noticed.
    pub(super) fn open_existing(path: &Path) -> Result<(Self, StoreImage), FileError> {
        Self::from_database(Builder::new().set_cache_size(CACHE_BYTES).open(path)?)
    }

    /// Uses an open database, in which all tables must exist.
    fn from_database(database: Database) -> Result<(Self, StoreImage), FileError> {
        let (image, pending) = read(&database, Kind::Store)?;
        let transaction = database.begin_write()?;
        match pending {
            Some(pending) => flush_log(&transaction, &pending)?,
            None => drop(transaction.open_table(META)?.insert(meta::FORMAT, FORMAT)?),
        }
        transaction.commit()?;
        let (pending, max_log_bytes) = (PendingWrites::default(), MAX_LOG_BYTES);
        Ok((Self { database, pending, rows: 0, bytes: 0, max_log_bytes }, image))
    }

    /// Opens a store on any redb backend, and creates its tables if `make` is true. Returns `None`
    /// on failure.
    #[cfg(test)]
    pub(super) fn open_on(
        backend: impl redb::StorageBackend,
        make: bool,
    ) -> Option<(Self, StoreImage)> {
        let database = Builder::new().create_with_backend(backend).ok()?;
        if make {
            write_image(&database, Kind::Store, &StoreImage::empty()).ok()?;
        }
        Self::from_database(database).ok()
    }

    /// Limits the log to this many bytes.
    #[cfg(test)]
    pub(super) fn with_log(mut self, max_log_bytes: usize) -> Self {
        self.max_log_bytes = max_log_bytes;
        self
    }

    #[cfg(test)]
    pub(super) fn log_bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a batch durable, all or nothing. After an error, the caller must not write the file
    /// again.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), Box<dyn Error + Send + Sync>> {
        let row = log::encode(self.rows, batch);
        self.pending.add(batch);
        let transaction = self.database.begin_write()?;
        if self.bytes + row.len() > self.max_log_bytes {
            flush_log(&transaction, &self.pending)?;
            transaction.commit()?;
            (self.pending, self.rows, self.bytes) = (PendingWrites::default(), 0, 0);
        } else {
            transaction.open_table(LOG)?.insert(self.rows, row.as_slice())?;
            transaction.commit()?;
            (self.rows, self.bytes) = (self.rows + 1, self.bytes + row.len());
        }
        Ok(())
    }
}

/// Moves the whole log to the other tables and starts an empty one.
fn flush_log(transaction: &WriteTransaction, pending: &PendingWrites) -> Result<(), TableError> {
    write_tables(transaction, pending)?;
    // No table may be open here. redb can panic on a damaged file, and closing a table during the
    // unwinding would panic again, which aborts the process.
    transaction.delete_table(LOG)?;
    transaction.open_table(LOG).map(drop)
}

fn write_tables(transaction: &WriteTransaction, pending: &PendingWrites) -> Result<(), TableError> {
    let mut meta = transaction.open_table(META)?;
    let mut keys = transaction.open_table(KEYS)?;
    let mut leases = transaction.open_table(LEASES)?;
    for (key, (modified, change)) in pending.keys() {
        let lease = change.lease.map_or(0, |lease| lease.0);
        match &change.value {
            Some(value) => insert(&mut keys, key, modified.0, lease, value)?,
            None => drop(keys.remove(key)?),
        }
    }
    for (lease, ttl) in &pending.leases {
        match ttl {
            Some(ttl) => drop(leases.insert(lease.0, millis(*ttl))?),
            None => drop(leases.remove(lease.0)?),
        }
    }
    if let Some(revision) = pending.revision {
        meta.insert(meta::REVISION, revision.0)?;
    }
    let before = meta.get(meta::LAST_LEASE)?.map_or(0, |last| last.value());
    let last = pending.leases.keys().last().map_or(0, |lease| lease.0);
    meta.insert(meta::LAST_LEASE, before.max(last))?;
    meta.insert(meta::KEYS, keys.len()?)?;
    meta.insert(meta::FORMAT, FORMAT)?;
    meta.insert(meta::SUM, sum(&meta, &leases)?)?;
    Ok(())
}

/// Creates a file with this content; fails if the file exists.
pub(super) fn write_new(path: &Path, kind: Kind, image: &StoreImage) -> Result<(), StoreError> {
    let write = || match path.try_exists()? {
        true => Err(FileError::Exists),
        false => create_file(path, kind, image),
    };
    write().map_err(|error| error.at(path))
}

/// Creates a file under a temporary name, and renames it when it is complete. So an incomplete file
/// with the final name must be damaged: it cannot be a file that is still being created.
fn create_file(path: &Path, kind: Kind, image: &StoreImage) -> Result<(), FileError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A leftover of an interrupted attempt is useless.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // redb would create the file with a mode that depends on the umask.
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(&new)?;
    write_image(&database, kind, image)?;
    drop(database);
    // Closing the database writes once more. Sync the file, rename it, then sync the directory.
    File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

fn write_image(database: &Database, kind: Kind, image: &StoreImage) -> Result<(), FileError> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        let mut keys = transaction.open_table(KEYS)?;
        meta.insert(meta::FORMAT, FORMAT)?;
        meta.insert(meta::REVISION, image.revision.0)?;
        meta.insert(meta::LAST_LEASE, image.last_lease.0)?;
        meta.insert(meta::KEYS, image.entries.len() as u64)?;
        if kind == Kind::Backup {
            meta.insert(meta::BACKUP, 1)?;
        }
        for Entry { key, value, modified, lease } in &image.entries {
            insert(&mut keys, key, modified.0, lease.map_or(0, |lease| lease.0), value)?;
        }
        let mut leases = transaction.open_table(LEASES)?;
        for (lease, ttl) in &image.leases {
            leases.insert(lease.0, millis(*ttl))?;
        }
        meta.insert(meta::SUM, sum(&meta, &leases)?)?;
        transaction.open_table(LOG)?;
    }
    transaction.commit()?;
    Ok(())
}

fn insert(
    keys: &mut redb::Table<'_, &'static str, Row<'static>>,
    key: &str,
    modified: u64,
    lease: u64,
    value: &[u8],
) -> Result<(), StorageError> {
    let sum = checksum(key, modified, lease, value);
    keys.insert(key, (modified, lease, sum, value))?;
    Ok(())
}

pub(super) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

/// Computes the value of [`meta::SUM`].
pub(super) fn sum(
    meta: &impl ReadableTable<&'static str, u64>,
    leases: &impl ReadableTable<u64, u64>,
) -> Result<u64, StorageError> {
    let mut bytes = Vec::new();
    for row in meta.iter()? {
        let (name, number) = row?;
        if name.value() != meta::SUM {
            bytes.extend(name.value().as_bytes());
            bytes.extend(number.value().to_le_bytes());
        }
    }
    for row in leases.iter()? {
        let (lease, ttl) = row?;
        bytes.extend([lease.value(), ttl.value()].map(u64::to_le_bytes).concat());
    }
    Ok(digest(&[&bytes]))
}

/// Computes a row's checksum of eight bytes.
pub(super) fn checksum(key: &str, modified: u64, lease: u64, value: &[u8]) -> u64 {
    let length = (key.len() as u64).to_le_bytes();
    digest(&[&length, key.as_bytes(), &modified.to_le_bytes(), &lease.to_le_bytes(), value])
}

pub(super) fn digest(parts: &[&[u8]]) -> u64 {
    let mut sha1 = Sha1::new();
    parts.iter().for_each(|part| sha1.update(part));
    sha1.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
