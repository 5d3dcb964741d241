//! The mirror: a process's copy of the cluster's stored state. A watch keeps the copy current, and
//! all reads use the copy instead of the store.

mod changes;
mod contents;
mod follow;
mod requirements_cache;
mod state;
mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fleet_core::{MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;
use tokio::sync::watch as signal;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::registry::{Lineage, RemovePlacement, UnusedContent};
use crate::transfer::Export;
use crate::{Layout, Listing, Registry, RegistryError};
use follow::MachineWatchers;
use state::{LastSeen, Shared, State};
use view::View;

pub(crate) use self::contents::UnitPlacements;
pub use self::follow::MachineProgress;
pub use changes::{ChangeSet, ResultChange};

/// A snapshot of the cluster that follows the store. Cloning gives another handle to the same
/// mirror.
///
/// A task reads the whole cluster once and then watches the store. When the watch is lost, the task
/// reads everything again, and pauses longer after each failed attempt.
///
/// Until an attempt succeeds, the last snapshot stays readable, but the mirror is [not
/// current](Self::is_current). The state of the cluster is then unknown, and *unknown* must not be
/// mistaken for *absent*. So code that stops units must use [`current`](Self::current).
///
/// The task ends when the last handle is dropped or [`shutdown`](Self::shutdown) is called.
#[derive(Debug, Clone)]
pub struct Mirror {
    shared: Arc<Shared>,
    progress: signal::Receiver<Progress>,
    /// Ends the task with the last handle.
    task: Arc<Task>,
}

/// Progress of a mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Revision of the snapshot.
    pub revision: Revision,
    /// Last revision that changed a scheduling input, such as a unit, a machine or a placement.
    /// Reported states and reasons do not count, because they are results of decisions and not
    /// inputs.
    pub scheduling_revision: Revision,
    /// Whether the mirror is current.
    pub is_current: bool,
    /// Whether the store is the expected one, see [`Mirror::start_expecting`].
    pub store: StoreIdentity,
}

/// Whether a mirror's store has the history that the mirror expects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreIdentity {
    /// The store has the expected history, or any history is accepted.
    #[default]
    Expected,
    /// The mirror has not read the store yet.
    Unknown,
    /// The store has another history, or none. A person must decide that it counts.
    Other,
}

impl Progress {
    fn machine_progress(self) -> MachineProgress {
        MachineProgress { revision: self.revision, is_current: self.is_current }
    }
}

/// A snapshot and its scheduling inputs that differ from an earlier one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delta {
    /// Last known snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Whether the snapshot is complete and followed by a working watch.
    pub is_current: bool,
    /// Changes since the earlier snapshot. `None` if the mirror no longer remembers all of them, or
    /// if the earlier snapshot is not from this mirror. The reader must then examine the whole
    /// snapshot.
    pub changes: Option<ChangeSet>,
}

impl Delta {
    /// Creates a delta to a current snapshot, as a mirror returns it.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, changes: Option<ChangeSet>) -> Self {
        Self { snapshot, is_current: true, changes }
    }
}

/// A snapshot and all its differences from an earlier one, so that a reader can publish them to
/// clients.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FullDelta {
    /// Last known snapshot, with the changed scheduling inputs.
    pub inputs: Delta,
    /// Results of decisions that have changed since the earlier snapshot. `None` if the mirror no
    /// longer remembers all of them, for example because it had to read the store again. The reader
    /// must then examine the whole snapshot.
    pub results: Option<BTreeSet<ResultChange>>,
}

/// Synchronization status of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorStatus {
    /// The mirror follows its store.
    Synced,
    /// The mirror has lost the store, or has not reached it yet.
    Behind {
        /// Time since then.
        duration: Duration,
    },
}

/// Error of a mirror that was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is shutting down")]
pub struct MirrorClosed;

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mirror {
    /// Starts following the cluster of `registry`.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn start(registry: &Registry) -> Self {
        Self::start_expecting(registry, None)
    }

    /// Starts following the cluster of `registry`, but only if the store's lineage
    /// [continues](Lineage::continues) `expected`, if given. For any other store the mirror never
    /// becomes current, as if the store were unreachable.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn start_expecting(registry: &Registry, expected: Option<Lineage>) -> Self {
        let store = match expected {
            Some(_) => StoreIdentity::Unknown,
            None => StoreIdentity::Expected,
        };
        let clock = Clock::start();
        let view = View::new(registry.layout().clone());
        let (publisher, progress) = signal::channel(Progress { store, ..Progress::default() });
        let now = clock.now();
        let publisher = Some(publisher);
        let state = State {
            view,
            behind_since: Some(now),
            expected,
            store,
            current_since: now,
            resyncs: 0,
            began: now,
            last_seen: LastSeen::default(),
            publisher,
        };
        let watchers = Mutex::default();
        let shared = Arc::new(Shared { clock, state: RwLock::new(state), watchers });
        let follower = follow::Follower::new(registry.clone(), shared.clone());
        let task = tokio::spawn(follower.run()).abort_handle();
        Self { shared, progress, task: Arc::new(Task(task)) }
    }

    /// Returns the last known snapshot, even if it is not current. Until the first read of the
    /// store, the snapshot is empty and has revision zero.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.read(|state| state.view.snapshot().clone())
    }

    /// Returns the snapshot if it is complete and followed by a working watch.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Snapshot>> {
        self.shared
            .read(|state| state.behind_since.is_none().then(|| state.view.snapshot().clone()))
    }

    /// Returns the last known snapshot and its changes since revision `seen`, for incremental
    /// updates of derived data.
    ///
    /// The mirror remembers the names of up to 65,536 changed units, machines and placements. It
    /// keeps these names even when it has to read the store again.
    #[must_use]
    pub fn delta_since(&self, seen: Revision) -> Delta {
        self.shared.read(|state| state.delta_since(seen))
    }

    /// Like [`delta_since`](Self::delta_since), but also returns the reported states and reasons
    /// that have changed. The mirror remembers up to 65,536 of these changes, and forgets them when
    /// it has to read the store again.
    #[must_use]
    pub fn full_delta_since(&self, seen: Revision) -> FullDelta {
        self.shared.read(|state| FullDelta {
            inputs: state.delta_since(seen),
            results: state.view.results_since(seen),
        })
    }

    /// Returns whether the snapshot currently follows the store.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.status() == MirrorStatus::Synced
    }

    /// Returns whether the mirror follows its store, and if not, how long it has been behind.
    #[must_use]
    pub fn status(&self) -> MirrorStatus {
        let since = self.shared.read(|state| state.behind_since);
        since.map_or(MirrorStatus::Synced, |since| MirrorStatus::Behind {
            duration: self.shared.clock.now().since(since),
        })
    }

    /// Returns the time since the mirror last became current, or `None` while the mirror is not
    /// current.
    #[must_use]
    pub fn current_for(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.shared
            .read(|state| state.behind_since.is_none().then(|| now.since(state.current_since)))
    }

    /// Returns a lower bound of the time for which a machine has been absent, or `None` while it is
    /// present. The time counts from when the mirror last saw the machine. If the mirror never saw
    /// the machine, it counts from the mirror's start.
    #[must_use]
    pub fn absent_for(&self, machine: &str) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.shared.read(|state| {
            let is_present = state.view.snapshot().machine(machine).is_some();
            let seen = state.last_seen.get(machine).unwrap_or(state.began);
            (!is_present).then(|| now.since(seen))
        })
    }

    /// Returns the machines that this mirror has seen leave and that are still absent, in the order
    /// of their IDs, each with the time for which it has been absent.
    #[must_use]
    pub fn absent_machines(&self) -> Vec<(MachineId, Duration)> {
        let now = self.shared.clock.now();
        self.shared.read(|state| {
            state.last_seen.iter().map(|(id, seen)| (id.clone(), now.since(seen))).collect()
        })
    }

    /// Returns the number of times that the mirror became current. If two calls return the same
    /// number, the watch had no gap between them in which a change could be missed.
    #[must_use]
    pub fn resyncs(&self) -> u64 {
        self.shared.read(|state| state.resyncs)
    }

    /// Waits until the mirror has reached `revision`, so that a write of that revision is readable.
    /// The wait continues while the store is unreachable, so use a timeout in interactive code.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when the mirror is shut down.
    pub async fn wait_for(&self, revision: Revision) -> Result<Arc<Snapshot>, MirrorClosed> {
        self.wait_until(|progress| progress.revision >= revision).await
    }

    /// Waits until the mirror is current, for example after its start.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when the mirror is shut down.
    pub async fn wait_current(&self) -> Result<Arc<Snapshot>, MirrorClosed> {
        self.wait_until(|progress| progress.is_current).await
    }

    /// Waits until the store is known to be the [expected one](Self::start_expecting). Returns at
    /// once if the last successful read of the store has shown that.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when the mirror is shut down.
    pub async fn wait_expected_store(&self) -> Result<(), MirrorClosed> {
        self.wait_until(|progress| progress.store == StoreIdentity::Expected).await.map(drop)
    }

    /// Returns whether the store is the [expected one](Self::start_expecting).
    #[must_use]
    pub fn store_identity(&self) -> StoreIdentity {
        self.shared.read(|state| state.store)
    }

    /// Waits until the mirror is current and shows no leader except `candidate`.
    /// Candidates wait here before they campaign, instead of polling the store.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when the mirror is shut down.
    pub async fn wait_until_vacant(&self, candidate: &MachineId) -> Result<(), MirrorClosed> {
        let is_open = || self.shared.read(|state| state.view.may_lead(candidate));
        self.wait_until(|progress| progress.is_current && is_open()).await.map(drop)
    }

    /// Returns a receiver that is notified when the snapshot changes, and when the mirror becomes
    /// current or stops being current. The receiver fails when the mirror is shut down.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver<Progress> {
        self.progress.clone()
    }

    /// Returns a receiver that is notified only when something changes that may affect one
    /// machine:
    ///
    /// - placements on the machine and the units of these placements
    /// - the machine's own record and intent
    /// - global units and unreadable units
    /// - whether the mirror is current; after a gap in the watch, everything may have changed
    ///
    /// The caller need not list the units of the machine, because the mirror knows them. The
    /// receiver fails when the mirror is shut down.
    #[must_use]
    pub fn watch_machine(&self, machine: &MachineId) -> signal::Receiver<MachineProgress> {
        let mut watchers = self.shared.watchers();
        match self.shared.read(|state| state.publisher.as_ref().map(|_| state.progress())) {
            Some(progress) => watchers.add(machine, progress.machine_progress()),
            None => MachineWatchers::default().add(machine, MachineProgress::default()),
        }
    }

    /// Returns the superseded placements, which the leader deletes. A placement is superseded if
    /// another placement of the same unit takes precedence. [`Registry`] never creates such
    /// placements; only other writers of the store can.
    #[must_use]
    pub fn superseded_placements(&self) -> Vec<RemovePlacement> {
        self.shared.read(|state| state.view.superseded())
    }

    /// Returns the stored placements of a unit, as far as the mirror knows.
    pub(crate) fn placements_of(&self, unit: &UnitName) -> UnitPlacements {
        self.shared.read(|state| state.view.placements_of(unit))
    }

    /// Returns the revision of the last write of placements by a leader, if any.
    pub(crate) fn last_placement_write(&self) -> Option<Revision> {
        self.shared.read(|state| state.view.last_placement_write())
    }

    /// Returns the stored contents that no unit uses, for [`Registry::collect_contents`].
    #[must_use]
    pub fn unused_contents(&self) -> Vec<UnusedContent> {
        self.shared.read(|state| state.view.unused_contents())
    }

    /// Returns the lineage of the snapshot, if the store has one. Its ID never changes, because the
    /// mirror rejects a store with another lineage. Its epoch base can change.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        self.shared.read(|state| state.view.lineage())
    }

    /// Returns the cluster for [exporting](Export), or `None` if the snapshot is not current.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when the lineage cannot be read.
    pub fn export(&self) -> Result<Option<Export>, RegistryError> {
        self.shared.read(|state| match state.behind_since {
            None => state.view.export().map(Some),
            Some(_) => Ok(None),
        })
    }

    /// Stops following the store, for all handles of this mirror. The last snapshot stays readable
    /// but is no longer current.
    pub fn shutdown(&self) {
        self.task.0.abort();
        self.shared.close();
    }

    async fn wait_until(
        &self,
        reached: impl FnMut(&Progress) -> bool,
    ) -> Result<Arc<Snapshot>, MirrorClosed> {
        let mut progress = self.progress.clone();
        progress.wait_for(reached).await.map_err(|_| MirrorClosed)?;
        self.shared.read(|state| match state.publisher {
            Some(_) => Ok(state.view.snapshot().clone()),
            None => Err(MirrorClosed),
        })
    }
}

/// Returns the cluster of a listing for [exporting](Export).
pub(crate) fn export_of(layout: Layout, listing: Listing) -> Result<Export, RegistryError> {
    View::new(layout).relist(listing).export()
}
