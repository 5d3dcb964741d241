//! The file of the store: its tables, functions that create and write it, and errors of opening it,
//! mapped from redb's.
//!
//! Each write of the file is one redb transaction that changes the tables in place. The whole file
//! is read and checked when it is opened, so damage is found before any data is used. redb verifies
//! its own checksums only after a crash, so each key has a checksum here, and one sum covers all
//! rows of all tables. A missing row changes the sum.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use fleet_core::Revision;
use redb::{
    Builder, Database, DatabaseError, ReadableTable as _, StorageError, Table, TableDefinition,
    TableError, WriteTransaction,
};
use sha1::{Digest as _, Sha1};

use super::damaged;
use super::load::{StoreImage, read};
use super::writer::Batch;
use crate::{Entry, LeaseId, StoreError};

/// Numbers about the whole store; their names are in [`meta`].
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Table of keys. Each row has the revision that wrote the key, the key's lease (zero if none), the
/// row's checksum, and the value.
pub(super) const KEYS: TableDefinition<'_, &str, Row<'_>> = TableDefinition::new("keys");
/// For each lease: its time to live in milliseconds.
pub(super) const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");

pub(super) type Row<'a> = (u64, u64, u64, &'a [u8]);

/// Format of the tables; files of any other format are refused.
pub(super) const FORMAT: u64 = 3;

/// Names of the rows in [`META`].
pub(super) mod meta {
    pub(in crate::embedded) const FORMAT: &str = "format";
    pub(in crate::embedded) const REVISION: &str = "revision";
    pub(in crate::embedded) const LAST_LEASE: &str = "last lease";
    /// Present only in a backup, which cannot be opened as a store.
    pub(in crate::embedded) const BACKUP: &str = "backup";
    /// Sum of the checksums of all other rows, here and in the other tables.
    pub(in crate::embedded) const SUM: &str = "sum";
}

/// Mode of a new file. Only the owner can access it, because unit files may contain secrets.
const FILE_MODE: u32 = 0o600;

/// Size of redb's page cache. It is small, because the store also keeps its whole content in
/// memory.
pub(super) const CACHE_BYTES: usize = 32 << 20;

/// The open file.
#[derive(Debug)]
pub(super) struct Disk(Database);

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
        let image = read(&database, Kind::Store)?;
        let transaction = database.begin_write()?;
        drop(transaction.open_table(META)?.insert(meta::FORMAT, FORMAT)?);
        transaction.commit()?;
        Ok((Self(database), image))
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

    /// Makes a batch durable, all or nothing. After an error, the caller must not write the file
    /// again.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), Box<dyn Error + Send + Sync>> {
        let transaction = self.0.begin_write()?;
        write_batch(&transaction, batch)?;
        transaction.commit()?;
        Ok(())
    }
}

fn write_batch(transaction: &WriteTransaction, batch: &Batch) -> Result<(), TableError> {
    let mut tables = Tables::open(transaction)?;
    // In the order of the keys, so that neighbours share the search for their page.
    for (key, (modified, change)) in batch.last_changes() {
        match &change.value {
            Some(value) => tables.put(key, modified, change.lease, value)?,
            None => tables.delete(key)?,
        }
    }
    for (lease, ttl) in &batch.granted {
        tables.set_number(meta::LAST_LEASE, lease.0)?;
        tables.grant(*lease, *ttl)?;
    }
    for lease in &batch.ended {
        tables.end(*lease)?;
    }
    if let Some(revision) = batch.last_revision() {
        tables.set_number(meta::REVISION, revision.0)?;
    }
    Ok(tables.finish()?)
}

/// The tables of a transaction, and the sum of the checksums of their rows.
struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    keys: Table<'t, &'static str, Row<'static>>,
    leases: Table<'t, u64, u64>,
    sum: u64,
}

impl<'t> Tables<'t> {
    /// Opens the tables, and creates those that do not exist.
    fn open(transaction: &'t WriteTransaction) -> Result<Self, TableError> {
        let meta = transaction.open_table(META)?;
        let sum = meta.get(meta::SUM)?.map_or(0, |sum| sum.value());
        let keys = transaction.open_table(KEYS)?;
        Ok(Self { meta, keys, leases: transaction.open_table(LEASES)?, sum })
    }

    fn set_number(&mut self, name: &'static str, number: u64) -> Result<(), StorageError> {
        let old = self.meta.insert(name, number)?.map(|old| number_checksum(name, old.value()));
        self.replace(old, Some(number_checksum(name, number)));
        Ok(())
    }

    fn put(
        &mut self,
        key: &str,
        modified: Revision,
        lease: Option<LeaseId>,
        value: &[u8],
    ) -> Result<(), StorageError> {
        let lease = lease.map_or(0, |lease| lease.0);
        let sum = checksum(key, modified.0, lease, value);
        let old = self.keys.insert(key, (modified.0, lease, sum, value))?.map(|old| old.value().2);
        self.replace(old, Some(sum));
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), StorageError> {
        let old = self.keys.remove(key)?.map(|old| old.value().2);
        self.replace(old, None);
        Ok(())
    }

    fn grant(&mut self, lease: LeaseId, ttl: Duration) -> Result<(), StorageError> {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let old = self.leases.insert(lease.0, ttl)?.map(|old| lease_checksum(lease.0, old.value()));
        self.replace(old, Some(lease_checksum(lease.0, ttl)));
        Ok(())
    }

    fn end(&mut self, lease: LeaseId) -> Result<(), StorageError> {
        let old = self.leases.remove(lease.0)?.map(|old| lease_checksum(lease.0, old.value()));
        self.replace(old, None);
        Ok(())
    }

    fn replace(&mut self, old: Option<u64>, new: Option<u64>) {
        self.sum = self.sum.wrapping_sub(old.unwrap_or(0)).wrapping_add(new.unwrap_or(0));
    }

    fn finish(mut self) -> Result<(), StorageError> {
        self.meta.insert(meta::SUM, self.sum).map(drop)
    }
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
    let mut tables = Tables::open(&transaction)?;
    tables.set_number(meta::FORMAT, FORMAT)?;
    tables.set_number(meta::REVISION, image.revision.0)?;
    tables.set_number(meta::LAST_LEASE, image.last_lease.0)?;
    if kind == Kind::Backup {
        tables.set_number(meta::BACKUP, 1)?;
    }
    for Entry { key, value, modified, lease } in &image.entries {
        tables.put(key, *modified, *lease, value)?;
    }
    for (lease, ttl) in &image.leases {
        tables.grant(*lease, *ttl)?;
    }
    tables.finish()?;
    transaction.commit()?;
    Ok(())
}

/// Computes the checksum of a row of [`META`].
pub(super) fn number_checksum(name: &str, number: u64) -> u64 {
    digest(&[b"number", name.as_bytes(), &number.to_le_bytes()])
}

/// Computes the checksum of a row of [`LEASES`].
pub(super) fn lease_checksum(lease: u64, ttl: u64) -> u64 {
    digest(&[b"lease", &lease.to_le_bytes(), &ttl.to_le_bytes()])
}

/// Computes the checksum of a row of [`KEYS`].
pub(super) fn checksum(key: &str, modified: u64, lease: u64, value: &[u8]) -> u64 {
    let length = (key.len() as u64).to_le_bytes();
    digest(&[&length, key.as_bytes(), &modified.to_le_bytes(), &lease.to_le_bytes(), value])
}

fn digest(parts: &[&[u8]]) -> u64 {
    let mut sha1 = Sha1::new();
    parts.iter().for_each(|part| sha1.update(part));
    sha1.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Error of opening a file, without the file's name.
pub(super) enum FileError {
    InUse,
    /// The file is a store where a backup was expected, or a backup where a store was expected.
    WrongKind(Kind),
    Exists,
    Damaged,
    Newer(u64),
    Older(u64),
    Other(Box<dyn Error + Send + Sync>),
}

impl FileError {
    /// Adds the file's name and the remedy.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let name = path.display();
        match self {
            Self::InUse => StoreError::InUse { path: name.to_string() },
            Self::Exists => StoreError::Exists { path: name.to_string() },
            Self::Damaged => damaged(path),
            Self::Newer(format) => StoreError::Format(format!(
                "{name} has format {format}, but this version of fleet reads format {FORMAT}: \
                 use a newer version of fleet"
            )),
            Self::Older(format) => StoreError::Format(format!(
                "{name} has format {format}, but this version of fleet reads format {FORMAT}: \
                 export the cluster with the older version of fleet, and import the export into a \
                 new store"
            )),
            Self::WrongKind(Kind::Backup) => StoreError::Format(format!(
                "{name} is a backup, not a store: restore it to a new file"
            )),
            Self::WrongKind(Kind::Store) => StoreError::Format(format!(
                "{name} is a store, not a backup: create a backup with EmbeddedStore::backup, or a \
                 portable export with \"fleetctl export FILE\""
            )),
            Self::Other(error) => StoreError::Unavailable(error),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Other(Box::new(error)),
        }
    }
}

impl From<StorageError> for FileError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => error.into(),
            StorageError::Corrupted(_) => Self::Damaged,
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<DatabaseError> for FileError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse,
            DatabaseError::UpgradeRequired(_) | DatabaseError::RepairAborted => Self::Damaged,
            DatabaseError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<TableError> for FileError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            // A file of the right kind without the right tables.
            _ => Self::Damaged,
        }
    }
}

impl From<redb::TransactionError> for FileError {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<redb::CommitError> for FileError {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}
