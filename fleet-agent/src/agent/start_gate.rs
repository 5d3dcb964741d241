//! Holds back units with `OnPartition=stop` until they may be started here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, TargetState, Timestamp, Unit,
};
use fleet_store::{Mirror, Progress};
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::checkpoint::Checkpoint;
use super::desired_state::is_fenced;
use super::exclusivity::{Blocked, Exclusivity, Observation, PresenceWindow};
use super::unit_errors::{OrderId, UnitError, UnitErrors};
use crate::Clock;

/// The exclusivity rule, with the units that it blocks.
pub(crate) struct StartGate {
    gate: Exclusivity,
    window: watch::Receiver<Option<PresenceWindow>>,
    progress: watch::Receiver<Progress>,
    errors: Arc<UnitErrors>,
    waiting: BTreeMap<UnitName, (Arc<Unit>, Blocked)>,
    looked: Revision,
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
    fn look(&self) -> Observation<'_> {
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
            gate: Exclusivity::new(machine.clone(), ttl),
            window,
            progress: mirror.subscribe(),
            errors,
            waiting: BTreeMap::new(),
            looked: Revision::ZERO,
        }
    }

    /// Collects the cluster state of a mirror snapshot at `now`.
    pub(crate) fn seen(
        &mut self,
        snapshot: &Arc<Snapshot>,
        mirror: &Mirror,
        now: Timestamp,
    ) -> StartView {
        // Changes of other machines matter only to blocked units.
        let waits = !self.waiting.is_empty();
        let changes = waits.then(|| mirror.delta_since(self.looked).changes).flatten();
        self.looked = snapshot.revision;
        self.progress.mark_unchanged();
        let window = *self.window.borrow_and_update();
        let machines = changes.map(|changes| changes.machines);
        StartView { snapshot: snapshot.clone(), machines, gaps: mirror.resyncs(), now, window }
    }

    /// Limits units that must not be started yet to being loaded. Returns when to look again
    /// without a change.
    pub(crate) fn hold_up(
        &mut self,
        desired: &mut BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        memory: &Checkpoint,
        seen: &StartView,
    ) -> Option<Timestamp> {
        self.gate.notice(seen.look());
        let before = std::mem::take(&mut self.waiting);
        for (name, wanted) in desired.iter_mut().filter(|(_, wanted)| is_fenced(&wanted.unit)) {
            let started =
                known.get(name).is_some_and(|known| known.requested == TargetState::Launched);
            if wanted.unit.desired != TargetState::Launched || started {
                continue;
            }
            let shut = self.gate.shut(&wanted.unit, seen.look());
            let Some(shut) = shut.or_else(|| (!memory.is_noted(name)).then_some(Blocked::CutOff))
            else {
                continue;
            };
            self.announce(wanted, &shut);
            self.waiting.insert(name.clone(), (wanted.unit.clone(), shut));
            let held = Unit { desired: TargetState::Loaded, ..wanted.unit.as_ref().clone() };
            wanted.unit = Arc::new(held);
        }
        let waiting = &self.waiting;
        // No longer blocked, perhaps because a unit of the same name without a fence has replaced
        // it.
        let over = before.keys().filter(|unit| !waiting.contains_key(*unit));
        over.for_each(|unit| self.errors.clear_waiting(unit));
        self.gate.retain(|unit| waiting.contains_key(unit));
        waiting.values().filter_map(|(_, shut)| shut.until()).min()
    }

    /// Returns when something has changed for a blocked unit; never returns if none is blocked.
    pub(crate) async fn moved(&mut self, mirror: &Mirror, clock: &dyn Clock) {
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
            let seen = self.seen(&snapshot, mirror, clock.now());
            self.gate.notice(seen.look());
            let gate = &mut self.gate;
            let mut waiting = self.waiting.values();
            if waiting.any(|(unit, shut)| gate.shut(unit, seen.look()).as_ref() != Some(shut)) {
                return;
            }
        }
    }

    /// Reports why a unit is not started that otherwise would be.
    fn announce(&self, wanted: &DesiredUnit, shut: &Blocked) {
        let unit = &wanted.unit.name;
        match shut {
            Blocked::Elsewhere(_) | Blocked::MayRun(..) => {
                self.errors.set(unit, UnitError::waiting(OrderId::of(wanted), shut.to_string()));
            }
            Blocked::CutOff | Blocked::NotPublished => self.errors.clear_waiting(unit),
        }
    }
}
