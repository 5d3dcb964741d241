//! The file: which tables it has, and how it is made, read and written.
//!
//! Each row carries a checksum and the number of rows is kept, because the whole file is read when
//! it is opened: a damaged one is found there, before anybody acts on it.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_core::Revision;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageError, TableDefinition, TableError,
};

use super::damaged;
use super::writer::Batch;
use crate::{Change, Changes, Entry, LeaseId, StoreError};

/// Numbers about the whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// For each key the revision that wrote it, its lease or zero, the row's checksum and the value.
const KEYS: TableDefinition<'_, &str, Row<'_>> = TableDefinition::new("keys");
/// For each lease its time to live in milliseconds.
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");

type Row<'a> = (u64, u64, u64, &'a [u8]);

/// The format of the tables.
const FORMAT: u64 = 1;

/// Rows in [`META`].
mod meta {
    pub(super) const FORMAT: &str = "format";
    pub(super) const REVISION: &str = "revision";
    pub(super) const LAST_LEASE: &str = "last lease";
    pub(super) const KEYS: &str = "keys";
}

/// How much of the file is held in memory: little, since what it says is held anyway.
const CACHE_BYTES: usize = 32 << 20;

/// The open file.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
}

/// What the file holds.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) revision: Revision,
    pub(super) last_lease: LeaseId,
    pub(super) entries: Vec<Entry>,
    pub(super) leases: Vec<(LeaseId, Duration)>,
}

/// Why the file cannot be opened, before it is said of which file.
enum Trouble {
    InUse,
    Damaged,
    Newer(u64),
    Other(Box<dyn Error + Send + Sync>),
}

impl Disk {
    /// Opens the file, or makes it, and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, Kept), StoreError> {
        Self::try_open(path).map_err(|trouble| match trouble {
            Trouble::InUse => StoreError::InUse { path: path.display().to_string() },
            Trouble::Damaged => damaged(path),
            Trouble::Newer(format) => StoreError::Format(format!(
                "{} has format {format}, and this version reads format {FORMAT}: \
                 use a newer version of fleet",
                path.display()
            )),
            Trouble::Other(error) => StoreError::Unavailable(error),
        })
    }

    fn try_open(path: &Path) -> Result<(Self, Kept), Trouble> {
        if !path.try_exists()? {
            make(path)?;
        }
        Self::over(Builder::new().set_cache_size(CACHE_BYTES).open(path)?)
    }

    /// A store in a database that is open and has its tables.
    fn over(database: Database) -> Result<(Self, Kept), Trouble> {
        let kept = read(&database)?;
        Ok((Self { database }, kept))
    }

    /// A store on anything that behaves like a file, with its tables made first if it is new.
    #[cfg(test)]
    pub(super) fn on(backend: impl redb::StorageBackend, make: bool) -> (Self, Kept) {
        let database = Builder::new().create_with_backend(backend).expect("a good backend");
        if make {
            make_tables(&database).ok().expect("an empty backend");
        }
        Self::over(database).ok().expect("a store")
    }

    /// Makes a batch durable, whole or not at all.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), Box<dyn Error + Send + Sync>> {
        let transaction = self.database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            let mut keys = transaction.open_table(KEYS)?;
            let mut leases = transaction.open_table(LEASES)?;
            for changes in &batch.made {
                write_changes(&mut keys, changes)?;
                meta.insert(meta::REVISION, changes.revision.0)?;
            }
            for (lease, ttl) in &batch.granted {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                leases.insert(lease.0, ttl)?;
                meta.insert(meta::LAST_LEASE, lease.0)?;
            }
            for lease in &batch.ended {
                leases.remove(lease.0)?;
            }
            meta.insert(meta::KEYS, keys.len()?)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Makes an empty store. It gets its name when it is complete, so a file of that name which is not
/// complete is a damaged one, never a new one.
fn make(path: &Path) -> Result<(), Trouble> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let database = Builder::new().create(&new)?;
    make_tables(&database)?;
    drop(database);
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

fn make_tables(database: &Database) -> Result<(), Trouble> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(meta::FORMAT, FORMAT)?;
        meta.insert(meta::REVISION, 0)?;
        meta.insert(meta::LAST_LEASE, 0)?;
        meta.insert(meta::KEYS, 0)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(LEASES)?;
    }
    transaction.commit()?;
    Ok(())
}

fn read(database: &Database) -> Result<Kept, Trouble> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    let number =
        |row| -> Result<u64, Trouble> { Ok(meta.get(row)?.ok_or(Trouble::Damaged)?.value()) };
    let format = number(meta::FORMAT)?;
    if format != FORMAT {
        return Err(if format > FORMAT { Trouble::Newer(format) } else { Trouble::Damaged });
    }
    let leases = read_leases(&transaction.open_table(LEASES)?)?;
    let entries = read_keys(&transaction.open_table(KEYS)?)?;
    let (revision, last_lease) = (Revision(number(meta::REVISION)?), number(meta::LAST_LEASE)?);
    let kept = Kept { revision, last_lease: LeaseId(last_lease), entries, leases };
    if kept.entries.len() as u64 != number(meta::KEYS)? || !kept.is_consistent() {
        return Err(Trouble::Damaged);
    }
    Ok(kept)
}

impl Kept {
    /// Whether every key is bound to a lease that there is, and nothing is from the future.
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
) -> Result<Vec<Entry>, Trouble> {
    let mut entries = Vec::new();
    for row in table.iter()? {
        let (key, row) = row?;
        let (key, (modified, lease, sum, value)) = (key.value(), row.value());
        if sum != checksum(key, modified, lease, value) {
            return Err(Trouble::Damaged);
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

fn read_leases(table: &impl ReadableTable<u64, u64>) -> Result<Vec<(LeaseId, Duration)>, Trouble> {
    let mut leases = Vec::new();
    for row in table.iter()? {
        let (lease, ttl) = row?;
        leases.push((LeaseId(lease.value()), Duration::from_millis(ttl.value())));
    }
    Ok(leases)
}

fn write_changes(
    keys: &mut redb::Table<'_, &'static str, Row<'static>>,
    changes: &Changes,
) -> Result<(), StorageError> {
    let modified = changes.revision.0;
    for Change { key, value, lease } in &changes.changes {
        let lease = lease.map_or(0, |lease| lease.0);
        match value {
            Some(value) => {
                let sum = checksum(key, modified, lease, value);
                keys.insert(&**key, (modified, lease, sum, &**value))?;
            }
            None => {
                keys.remove(&**key)?;
            }
        }
    }
    Ok(())
}

/// Eight bytes that tell a damaged row.
fn checksum(key: &str, modified: u64, lease: u64, value: &[u8]) -> u64 {
    let mut sha1 = sha1_smol::Sha1::new();
    sha1.update(&(key.len() as u64).to_le_bytes());
    sha1.update(key.as_bytes());
    sha1.update(&modified.to_le_bytes());
    sha1.update(&lease.to_le_bytes());
    sha1.update(value);
    let digest = sha1.digest().bytes();
    digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Other(Box::new(error)),
        }
    }
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => error.into(),
            StorageError::Corrupted(_) => Self::Damaged,
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<DatabaseError> for Trouble {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse,
            DatabaseError::UpgradeRequired(_) | DatabaseError::RepairAborted => Self::Damaged,
            DatabaseError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<TableError> for Trouble {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            // A file of the right kind without the right tables.
            _ => Self::Damaged,
        }
    }
}

impl From<redb::TransactionError> for Trouble {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<redb::CommitError> for Trouble {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}
