//! The mirror's task. It reads the whole cluster, then watches the store for changes, and starts
//! over when the watch is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{MachineId, Revision};
use tokio::sync::watch as signal;

use super::Shared;
use crate::clock::sleep;
use crate::codec::decode_lineage;
use crate::registry::{CodecError, Key};
use crate::{Listing, Registry, StoreError, Watch};

/// Pause before the first retry. Each failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Follower {
    registry: Registry,
    shared: Arc<Shared>,
}

/// Reason to read the store again.
#[derive(Debug, thiserror::Error)]
enum ResyncReason {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "the store is at revision {found}, but fleetd has already read revision {known}: the store \
         lags behind, or an older copy was restored; if the restore was intended, restart fleetd"
    )]
    RevisionWentBack { found: Revision, known: Revision },
    #[error(
        "the store was emptied or replaced, or fleetd has reached another store; units of this \
         machine stay as they are; restart fleetd after you have restored the store, or run \
         \"fleetd accept-store\" and restart fleetd if the new store is intended"
    )]
    OtherHistory,
    #[error("a backup of the cluster was restored into a new store: restart fleetd to follow it")]
    Restored,
    #[error("this version of fleet cannot read the keys of the store")]
    OtherLayout(#[source] CodecError),
}

impl Follower {
    pub(super) fn new(registry: Registry, shared: Arc<Shared>) -> Self {
        Self { registry, shared }
    }

    /// Runs until the task is aborted.
    pub(super) async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = match self.resync().await {
                Ok(watch) => self.follow(watch, &mut pause).await,
                Err(reason) => reason,
            };
            let is_other = matches!(reason, ResyncReason::OtherHistory | ResyncReason::Restored);
            self.shared.mark_behind(is_other);
            report(&reason, pause);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads everything and starts a watch from there.
    async fn resync(&self) -> Result<Watch, ResyncReason> {
        let store = self.registry.store();
        let prefix = self.registry.layout().prefix();
        let listing = store.read(prefix).await?;
        self.check_revision(&listing)?;
        let key = self.lineage_key();
        let lineage = listing.entries.iter().find(|entry| entry.key == key);
        self.check_lineage(lineage.map(|entry| entry.value.as_slice()))?;
        // The listing counts as current only once the watch is established.
        let watch = store.watch(prefix, listing.revision).await?;
        let view = self.shared.read(|state| state.view.relist(listing));
        let now = self.shared.clock.now();
        self.shared.change(|state| state.resume(view, now));
        Ok(watch)
    }

    /// Rejects a listing with a lower revision than the mirror has already seen. Such a store lags
    /// behind or has lost data, so units that are missing in the listing must not be stopped.
    fn check_revision(&self, listing: &Listing) -> Result<(), ResyncReason> {
        let known = self.shared.read(|state| state.view.snapshot().revision);
        if listing.revision < known {
            return Err(ResyncReason::RevisionWentBack { found: listing.revision, known });
        }
        Ok(())
    }

    /// Rejects a store with another key layout or another history. For example, the history changes
    /// when a backup is restored.
    fn check_lineage(&self, lineage: Option<&[u8]>) -> Result<(), ResyncReason> {
        // A damaged lineage is compared by its bytes.
        let is_other = |error: &CodecError| !matches!(error, CodecError::Damaged(_));
        if let Some(error) = lineage.and_then(|it| decode_lineage(it).err()).filter(is_other) {
            return Err(ResyncReason::OtherLayout(error));
        }
        let found = lineage.and_then(|bytes| decode_lineage(bytes).ok());
        self.shared.read(|state| match (state.is_expected(lineage), state.view.lineage()) {
            (true, _) => Ok(()),
            (false, Some(own)) if found.is_some_and(|found| found.continues(&own)) => {
                Err(ResyncReason::Restored)
            }
            (false, _) => Err(ResyncReason::OtherHistory),
        })
    }

    fn lineage_key(&self) -> String {
        self.registry.layout().key(&Key::Lineage)
    }

    /// Applies changes until the watch is lost. Each change resets the pause before the next retry,
    /// because it shows that the store works again.
    async fn follow(&self, mut watch: Watch, pause: &mut Duration) -> ResyncReason {
        let key = self.lineage_key();
        loop {
            let changes = match watch.next().await {
                Ok(changes) => changes,
                Err(error) => return error.into(),
            };
            let lineage = changes.changes.iter().find(|change| *change.key == *key);
            let other = lineage.map(|change| self.check_lineage(change.value.as_deref()));
            if let Some(Err(reason)) = other {
                return reason;
            }
            *pause = FIRST_PAUSE;
            let now = self.shared.clock.now();
            self.shared.change(|state| state.apply(&changes, now));
        }
    }
}

/// Marks the mirror as shut down when the task ends for any reason, including a panic.
impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.close();
    }
}

fn report(reason: &ResyncReason, pause: Duration) {
    let error = reason as &dyn std::error::Error;
    tracing::warn!(
        error,
        ?pause,
        "cannot read changes of the store: reading the whole store again"
    );
}

/// Progress of a mirror for one machine; see
/// [`Mirror::watch_machine`](super::Mirror::watch_machine).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineProgress {
    /// Last revision that may have changed something for the machine.
    pub revision: Revision,
    /// Whether the mirror is current.
    pub is_current: bool,
}

/// Machines that applied changes may affect.
#[derive(Debug, Default)]
pub(super) struct AffectedMachines {
    machines: BTreeSet<MachineId>,
    all: bool,
}

impl AffectedMachines {
    pub(super) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub(super) fn add(&mut self, machine: &MachineId) {
        if !self.all && !self.machines.contains(machine) {
            self.machines.insert(machine.clone());
        }
    }

    pub(super) fn add_all(&mut self) {
        *self = Self::all();
    }

    fn contains(&self, machine: &MachineId) -> bool {
        self.all || self.machines.contains(machine)
    }
}

/// Watch channels of machines.
#[derive(Debug, Default)]
pub(super) struct MachineWatchers {
    machines: BTreeMap<MachineId, signal::Sender<MachineProgress>>,
}

impl MachineWatchers {
    /// Adds a receiver for a machine, starting at `now`.
    pub(super) fn add(
        &mut self,
        machine: &MachineId,
        now: MachineProgress,
    ) -> signal::Receiver<MachineProgress> {
        let sender = self.machines.entry(machine.clone());
        sender.or_insert_with(|| signal::Sender::new(now)).subscribe()
    }

    /// Notifies the watchers of the affected machines, or of all machines if the mirror has become
    /// current or has stopped being current. The cost depends on the number of watched machines
    /// (usually one), and not on the size of the cluster.
    pub(super) fn publish(&mut self, affected: &AffectedMachines, now: MachineProgress) {
        self.machines.retain(|machine, sender| {
            let update = |machine_progress: &mut MachineProgress| {
                let before = *machine_progress;
                machine_progress.is_current = now.is_current;
                if affected.contains(machine) {
                    machine_progress.revision = now.revision;
                }
                *machine_progress != before
            };
            sender.send_if_modified(update);
            sender.receiver_count() > 0
        });
    }

    /// Closes all channels.
    pub(super) fn end(&mut self) {
        self.machines.clear();
    }
}
