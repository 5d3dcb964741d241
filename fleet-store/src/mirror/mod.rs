//! The mirror: this process's copy of the cluster, kept current by a watch, serving all reads.

mod changes;
mod contents;
mod follow;
mod last_seen;
mod limits;
mod machine_progress;
mod requirements_cache;
mod results;
mod state;
mod stored_placements;
mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fleet_core::{MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;
use tokio::sync::watch as signal;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::{Export, Lineage, Registry, RegistryError, RemovePlacement, UnusedContent};
use last_seen::LastSeen;
use machine_progress::MachineWatchers;
use state::{Shared, State};
use view::View;

pub use changes::ChangeSet;
pub use machine_progress::MachineProgress;
pub use results::ResultChange;
pub(crate) use stored_placements::UnitPlacements;

/// A snapshot of the cluster that follows the store. Cloning gives another handle to the same.
///
/// One task reads the whole cluster once and then watches it. When the watch is lost it reads all
/// again, after a pause that grows with each failure. Meanwhile the last snapshot stays readable,
/// but the mirror [is not current](Self::is_current): the state of the cluster is unknown then,
/// and *unknown* must not be taken for *absent*. Whoever stops units looks at
/// [`current`](Self::current) alone.
///
/// The task ends with the last handle, or by [`shutdown`](Self::shutdown).
#[derive(Debug, Clone)]
pub struct Mirror {
    shared: Arc<Shared>,
    progress: signal::Receiver<Progress>,
    /// Ends the task with the last handle.
    task: Arc<Task>,
}

/// How far a mirror has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The last revision that changed what decisions rest on: a unit, a machine or a placement.
    /// What machines report, and why units have no machine, are results of decisions.
    pub scheduling_revision: Revision,
    /// Whether the watch that keeps it current is alive.
    pub is_current: bool,
}

impl Progress {
    fn machine_progress(self) -> MachineProgress {
        MachineProgress { revision: self.revision, is_current: self.is_current }
    }
}

/// A snapshot, and what is different from one that was seen before.
#[derive(Debug, Clone)]
pub struct Delta {
    /// The last known snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Whether it is complete, and followed by a watch that is alive.
    pub is_current: bool,
    /// What is different from the snapshot that was seen; nothing when too much happened since, or
    /// that snapshot was none of this mirror: then look at everything.
    pub changes: Option<ChangeSet>,
}

/// All that is different from a snapshot that was seen before, for those who tell others of it.
#[derive(Debug, Clone)]
pub struct FullDelta {
    /// The last known snapshot, with the changes in what decisions rest on.
    pub inputs: Delta,
    /// The changes in the results of decisions; nothing when too much happened since, or the
    /// store had to be read anew: then look at everything.
    pub results: Option<BTreeSet<ResultChange>>,
}

/// Whether a mirror follows its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorStatus {
    /// It does.
    Synced,
    /// It has lost the store, or has not found it yet.
    Behind {
        /// For how long.
        duration: Duration,
    },
}

/// The mirror was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mirror was shut down")]
pub struct MirrorClosed;

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mirror {
    /// Begins to follow the cluster of `registry`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(registry: &Registry) -> Self {
        let clock = Clock::start();
        let view = View::new(registry.layout().clone());
        let (publisher, progress) = signal::channel(Progress::default());
        let now = clock.now();
        let publisher = Some(publisher);
        let state = State {
            view,
            behind_since: Some(now),
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

    /// The last known snapshot, current or not. It is empty, at revision zero, until the store was
    /// read for the first time.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.read(|state| state.view.snapshot().clone())
    }

    /// The snapshot if it is current: complete, and followed by a watch that is alive.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Snapshot>> {
        self.shared
            .read(|state| state.behind_since.is_none().then(|| state.view.snapshot().clone()))
    }

    /// The last known snapshot, and what is different from the one of revision `seen`: for those
    /// who keep something that follows from a snapshot and change it where the snapshot changes.
    ///
    /// The mirror remembers what changed of late, 65,536 names of units, machines and placements
    /// in all, through resynchronisations too.
    #[must_use]
    pub fn delta_since(&self, seen: Revision) -> Delta {
        self.shared.read(|state| state.delta_since(seen))
    }

    /// The same, and the results of decisions that are different. Of these, too, the mirror
    /// remembers 65,536, but none through a resynchronisation.
    #[must_use]
    pub fn full_delta_since(&self, seen: Revision) -> FullDelta {
        self.shared.read(|state| FullDelta {
            inputs: state.delta_since(seen),
            results: state.view.results_since(seen),
        })
    }

    /// Whether the snapshot follows the store at this moment.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.status() == MirrorStatus::Synced
    }

    /// Whether the mirror follows its store, and if not, for how long it has not.
    #[must_use]
    pub fn status(&self) -> MirrorStatus {
        let since = self.shared.read(|state| state.behind_since);
        since.map_or(MirrorStatus::Synced, |since| MirrorStatus::Behind {
            duration: self.shared.clock.now().since(since),
        })
    }

    /// For how long the mirror has followed its store without a gap; nothing while it does not.
    #[must_use]
    pub fn current_for(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.shared
            .read(|state| state.behind_since.is_none().then(|| now.since(state.current_since)))
    }

    /// For how long, at least, nothing has been known of a machine that is not present: since the
    /// mirror last saw it there, or else as long as the mirror has been looking. Nothing while it
    /// is present.
    #[must_use]
    pub fn absent_for(&self, machine: &str) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.shared.read(|state| {
            let is_present = state.view.snapshot().machine(machine).is_some();
            let seen = state.last_seen.get(machine).unwrap_or(state.began);
            (!is_present).then(|| now.since(seen))
        })
    }

    /// How often the mirror has found its store, for the first time or again: as long as this
    /// number stays the same, there was no gap in which something could have come and gone unseen.
    #[must_use]
    pub fn resyncs(&self) -> u64 {
        self.shared.read(|state| state.resyncs)
    }

    /// Waits until the mirror has come as far as `revision`, so that a write can be read. It waits
    /// while the store is away, too: set a limit where a person waits.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when it was shut down before.
    pub async fn wait_for(&self, revision: Revision) -> Result<Arc<Snapshot>, MirrorClosed> {
        self.wait_until(|progress| progress.revision >= revision).await
    }

    /// Waits until the mirror is current, for example after its start.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when it was shut down before.
    pub async fn wait_current(&self) -> Result<Arc<Snapshot>, MirrorClosed> {
        self.wait_until(|progress| progress.is_current).await
    }

    /// Waits until `candidate` may hope to lead: the mirror is current, and nobody else leads as
    /// far as it shows. So a candidate need not ask the store again and again.
    ///
    /// # Errors
    ///
    /// [`MirrorClosed`] when it was shut down before.
    pub async fn wait_until_vacant(&self, candidate: &MachineId) -> Result<(), MirrorClosed> {
        let is_open = || self.shared.read(|state| state.view.may_lead(candidate));
        self.wait_until(|progress| progress.is_current && is_open()).await.map(drop)
    }

    /// Wakes a loop whenever the snapshot, or its being current, has changed. The receiver fails
    /// when the mirror was shut down.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver<Progress> {
        self.progress.clone()
    }

    /// Wakes the loop of one machine when something may have changed that concerns it, and for
    /// nothing that happens elsewhere: what is placed on it or no longer is, and the units that
    /// are; its own record and intent; global units, and units of which nobody can say where they
    /// belong; and whether the mirror is current. After a gap, everything may have changed.
    ///
    /// What the cluster wants of a unit that is not placed on the machine is the same whatever
    /// becomes of its record, so a machine need not say which units it has. The receiver fails when
    /// the mirror was shut down.
    #[must_use]
    pub fn watch_machine(&self, machine: &MachineId) -> signal::Receiver<MachineProgress> {
        let mut watchers = self.shared.watchers();
        match self.shared.read(|state| state.publisher.as_ref().map(|_| state.progress())) {
            Some(progress) => watchers.add(machine, progress.machine_progress()),
            None => MachineWatchers::default().add(machine, MachineProgress::default()),
        }
    }

    /// The placements that do not count, because their unit has a later one: a leader takes them
    /// away. There are none unless somebody wrote them who is no [`Registry`].
    #[must_use]
    pub fn superseded_placements(&self) -> Vec<RemovePlacement> {
        self.shared.read(|state| state.view.superseded())
    }

    /// Where the placements of a unit are stored, as far as the mirror knows.
    pub(crate) fn placements_of(&self, unit: &UnitName) -> UnitPlacements {
        self.shared.read(|state| state.view.placements_of(unit))
    }

    /// The stored contents that no unit has, for [`Registry::collect_contents`].
    #[must_use]
    pub fn unused_contents(&self) -> Vec<UnusedContent> {
        self.shared.read(|state| state.view.unused_contents())
    }

    /// Which unbroken history of revisions the snapshot is of, if the store says so. It stays the
    /// same while the mirror lives: a store that says something else is not followed.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        self.shared.read(|state| state.view.lineage())
    }

    /// The cluster as it can be [exported](Export), if the snapshot is current.
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

    /// Ends the following, for all handles. The last snapshot stays readable and is not current.
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

impl Registry {
    /// The cluster as it can be [exported](Export), read all at once: for those who have no mirror.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`]; [`RegistryError::Value`] when the lineage cannot be read.
    pub async fn export(&self) -> Result<Export, RegistryError> {
        let listing = self.store().read(self.layout().prefix()).await?;
        View::new(self.layout().clone()).relist(listing).export()
    }
}
