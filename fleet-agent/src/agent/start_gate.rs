//! Holds back units with `OnPartition=stop` until they may be started here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, TargetState, Timestamp, Unit,
};
use fleet_store::Mirror;
use fleet_store::mirror::Progress;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::checkpoint::Checkpoint;
use super::desired_state::is_fenced;
use super::exclusivity::{BlockReason, Exclusivity, Observation, PresenceWindow};
use super::unit_errors::{OrderId, UnitError, UnitErrors};
use crate::Clock;

/// The exclusivity rule, with the units that it blocks.
pub(crate) struct StartGate {
    exclusivity: Exclusivity,
    window: watch::Receiver<Option<PresenceWindow>>,
    progress: watch::Receiver<Progress>,
    errors: Arc<UnitErrors>,
    waiting: BTreeMap<UnitName, (Arc<Unit>, BlockReason)>,
    last_revision: Revision,
}

/// Cluster state for one evaluation of the rule.
pub(crate) struct StartView {
    snapshot: Arc<Snapshot>,
    machines: Option<BTreeSet<MachineId>>,
    gaps: u64,
    now: Timestamp,
    window: Option<PresenceWindow>,
}

impl StartView {
    fn observation(&self) -> Observation<'_> {
        Observation {
            snapshot: &self.snapshot,
            machines: self.machines.as_ref(),
            gaps: self.gaps,
            now: self.now,
            window: self.window,
        }
    }
}

impl StartGate {
    pub(crate) fn new(
        machine: &MachineId,
        ttl: Duration,
        mirror: &Mirror,
        window: watch::Receiver<Option<PresenceWindow>>,
        errors: Arc<UnitErrors>,
    ) -> Self {
        Self {
            exclusivity: Exclusivity::new(machine.clone(), ttl),
            window,
            progress: mirror.subscribe(),
            errors,
            waiting: BTreeMap::new(),
            last_revision: Revision::ZERO,
        }
    }

    /// Collects the cluster state of a mirror snapshot at `now`.
    pub(crate) fn view(
        &mut self,
        snapshot: &Arc<Snapshot>,
        mirror: &Mirror,
        now: Timestamp,
    ) -> StartView {
        // Changes of other machines matter only to blocked units.
        let waits = !self.waiting.is_empty();
        let changes = waits.then(|| mirror.delta_since(self.last_revision).changes).flatten();
        self.last_revision = snapshot.revision;
        self.progress.mark_unchanged();
        let window = *self.window.borrow_and_update();
        let machines = changes.map(|changes| changes.machines);
        StartView { snapshot: snapshot.clone(), machines, gaps: mirror.resyncs(), now, window }
    }

    /// Keeps units with `OnPartition=stop` from being started too early: changes their state in
    /// `desired` from launched to loaded. Returns the earliest time at which the reason for this
    /// ends by itself, so that the caller has to compare again. Returns `None` if there is no such
    /// time.
    pub(crate) fn hold_back(
        &mut self,
        desired: &mut BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        checkpoint: &Checkpoint,
        view: &StartView,
    ) -> Option<Timestamp> {
        self.exclusivity.record_changes(view.observation());
        let before = std::mem::take(&mut self.waiting);
        for (name, wanted) in desired.iter_mut().filter(|(_, wanted)| is_fenced(&wanted.unit)) {
            let started =
                known.get(name).is_some_and(|known| known.requested == TargetState::Launched);
            if wanted.unit.desired != TargetState::Launched || started {
                continue;
            }
            let blocked = self.exclusivity.blocked_by(&wanted.unit, view.observation());
            let Some(blocked) =
                blocked.or_else(|| (!checkpoint.is_persisted(name)).then_some(BlockReason::CutOff))
            else {
                continue;
            };
            self.report(wanted, &blocked);
            self.waiting.insert(name.clone(), (wanted.unit.clone(), blocked));
            let held = Unit { desired: TargetState::Loaded, ..wanted.unit.as_ref().clone() };
            wanted.unit = Arc::new(held);
        }
        let waiting = &self.waiting;
        // No longer blocked, perhaps because a unit of the same name without a fence has replaced
        // it.
        let over = before.keys().filter(|unit| !waiting.contains_key(*unit));
        over.for_each(|unit| self.errors.clear_waiting(unit));
        self.exclusivity.retain(|unit| waiting.contains_key(unit));
        waiting.values().filter_map(|(_, blocked)| blocked.until()).min()
    }

    /// Waits until one of the blocked units is no longer blocked, or is blocked for another reason
    /// than before. Waits forever if no unit is blocked.
    pub(crate) async fn changed(&mut self, mirror: &Mirror, clock: &dyn Clock) {
        loop {
            if self.waiting.is_empty() {
                return std::future::pending().await;
            }
            tokio::select! {
                biased;
                changed = self.window.changed() => if changed.is_err() { return },
                changed = self.progress.changed() => if changed.is_err() { return },
            }
            let Some(snapshot) = mirror.current() else { continue };
            let view = self.view(&snapshot, mirror, clock.now());
            self.exclusivity.record_changes(view.observation());
            let exclusivity = &mut self.exclusivity;
            let mut waiting = self.waiting.values();
            if waiting.any(|(unit, blocked)| {
                exclusivity.blocked_by(unit, view.observation()).as_ref() != Some(blocked)
            }) {
                return;
            }
        }
    }

    /// Reports the reason why a unit must wait, if another machine is the reason. For any other
    /// reason, clears an earlier report.
    fn report(&self, wanted: &DesiredUnit, blocked: &BlockReason) {
        let unit = &wanted.unit.name;
        match blocked {
            BlockReason::Elsewhere(_) | BlockReason::MayRun(..) => {
                self.errors.set(unit, UnitError::waiting(OrderId::of(wanted), blocked.to_string()));
            }
            BlockReason::CutOff | BlockReason::NotPublished => self.errors.clear_waiting(unit),
        }
    }
}
