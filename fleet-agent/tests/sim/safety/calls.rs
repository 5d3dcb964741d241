//! Calls to one machine's service manager: never without knowledge (I-8), for an outdated order
//! (I-2), without need (I-9, I-10), or in the wrong order (I-14).

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent::testing::Call;
use fleet_core::{Epoch, Generation, KnownUnit, Revision, Snapshot, TargetState, Unit};
use fleet_scheduler::share;
use fleet_unitfile::{UnitHash, UnitName};

use super::jobs::{Start, Starts};
use crate::history::History;
use crate::host::{Event, Host};
use crate::units::STOPPED;

/// State of the checks of one machine's calls.
#[derive(Default)]
pub(super) struct Calls {
    checked: usize,
    /// Revision that the agent had certainly seen at the last check. Its later decisions are based
    /// on this revision or a later one.
    seen: Revision,
    /// Highest epoch that the machine was ever given, across reboots.
    highest: BTreeMap<UnitName, Epoch>,
    /// Revision on which each load was based, or an earlier one.
    loaded_from: BTreeMap<UnitName, Revision>,
    /// Files that were loaded without a reload since.
    unread: BTreeSet<UnitName>,
}

impl Calls {
    pub(super) fn note_seen(&mut self, seen: Option<Revision>) {
        self.seen = seen.unwrap_or_default();
    }

    pub(super) fn rebooted(&mut self) {
        self.loaded_from.clear();
        self.unread.clear();
    }

    /// Returns the violations since the last check.
    pub(super) fn check(
        &mut self,
        host: &Host,
        history: &History,
        starts: &mut Starts,
    ) -> Vec<String> {
        let events = host.events().split_off(self.checked);
        self.checked += events.len();
        let mut violations = Vec::new();
        for event in events {
            let judge = Judge { host, history, event: &event, seen: self.seen };
            let mut found = self.judge(&judge);
            found.extend(judge.judge_start(starts));
            let at = (host.id(), event.revision);
            let describe = |text| format!("{}, revision {}: {text}: {event:?}", at.0, at.1);
            violations.extend(found.into_iter().map(describe));
        }
        violations
    }

    fn judge(&mut self, judge: &Judge<'_>) -> Vec<&'static str> {
        let event = judge.event;
        let ends = matches!(event.call, Call::Stop(_) | Call::Unload(_) | Call::Restart(..));
        let mut found = Vec::new();
        // Fenced units accept being stopped in a partition.
        let fenced = |unit: &UnitName| STOPPED.contains(&unit.as_str());
        let may_stop = matches!(&event.call, Call::Stop(unit) if fenced(unit));
        if ends && event.away && !may_stop {
            found.push("I-8: ended while the store is away");
        }
        if event.twice {
            found.push("I-1: started while it runs on another machine");
        }
        match &event.call {
            Call::Load { unit, hash, epoch } => {
                found.extend(self.on_load(judge, unit, *hash, *epoch));
            }
            Call::Reload if !event.refused => self.unread.clear(),
            Call::Reload => {}
            Call::Start(unit, _) => {
                found.extend(self.on_start(judge, unit));
                let launched = |known: KnownUnit| known.requested == TargetState::Launched;
                if event.known.is_some_and(launched) {
                    found.push("I-9: started once more");
                }
            }
            Call::Restart(unit, _) => {
                found.extend(self.on_start(judge, unit));
                found.extend(self.on_end(judge, unit));
            }
            Call::Stop(_) if may_stop => {}
            Call::ReloadUnit(_) => found.push("no desired state asks for a unit's reload"),
            Call::Stop(unit) => found.extend(self.on_end(judge, unit)),
            Call::Unload(unit) => {
                found.extend(self.on_end(judge, unit));
                self.unread.remove(unit);
            }
        }
        found
    }

    fn on_load(
        &mut self,
        judge: &Judge<'_>,
        unit: &UnitName,
        hash: UnitHash,
        epoch: Epoch,
    ) -> Vec<&'static str> {
        let mut found = Vec::new();
        let highest = self.highest.entry(unit.clone()).or_default();
        if epoch != Epoch::ZERO && epoch < *highest {
            found.push("I-2: loaded for an older placement");
        }
        *highest = epoch.max(*highest);
        let ordered = |order: Order| order.hash == hash && order.epoch == epoch;
        if !judge.was_true(unit, judge.seen, |order| order.is_some_and(ordered)) {
            found.push("I-2: loaded without an order");
        }
        if !judge.event.refused {
            self.unread.insert(unit.clone());
            self.loaded_from.insert(unit.clone(), judge.seen);
        }
        found
    }

    fn on_start(&self, judge: &Judge<'_>, unit: &UnitName) -> Vec<&'static str> {
        let mut found = Vec::new();
        if self.unread.contains(unit) {
            found.push("I-14: started before its file was read");
        }
        let seen = judge.history.at(judge.seen);
        let known = judge.event.known.map_or(Epoch::ZERO, |known| known.epoch);
        let newer = |placement: &fleet_core::Placement| placement.epoch > known;
        if known != Epoch::ZERO && seen.placement(unit.as_str()).is_some_and(newer) {
            found.push("I-2: started for an older placement than was seen");
        }
        found
    }

    /// A unit may be ended only if the store requested that at some time since its load.
    fn on_end(&self, judge: &Judge<'_>, unit: &UnitName) -> Option<&'static str> {
        let known = judge.event.known?;
        let since = self.loaded_from.get(unit).copied().unwrap_or_default();
        let call = &judge.event.call;
        let asked = judge.was_true(unit, since, |order| match (call, order) {
            (Call::Unload(_), order) => order.is_none_or(|order| order.hash != known.hash),
            (Call::Stop(_), Some(order)) => {
                // The start of an attempt that an earlier daemon has recorded may take effect late.
                let is_lost = order.is_job && known.generation < order.generation;
                order.desired == TargetState::Loaded || is_lost
            }
            (Call::Restart(_, generation), Some(order)) => {
                *generation > known.generation && order.generation >= *generation
            }
            _ => false,
        });
        (!asked).then_some("I-9: ended without a need")
    }
}

/// Desired state of a unit on a machine.
#[derive(Clone, Copy)]
struct Order {
    hash: UnitHash,
    epoch: Epoch,
    desired: TargetState,
    generation: Generation,
    is_job: bool,
}

/// One event, with the context of its checks.
struct Judge<'a> {
    host: &'a Host,
    history: &'a History,
    event: &'a Event,
    seen: Revision,
}

impl Judge<'_> {
    fn judge_start(&self, starts: &mut Starts) -> Option<&'static str> {
        let (Call::Start(unit, generation) | Call::Restart(unit, generation)) = &self.event.call
        else {
            return None;
        };
        let (machine, generation) = (self.host.id(), *generation);
        let start = Start { machine, unit, generation, event: self.event, seen: self.seen };
        starts.check(&start, self.history)
    }

    /// Whether a condition on the desired state of a unit on this machine held at any time between
    /// `since` and the event. True if that is unknown.
    fn was_true(
        &self,
        unit: &UnitName,
        since: Revision,
        holds: impl Fn(Option<Order>) -> bool,
    ) -> bool {
        let moments = self.history.between(since, self.event.revision);
        let mut told = moments.filter_map(|snapshot| self.order(snapshot, unit));
        told.any(holds)
    }

    /// Returns the desired state of the unit here, if any; the outer `None` means that it is
    /// unknown.
    fn order(&self, snapshot: &Snapshot, unit: &UnitName) -> Option<Option<Order>> {
        snapshot.machine(self.host.id().as_str())?;
        let share = share(snapshot, self.host.id());
        if share.undecided.contains(unit) {
            return None;
        }
        Some(share.units.get(unit).map(|(unit, epoch)| {
            let (hash, epoch) = (unit.hash(), *epoch);
            let (desired, generation) = match unit.is_job() {
                true => self.job_order(snapshot, unit),
                false => (unit.desired, unit.generation),
            };
            Order { hash, epoch, desired, generation, is_job: unit.is_job() }
        }))
    }

    /// Returns the desired state and the generation of a job, which follow from its record: only
    /// the current attempt is started.
    fn job_order(&self, snapshot: &Snapshot, unit: &Unit) -> (TargetState, Generation) {
        let record = snapshot.job(unit.name.as_str());
        let attempt = record.and_then(|record| record.state.current_attempt());
        match attempt.filter(|(machine, _)| *machine == self.host.id()) {
            Some((_, attempt)) => (TargetState::Launched, attempt.generation()),
            None => (TargetState::Loaded, Generation::ZERO),
        }
    }
}
