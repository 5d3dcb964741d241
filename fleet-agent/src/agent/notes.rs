//! What an agent writes down for the next daemon of its machine.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::whole::write_whole;

/// One of the notes that an agent keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Note {
    /// What the cluster wanted of the machine when that was last seen for certain. It is worth
    /// something after the machine was booted again, too.
    Assignment,
    /// Until when the machine is certainly present. It is worth nothing after a boot.
    Fence,
}

/// Where an agent keeps its notes. A note is whole or not there, whatever happens.
#[async_trait]
pub trait Notes: Send + Sync + 'static {
    /// What was last written; nothing if nothing was.
    ///
    /// # Errors
    ///
    /// When there is something that cannot be read.
    async fn read(&self, note: Note) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a note. An assignment survives the machine once this has returned.
    ///
    /// # Errors
    ///
    /// When it cannot be written; what was there before is still there then.
    async fn write(&self, note: Note, content: Vec<u8>) -> io::Result<()>;
}

/// Notes in files of two directories.
#[derive(Debug, Clone)]
pub struct NotesOnDisk {
    lasting: PathBuf,
    until_boot: PathBuf,
}

impl NotesOnDisk {
    /// Notes in those directories, which are there and which no other agent uses. What is worth
    /// nothing after a boot is kept in `until_boot`, which a boot may clear and which had better be
    /// in memory: that note is written three times in the lifetime of the machine's lease.
    #[must_use]
    pub fn new(lasting: impl Into<PathBuf>, until_boot: impl Into<PathBuf>) -> Self {
        Self { lasting: lasting.into(), until_boot: until_boot.into() }
    }

    fn path(&self, note: Note) -> PathBuf {
        match note {
            Note::Assignment => self.lasting.join("assignment.json"),
            Note::Fence => self.until_boot.join("fence.json"),
        }
    }
}

#[async_trait]
impl Notes for NotesOnDisk {
    async fn read(&self, note: Note) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(note);
        aside(move || match std::fs::read(path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    async fn write(&self, note: Note, content: Vec<u8>) -> io::Result<()> {
        let path = self.path(note);
        // The end of the machine makes the other one worthless anyway.
        let sync = note == Note::Assignment;
        aside(move || write_whole(&path, &content, sync)).await
    }
}

/// Does what may have to wait for a disk where it delays nobody.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Notes that are gone with the process, for agents of machines that are gone with it, too.
#[derive(Debug, Default)]
pub struct NotesInMemory {
    notes: Mutex<BTreeMap<Note, Vec<u8>>>,
}

#[async_trait]
impl Notes for NotesInMemory {
    async fn read(&self, note: Note) -> io::Result<Option<Vec<u8>>> {
        Ok(self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(&note).cloned())
    }

    async fn write(&self, note: Note, content: Vec<u8>) -> io::Result<()> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(note, content);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_note_is_what_was_written_last() {
        let directory = tempfile::tempdir().unwrap();
        let until_boot = tempfile::tempdir().unwrap();
        let notes = NotesOnDisk::new(directory.path(), until_boot.path());
        assert_eq!(notes.read(Note::Fence).await.unwrap(), None);
        for content in ["one", "two"] {
            notes.write(Note::Fence, content.into()).await.unwrap();
            notes.write(Note::Assignment, format!("{content}!").into()).await.unwrap();
        }
        assert_eq!(notes.read(Note::Fence).await.unwrap(), Some(b"two".to_vec()));
        until_boot.close().unwrap();
        assert_eq!(notes.read(Note::Fence).await.unwrap(), None, "a boot clears it");
        let next = NotesOnDisk::new(directory.path(), directory.path());
        assert_eq!(next.read(Note::Assignment).await.unwrap(), Some(b"two!".to_vec()));
    }

    #[tokio::test]
    async fn a_note_that_cannot_be_written_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let notes = NotesOnDisk::new(directory.path(), directory.path().join("none"));
        assert!(notes.write(Note::Fence, Vec::new()).await.is_err());
        assert_eq!(notes.read(Note::Fence).await.unwrap(), None);
    }
}
