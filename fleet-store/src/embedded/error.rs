//! Errors of opening a file, mapped from redb's.

use std::error::Error;
use std::io;
use std::path::Path;

use redb::{DatabaseError, StorageError, TableError};

use super::damaged;
use super::disk::{FORMAT, Kind};
use crate::StoreError;

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
