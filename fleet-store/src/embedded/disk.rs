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
    Builder, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError,
    TableDefinition,
};

use super::trouble::Trouble;
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
pub(super) const FORMAT: u64 = 1;

/// Rows in [`META`].
mod meta {
    pub(super) const FORMAT: &str = "format";
    pub(super) const REVISION: &str = "revision";
    pub(super) const LAST_LEASE: &str = "last lease";
    pub(super) const KEYS: &str = "keys";
    /// There only in a backup, which is not opened as a store.
    pub(super) const BACKUP: &str = "backup";
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

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Store,
    Backup,
}

impl Disk {
    /// Opens the file, or makes it, and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, Kept), StoreError> {
        Self::try_open(path).map_err(|trouble| trouble.of(path))
    }

    fn try_open(path: &Path) -> Result<(Self, Kept), Trouble> {
        if !path.try_exists()? {
            make(path, Kind::Store, &Kept::nothing())?;
        }
        Self::over(Builder::new().set_cache_size(CACHE_BYTES).open(path)?)
    }

    /// A store in a database that is open and has its tables.
    fn over(database: Database) -> Result<(Self, Kept), Trouble> {
        let kept = read(&database, Kind::Store)?;
        Ok((Self { database }, kept))
    }

    /// A store on anything that behaves like a file, with its tables made first if it is new.
    #[cfg(test)]
    pub(super) fn on(backend: impl redb::StorageBackend, make: bool) -> (Self, Kept) {
        let database = Builder::new().create_with_backend(backend).expect("a good backend");
        if make {
            fill(&database, Kind::Store, &Kept::nothing()).ok().expect("an empty backend");
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
                leases.insert(lease.0, millis(*ttl))?;
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

/// Reads all of a backup.
pub(super) fn read_backup(path: &Path) -> Result<Kept, StoreError> {
    let read = || {
        let mut builder = Builder::new();
        read(&builder.set_cache_size(CACHE_BYTES).open_read_only(path)?, Kind::Backup)
    };
    read().map_err(|trouble| trouble.of(path))
}

/// Makes a file that holds this, where there is none.
pub(super) fn write_new(path: &Path, kind: Kind, kept: &Kept) -> Result<(), StoreError> {
    let write = || match path.try_exists()? {
        true => Err(Trouble::Exists),
        false => make(path, kind, kept),
    };
    write().map_err(|trouble| trouble.of(path))
}

/// Makes a file. It gets its name when it is complete, so a file of that name which is not
/// complete is a damaged one, never a new one.
fn make(path: &Path, kind: Kind, kept: &Kept) -> Result<(), Trouble> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // What is left of an attempt that was cut short is of no use.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(&new)?;
    fill(&database, kind, kept)?;
    drop(database);
    // Closing writes once more. All of it is on the disk before the name is, and then the name.
    File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

fn fill(database: &Database, kind: Kind, kept: &Kept) -> Result<(), Trouble> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        let mut keys = transaction.open_table(KEYS)?;
        meta.insert(meta::FORMAT, FORMAT)?;
        meta.insert(meta::REVISION, kept.revision.0)?;
        meta.insert(meta::LAST_LEASE, kept.last_lease.0)?;
        meta.insert(meta::KEYS, kept.entries.len() as u64)?;
        if kind == Kind::Backup {
            meta.insert(meta::BACKUP, 1)?;
        }
        for Entry { key, value, modified, lease } in &kept.entries {
            insert(&mut keys, key, modified.0, lease.map_or(0, |lease| lease.0), value)?;
        }
        let mut leases = transaction.open_table(LEASES)?;
        for (lease, ttl) in &kept.leases {
            leases.insert(lease.0, millis(*ttl))?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn read(database: &impl ReadableDatabase, kind: Kind) -> Result<Kept, Trouble> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    let number =
        |row| -> Result<u64, Trouble> { Ok(meta.get(row)?.ok_or(Trouble::Damaged)?.value()) };
    let format = number(meta::FORMAT)?;
    if format != FORMAT {
        return Err(if format > FORMAT { Trouble::Newer(format) } else { Trouble::Damaged });
    }
    let found = if meta.get(meta::BACKUP)?.is_some() { Kind::Backup } else { Kind::Store };
    if found != kind {
        return Err(Trouble::OtherKind(found));
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
    /// What a new file holds.
    fn nothing() -> Self {
        let (entries, leases) = (Vec::new(), Vec::new());
        Self { revision: Revision::ZERO, last_lease: LeaseId(0), entries, leases }
    }

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
            Some(value) => insert(keys, key, modified, lease, value)?,
            None => {
                keys.remove(&**key)?;
            }
        }
    }
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

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
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
