//! The last desired state of an agent's machine, kept in memory and on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, Generation, KnownUnit, MachineId, TargetState, Timestamp};
use fleet_store::registry::Lineage;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::desired_state::{DesiredState, is_fenced};
use super::state::AgentState;

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

    /// Returns the last desired units that are not fenced.
    pub(crate) fn unfenced_units(&self) -> BTreeMap<UnitName, DesiredUnit> {
        let units = self.persisted.units.iter().filter(|(_, wanted)| !is_fenced(&wanted.unit));
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
