//! State that an agent keeps for the next daemon of its machine, with the store that may change the
//! machine's units.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use fleet_core::MachineId;
use fleet_store::registry::Lineage;

use super::desired_state::DesiredState;
use crate::files::write_atomic;

/// An entry of the agent's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StateKey {
    /// The last known desired state of the machine, which is still useful after a reboot.
    DesiredState,
    /// The time up to which the machine is certainly present, which is meaningless after a reboot.
    Fence,
}

/// Storage of an agent's state. Writes are atomic.
#[async_trait]
pub trait AgentState: Send + Sync + 'static {
    /// Returns the content that was last written; `None` if nothing was written.
    ///
    /// # Errors
    ///
    /// The stored content cannot be read.
    async fn read(&self, key: StateKey) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the content of an entry. A new desired state is durable once this has returned.
    ///
    /// # Errors
    ///
    /// The content cannot be written. The previous content then stays.
    async fn write(&self, key: StateKey, content: Vec<u8>) -> io::Result<()>;
}

/// State in files of two directories.
#[derive(Debug, Clone)]
pub struct DiskState {
    lasting: PathBuf,
    until_boot: PathBuf,
}

impl DiskState {
    /// Creates a store in these two directories, which must exist and which no other agent may use.
    ///
    /// - `lasting` holds the desired state.
    /// - `until_boot` holds the fence, which is meaningless after a reboot, so a reboot may clear
    ///   this directory. It should be in memory, because the fence is written three times per lease
    ///   duration.
    #[must_use]
    pub fn new(lasting: impl Into<PathBuf>, until_boot: impl Into<PathBuf>) -> Self {
        Self { lasting: lasting.into(), until_boot: until_boot.into() }
    }

    fn path(&self, key: StateKey) -> PathBuf {
        match key {
            StateKey::DesiredState => self.lasting.join("desired-state.json"),
            StateKey::Fence => self.until_boot.join("fence.json"),
        }
    }
}

#[async_trait]
impl AgentState for DiskState {
    async fn read(&self, key: StateKey) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(key);
        run_blocking(move || match std::fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(with_path(&path, &error)),
        })
        .await
    }

    async fn write(&self, key: StateKey, content: Vec<u8>) -> io::Result<()> {
        let path = self.path(key);
        // The other entry is meaningless after a crash of the machine.
        let sync = key == StateKey::DesiredState;
        let write =
            move || write_atomic(&path, &content, sync).map_err(|error| with_path(&path, &error));
        run_blocking(write).await
    }
}

/// Adds the path of a file to an error.
fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Runs blocking file access on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// State in memory, which is lost with the process. It suits machines that are lost with the
/// process too, such as simulated ones.
#[derive(Debug, Default)]
pub struct MemoryState {
    notes: Mutex<BTreeMap<StateKey, Vec<u8>>>,
}

#[async_trait]
impl AgentState for MemoryState {
    async fn read(&self, key: StateKey) -> io::Result<Option<Vec<u8>>> {
        Ok(self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned())
    }

    async fn write(&self, key: StateKey, content: Vec<u8>) -> io::Result<()> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, content);
        Ok(())
    }
}

/// Returns the lineage that a store must continue to change the units of this machine, for
/// [`Mirror::start_expecting`](fleet_store::Mirror::start_expecting). Returns `None` if any store
/// may: the machine has no units, or a person has [accepted](accept_any_store) any store.
///
/// The machine's saved state has the lineage of the store that it is from. A store of another
/// lineage may be an emptied one, and following it would end all units. So a daemon follows it only
/// after a person has accepted it.
pub async fn protected_lineage(state: &dyn AgentState, machine: &MachineId) -> Option<Lineage> {
    // The agent logs an unusable state.
    DesiredState::try_read(state, machine).await.ok()?.protected_lineage()
}

/// Lets any store change the units of this machine, until its daemon has followed one. Call this
/// only for a person, and while the machine's agent does not run.
///
/// # Errors
///
/// The saved state cannot be written.
pub async fn accept_any_store(state: &dyn AgentState, machine: &MachineId) -> io::Result<()> {
    // An unusable state names no lineage.
    let saved = DesiredState::try_read(state, machine).await.unwrap_or_default();
    if saved.lineage.is_none() {
        return Ok(());
    }
    DesiredState { lineage: None, ..saved }.write(state, machine).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn read_returns_last_write() {
        let directory = tempfile::tempdir().unwrap();
        let until_boot = tempfile::tempdir().unwrap();
        let notes = DiskState::new(directory.path(), until_boot.path());
        assert_eq!(notes.read(StateKey::Fence).await.unwrap(), None);
        for content in ["one", "two"] {
            notes.write(StateKey::Fence, content.into()).await.unwrap();
            notes.write(StateKey::DesiredState, format!("{content}!").into()).await.unwrap();
        }
        assert_eq!(notes.read(StateKey::Fence).await.unwrap(), Some(b"two".to_vec()));
        until_boot.close().unwrap();
        assert_eq!(notes.read(StateKey::Fence).await.unwrap(), None, "a boot clears it");
        let next = DiskState::new(directory.path(), directory.path());
        assert_eq!(next.read(StateKey::DesiredState).await.unwrap(), Some(b"two!".to_vec()));
    }

    #[tokio::test]
    async fn failed_write_keeps_previous_content() {
        let directory = tempfile::tempdir().unwrap();
        let notes = DiskState::new(directory.path(), directory.path().join("none"));
        assert!(notes.write(StateKey::Fence, Vec::new()).await.is_err());
        assert_eq!(notes.read(StateKey::Fence).await.unwrap(), None);
    }
}
