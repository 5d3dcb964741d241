//! Pure: no I/O, no clock. Which units keep a machine that is missing, because it may be back in a
//! moment, or may run them still.
//!
//! A unit that is held is shown to the planner as one that must not be placed elsewhere, as with
//! `Reschedule=never`. So whatever else is planned rests on the units where they really are, and is
//! sound without the ones that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    MachineId, OnPartition, Reason, Requirements, Reschedule, Snapshot, Timestamp, Unit,
};
use fleet_scheduler::{Action, Plan};
use fleet_store::{Difference, News};
use fleet_unitfile::UnitName;

use crate::limit::must_have_ended;

/// How long after its mirror has become current an engine waits for machines that are missing.
///
/// When a store was out of reach for longer than leases last, all machines have lost their presence
/// and come back one by one. The first one back must not be given the units of all others. So the
/// time is that of a machine which tries to join every ten seconds, and some to spare.
const GRACE: Duration = Duration::from_secs(15);

/// The units of missing machines, as of the last look.
#[derive(Debug)]
pub(crate) struct Missing {
    presence_ttl: Duration,
    /// The machines that are placed on and not present, and since when that is known: their leases
    /// ended before that.
    since: BTreeMap<MachineId, Timestamp>,
    held: BTreeMap<UnitName, Reason>,
    /// When it is over for one of those that are held.
    again: Option<Timestamp>,
    /// How many gaps the mirror had.
    gaps: u64,
}

/// What is known of the time at a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    /// A moment after the news were seen.
    pub(crate) now: Timestamp,
    /// For how long the mirror has been current.
    pub(crate) current_for: Duration,
    /// How often the mirror has become current.
    pub(crate) gaps: u64,
}

impl Missing {
    /// Nothing is missing; `presence_ttl` is how long machines are present without a sign of life.
    pub(crate) fn new(presence_ttl: Duration) -> Self {
        let (since, held) = (BTreeMap::new(), BTreeMap::new());
        Self { presence_ttl, since, held, again: None, gaps: 0 }
    }

    /// The news as the planner shall see them: with every unit staying where it is that must.
    pub(crate) fn hold(&mut self, news: &News, sight: Sight) -> News {
        let concerns_missing = self.notice(news, sight);
        if concerns_missing || self.again.is_some_and(|again| again <= sight.now) {
            let before = std::mem::take(&mut self.held);
            self.look(&news.snapshot, sight);
            let changed = |unit: &&UnitName| before.contains_key(*unit) != self.is_held(unit);
            let changed = before.keys().chain(self.held.keys()).filter(changed);
            return self.shown(news, changed.cloned().collect());
        }
        self.shown(news, BTreeSet::new())
    }

    /// When to look again without news, because the wait for a machine is over.
    pub(crate) fn again(&self) -> Option<Timestamp> {
        self.again
    }

    /// Says why units are held, and leaves those that may run still where they are, wanted or not:
    /// were it forgotten where they may run, they could be started elsewhere a moment later.
    pub(crate) fn explain(&self, plan: &mut Plan) {
        let may_run =
            |unit: &UnitName| matches!(self.held.get(unit), Some(Reason::MayStillRun { .. }));
        let removes = |action: &Action| matches!(action, Action::Remove { .. });
        plan.steps.retain(|step| !(removes(&step.action) && may_run(&step.unit)));
        for (unit, reason) in &self.held {
            if let Some(told) = plan.unplaced.get_mut(unit) {
                *told = Arc::new(reason.clone());
            }
        }
    }

    fn is_held(&self, unit: &UnitName) -> bool {
        self.held.contains_key(unit)
    }

    /// Notes which machines are missing, and returns whether anything of that may have changed.
    fn notice(&mut self, news: &News, sight: Sight) -> bool {
        let snapshot = &*news.snapshot;
        let gap = std::mem::replace(&mut self.gaps, sight.gaps) != sight.gaps;
        let Some(difference) = news.difference.as_ref().filter(|_| !gap) else {
            // A machine may have been back in between, and may have taken its units up again.
            let machines = snapshot.placements().map(|(_, placement)| &placement.machine);
            let missing = machines.filter(|machine| is_missing(snapshot, machine));
            self.since = missing.map(|machine| (machine.clone(), sight.now)).collect();
            return true;
        };
        let mut concerned = false;
        for machine in &difference.machines {
            concerned |= self.since.remove(machine).is_some();
            if is_missing(snapshot, machine) {
                self.since.insert(machine.clone(), sight.now);
                concerned = true;
            }
        }
        for unit in difference.placements.iter().chain(&difference.units) {
            concerned |= self.is_held(unit);
            let placement = snapshot.placement(unit.as_str());
            let machine = placement.map(|placement| &placement.machine);
            if let Some(machine) = machine.filter(|machine| is_missing(snapshot, machine)) {
                self.since.entry(machine.clone()).or_insert(sight.now);
                concerned = true;
            }
        }
        concerned
    }

    /// Finds out which units are held now, and until when.
    fn look(&mut self, snapshot: &Snapshot, sight: Sight) {
        self.again = None;
        let settled = sight.now.after(GRACE.saturating_sub(sight.current_for));
        let is_settled = sight.current_for >= GRACE;
        for (machine, since) in self.since.clone() {
            for (name, _) in snapshot.placements_on(&machine) {
                let unit = snapshot.unit(name.as_str());
                let stays = |unit: &Arc<Unit>| unit.requirements.reschedule == Reschedule::Never;
                let waits_anyway = unit.is_some_and(stays);
                let limit = unit.and_then(|unit| self.limit(unit));
                let over = limit.map(|limit| limit.map(|limit| since.after(limit)));
                let may_run = over.is_some_and(|over| over.is_none_or(|over| over > sight.now));
                let machine = machine.clone();
                let (reason, until) = match (limit, over) {
                    (Some(limit), Some(over)) if may_run => {
                        (Reason::MayStillRun { machine, limit }, over)
                    }
                    _ if is_settled || waits_anyway => continue,
                    _ => (Reason::MachineAwaited { machine }, Some(settled)),
                };
                self.held.insert(name.clone(), reason);
                self.again = self.again.into_iter().chain(until).min();
            }
        }
        self.since.retain(|machine, _| snapshot.placements_on(machine).next().is_some());
    }

    /// How long after its machine was lost a unit must have ended there, if it was told to stop:
    /// nothing if it was not; within, nothing if that can take for ever.
    fn limit(&self, unit: &Unit) -> Option<Option<Duration>> {
        let stops = unit.requirements.on_partition == OnPartition::Stop;
        stops.then(|| must_have_ended(unit, self.presence_ttl))
    }

    /// The news with all that is held, of which `changed` was not before, or was and is no more.
    fn shown(&self, news: &News, changed: BTreeSet<UnitName>) -> News {
        if self.held.is_empty() && changed.is_empty() {
            return news.clone();
        }
        let mut snapshot = news.snapshot.as_ref().clone();
        for unit in self.held.keys() {
            if let Some(unit) = news.snapshot.unit(unit.as_str()) {
                snapshot.put_unit(staying(unit));
            }
        }
        let with = |difference: &Difference| {
            let units = difference.units.union(&changed).cloned().collect();
            Difference { units, ..difference.clone() }
        };
        let difference = news.difference.as_ref().map(with);
        News { snapshot: Arc::new(snapshot), difference, ..*news }
    }
}

fn is_missing(snapshot: &Snapshot, machine: &MachineId) -> bool {
    snapshot.machine(machine.as_str()).is_none()
}

/// The unit as one that gets no other machine.
fn staying(unit: &Unit) -> Unit {
    let requirements = unit.requirements.as_ref().clone();
    let requirements = Requirements { reschedule: Reschedule::Never, ..requirements };
    Unit { requirements: Arc::new(requirements), ..unit.clone() }
}
