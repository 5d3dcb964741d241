//! State that an agent keeps for the next daemon of its machine: the last desired state of the
//! machine, and the store that may change the machine's units.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{DesiredUnit, Generation, KnownUnit, MachineId, TargetState, Timestamp, Unit};
use fleet_store::registry::Lineage;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::desired_state::{DesiredState, is_fenced};
use crate::files::write_atomic;

/// An entry of the agent's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StateKey {
    /// The last known desired state of the machine, which is still useful after a reboot.
    DesiredState,
    /// The attempts of jobs that the machine has begun, which must not run again after a reboot.
    Attempts,
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

    /// Replaces the content of an entry. It is durable once this has returned, unless it is the
    /// fence.
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
    /// - `lasting` holds the desired state, and the attempts of jobs.
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
            StateKey::Attempts => self.lasting.join("attempts.json"),
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
        // The fence is meaningless after a crash of the machine.
        let sync = key != StateKey::Fence;
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

/// Minimum interval between two writes, except for urgent writes. Units change in bursts, and each
/// write contains all units of the machine.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The last desired state, with its persisted copy.
pub(crate) struct Checkpoint {
    machine: MachineId,
    state: Arc<dyn AgentState>,
    persisted: DesiredState,
    /// State to persist next.
    pending: Option<DesiredState>,
    /// Loaded units whose runs are to be stopped, each with the generation of that request.
    stops: BTreeMap<UnitName, Generation>,
    /// Time before which only urgent changes are persisted.
    next_write: Timestamp,
    fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
}

impl Checkpoint {
    pub(crate) fn new(
        machine: MachineId,
        state: Arc<dyn AgentState>,
        fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
    ) -> Self {
        let (persisted, next_write) = (DesiredState::default(), Timestamp::default());
        let (pending, stops) = (None, BTreeMap::new());
        Self { machine, state, persisted, pending, stops, next_write, fenced }
    }

    /// Reads the state that an earlier daemon persisted.
    pub(crate) async fn load(&mut self) {
        self.persisted = DesiredState::read(&*self.state, &self.machine).await;
        self.publish_fenced(self.persisted.fenced.clone());
    }

    /// Records the desired units of the machine, from a store of this lineage. Each unit in
    /// `undecided` keeps its previous record, if it has one.
    ///
    /// If a unit with `OnPartition=stop` is new, the record is persisted immediately, because the
    /// unit may be started only once its record is on disk. All other changes stay pending until
    /// [`persist_when_due`](Self::persist_when_due) or [`persist`](Self::persist).
    pub(crate) async fn update(
        &mut self,
        desired: &BTreeMap<UnitName, DesiredUnit>,
        undecided: &BTreeSet<UnitName>,
        known: &BTreeMap<UnitName, KnownUnit>,
        lineage: Option<Lineage>,
    ) {
        let mut units = desired.clone();
        for unit in undecided {
            if let Some(before) = self.persisted.units.get(unit) {
                units.entry(unit.clone()).or_insert_with(|| before.clone());
            }
        }
        self.note_stops(&units);
        let now = units.iter().filter(|(_, wanted)| is_fenced(&wanted.unit));
        let now = now.map(|(unit, _)| unit);
        // A unit that is still there may still run, though it is no longer wanted.
        let before = self.persisted.fenced.iter().filter(|unit| known.contains_key(*unit));
        let fenced = now.chain(before).cloned().collect();
        let next = DesiredState { lineage, units, fenced };
        self.pending = None;
        if next.is_equivalent(&self.persisted) {
            return;
        }
        self.publish_fenced(next.fenced.clone());
        let urgent = !next.fenced.is_subset(&self.persisted.fenced);
        self.pending = Some(next);
        if urgent {
            self.persist().await;
        }
    }

    /// Notes each unit that stays loaded under a higher generation: its run is to be stopped, which
    /// a timer, a socket or another unit has started. Without an earlier record of a unit, its
    /// generation is no request.
    fn note_stops(&mut self, units: &BTreeMap<UnitName, DesiredUnit>) {
        let is_loaded = |it: &DesiredUnit| it.unit.desired == TargetState::Loaded;
        self.stops.retain(|unit, _| units.get(unit).is_some_and(is_loaded));
        let before = &self.pending.as_ref().unwrap_or(&self.persisted).units;
        for (unit, wanted) in units.iter().filter(|(_, wanted)| is_loaded(wanted)) {
            let generation = wanted.unit.generation;
            let raised = |it: &&DesiredUnit| is_loaded(it) && it.unit.generation < generation;
            if before.get(unit).filter(raised).is_some() {
                self.stops.insert(unit.clone(), generation);
            }
        }
    }

    /// Marks each loaded unit whose run is to be stopped as launched. So the difference to its
    /// desired state is a stop.
    pub(crate) fn mark_stops(&self, known: &mut BTreeMap<UnitName, KnownUnit>) {
        for unit in self.stops.keys() {
            if let Some(known) = known.get_mut(unit)
                && known.requested == TargetState::Loaded
            {
                known.requested = TargetState::Launched;
            }
        }
    }

    /// Records that all tasks that led to this state of a unit have succeeded.
    pub(crate) fn on_success(&mut self, wanted: &DesiredUnit) {
        let is_done = |stop: &Generation| *stop <= wanted.unit.generation;
        if self.stops.get(&wanted.unit.name).is_some_and(is_done) {
            self.stops.remove(&wanted.unit.name);
        }
    }

    /// Persists the pending state, if any.
    pub(crate) async fn persist(&mut self) {
        let Some(next) = &self.pending else { return };
        match next.write(&*self.state, &self.machine).await {
            Ok(()) => self.persisted = self.pending.take().unwrap_or_default(),
            Err(error) => tracing::warn!(
                %error,
                "cannot save the desired state of this machine: if fleetd restarts while it cannot \
                 reach the cluster, it uses the state saved before"
            ),
        }
    }

    /// Persists the pending state if the write interval has passed. If a state is still pending
    /// afterwards (too early, or the write failed), returns the time at which to call this again.
    /// Otherwise returns `None`.
    pub(crate) async fn persist_when_due(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.pending.is_some() && now >= self.next_write {
            self.persist().await;
            self.next_write = now.after(WRITE_INTERVAL);
        }
        self.pending.is_some().then_some(self.next_write)
    }

    /// Whether the persisted state says that the unit is fenced.
    pub(crate) fn is_persisted(&self, unit: &UnitName) -> bool {
        self.persisted.fenced.contains(unit)
    }

    /// Returns the last desired units that may start while the cluster is out of reach: those that
    /// are neither fenced nor jobs.
    pub(crate) fn blind_units(&self) -> BTreeMap<UnitName, DesiredUnit> {
        let may_start = |unit: &Unit| !is_fenced(unit) && !unit.is_job();
        let units = self.persisted.units.iter().filter(|(_, wanted)| may_start(&wanted.unit));
        units.map(|(unit, wanted)| (unit.clone(), wanted.clone())).collect()
    }

    fn publish_fenced(&self, fenced: BTreeSet<UnitName>) {
        self.fenced.send_if_modified(|current| {
            let changed = **current != fenced;
            if changed {
                *current = Arc::new(fenced);
            }
            changed
        });
    }
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
