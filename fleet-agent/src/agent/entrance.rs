//! Holds up units with `OnPartition=stop` until they may be started here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, TargetState, Timestamp, Unit,
};
use fleet_store::{Mirror, Progress};
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::assignment::is_fenced;
use super::gate::{Gate, Look, Shut, Standing};
use super::memory::Memory;
use super::problems::{Order, Problem, Problems};
use crate::Clock;

/// The gate, and who waits before it.
pub(crate) struct Entrance {
    gate: Gate,
    standing: watch::Receiver<Option<Standing>>,
    progress: watch::Receiver<Progress>,
    problems: Arc<Problems>,
    waiting: BTreeMap<UnitName, (Arc<Unit>, Shut)>,
    looked: Revision,
}

/// What is seen when the gate is asked.
pub(crate) struct Seen {
    snapshot: Arc<Snapshot>,
    machines: Option<BTreeSet<MachineId>>,
    gaps: u64,
    now: Timestamp,
    standing: Option<Standing>,
}

impl Seen {
    fn look(&self) -> Look<'_> {
        Look {
            snapshot: &self.snapshot,
            machines: self.machines.as_ref(),
            gaps: self.gaps,
            now: self.now,
            standing: self.standing,
        }
    }
}

impl Entrance {
    pub(crate) fn new(
        machine: &MachineId,
        ttl: Duration,
        mirror: &Mirror,
        standing: watch::Receiver<Option<Standing>>,
        problems: Arc<Problems>,
    ) -> Self {
        Self {
            gate: Gate::new(machine.clone(), ttl),
            standing,
            progress: mirror.subscribe(),
            problems,
            waiting: BTreeMap::new(),
            looked: Revision::ZERO,
        }
    }

    /// What is to be seen at `now` of a snapshot of the mirror's.
    pub(crate) fn seen(
        &mut self,
        snapshot: &Arc<Snapshot>,
        mirror: &Mirror,
        now: Timestamp,
    ) -> Seen {
        // Only of those who wait it matters what became of the machines where they may run.
        let waits = !self.waiting.is_empty();
        let difference = waits.then(|| mirror.news_since(self.looked).difference).flatten();
        self.looked = snapshot.revision;
        self.progress.mark_unchanged();
        let standing = *self.standing.borrow_and_update();
        let machines = difference.map(|difference| difference.machines);
        Seen { snapshot: snapshot.clone(), machines, gaps: mirror.gaps(), now, standing }
    }

    /// Lets units that must not be started be wanted no further than loaded, for now. Returns when
    /// to look again by itself.
    pub(crate) fn hold_up(
        &mut self,
        desired: &mut BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        memory: &Memory,
        seen: &Seen,
    ) -> Option<Timestamp> {
        self.gate.notice(seen.look());
        let before = std::mem::take(&mut self.waiting);
        for (name, wanted) in desired.iter_mut().filter(|(_, wanted)| is_fenced(&wanted.unit)) {
            let started = known.get(name).is_some_and(|known| known.asked == TargetState::Launched);
            if wanted.unit.desired != TargetState::Launched || started {
                continue;
            }
            let shut = self.gate.shut(&wanted.unit, seen.look());
            let Some(shut) = shut.or_else(|| (!memory.is_noted(name)).then_some(Shut::CutOff))
            else {
                continue;
            };
            self.announce(wanted, &shut);
            self.waiting.insert(name.clone(), (wanted.unit.clone(), shut));
            let held = Unit { desired: TargetState::Loaded, ..wanted.unit.as_ref().clone() };
            wanted.unit = Arc::new(held);
        }
        let waiting = &self.waiting;
        // Whoever no longer waits: it may be another unit by now that has no fence at all.
        let over = before.keys().filter(|unit| !waiting.contains_key(*unit));
        over.for_each(|unit| self.problems.clear_waiting(unit));
        self.gate.retain(|unit| waiting.contains_key(unit));
        waiting.values().filter_map(|(_, shut)| shut.until()).min()
    }

    /// Returns when something has changed for one of those who wait; never while nobody waits.
    pub(crate) async fn moved(&mut self, mirror: &Mirror, clock: &dyn Clock) {
        loop {
            if self.waiting.is_empty() {
                return std::future::pending().await;
            }
            tokio::select! {
                biased;
                changed = self.standing.changed() => if changed.is_err() { return },
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

    /// Shows the cluster why a unit is not started that otherwise would be.
    fn announce(&self, wanted: &DesiredUnit, shut: &Shut) {
        let unit = &wanted.unit.name;
        match shut {
            Shut::Elsewhere(_) | Shut::MayRun(..) => {
                self.problems.set(unit, Problem::waiting(Order::of(wanted), shut.to_string()));
            }
            Shut::CutOff | Shut::NotPublished => self.problems.clear_waiting(unit),
        }
    }
}
