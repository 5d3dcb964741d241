//! One loaded timer, and the queue of the next elapses of all.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use fleet_core::graph::systemd::{
    DualTimestamp, NextElapse, RandomizedDelay, Timer, TimerContext, TimerMachine, TimerPhase,
    TriggeredUnitState,
};
use fleet_core::unit::LoadState;
use fleet_core::{SystemdState, Timestamp};
use fleet_unitfile::{UnitHash, UnitName};

use super::super::managed_units::{PublishedStatus, known};
use crate::ManagedUnit;
use crate::native::log::Log;
use crate::native::state::timer_record::TimerRecord;
use crate::native::state::unit_directory::{RequestedState, RunRecord, UnitDirectory};

/// A loaded timer.
pub(super) struct TimerEntry {
    pub(super) machine: TimerMachine,
    pub(super) hash: UnitHash,
    pub(super) requested: RequestedState,
    /// Latest observed state of the timer's unit.
    pub(super) unit_state: TriggeredUnitState,
    /// ID of the elapse that is starting the unit.
    pub(super) starting: Option<u64>,
    directory: UnitDirectory,
    /// Log without lines, which ends the journals that follow it when the timer is unloaded.
    log: Arc<Log>,
    /// Requested state and timer as they were last stored.
    stored: Option<(RequestedState, TimerRecord)>,
}

impl TimerEntry {
    /// Creates the entry of a timer.
    pub(super) fn new(
        machine: TimerMachine,
        hash: UnitHash,
        requested: RequestedState,
        directory: UnitDirectory,
        log: Arc<Log>,
    ) -> Self {
        let (unit_state, starting, stored) = (TriggeredUnitState::default(), None, None);
        Self { machine, hash, requested, unit_state, starting, directory, log, stored }
    }

    /// Sets what an earlier daemon has stored.
    pub(super) fn with_record(mut self, run: Option<&RunRecord>) -> Self {
        self.stored = run.and_then(|run| Some((run.requested, run.timer.as_deref()?.clone())));
        self
    }

    /// Continues with the state that an earlier daemon has stored. If a stop was requested but not
    /// applied, applies it now. Returns whether the caller has to start the timer.
    pub(super) fn resume(&mut self, was_shutting_down: bool, cx: TimerContext<'_>) -> bool {
        let Some((applied, stored)) = &self.stored else {
            return self.requested.should_run();
        };
        // A shutdown cancels the pending start of the unit.
        self.starting = stored.starting.filter(|_| !was_shutting_down);
        let memory = stored.state();
        self.unit_state.started = memory.last.unit_active;
        self.unit_state.stopped = memory.last.unit_inactive;
        let key = |it: &RequestedState| (it.launched, it.triggered, it.generation);
        let is_done = key(applied) == key(&self.requested);
        let timer = Arc::new(self.machine.timer().clone());
        self.machine = TimerMachine::restore(timer, memory, cx);
        if !self.requested.should_run() || !is_done {
            self.machine.on_stop();
        }
        self.requested.should_run() && !is_done
    }

    /// Records the state of the unit, with the time of each change.
    pub(super) fn observe_unit(&mut self, active: bool, now: Timestamp) {
        match (self.unit_state.active, active) {
            (false, true) => self.unit_state.started = Some(now),
            (true, false) => self.unit_state.stopped = Some(now),
            _ => {}
        }
        self.unit_state.active = active;
    }

    /// Stores the state if it has changed.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let now = (self.requested, TimerRecord::new(self.machine.state(), self.starting));
        if self.stored.as_ref() == Some(&now) {
            return Ok(());
        }
        let (requested, timer) = (now.0, Some(Box::new(now.1.clone())));
        self.directory.write_run(&RunRecord { requested, timer, ..RunRecord::default() })?;
        self.stored = Some(now);
        Ok(())
    }

    /// Returns the status to publish.
    pub(super) fn status(&self, unit: &UnitName) -> PublishedStatus {
        let phase = self.machine.state().phase;
        let (active, sub) = phase.words();
        let result = if phase == TimerPhase::Failed { "resources" } else { "success" };
        let state = SystemdState {
            result: Some(result.to_owned()),
            ..SystemdState::new(LoadState::Loaded, active, sub)
        };
        PublishedStatus {
            unit: ManagedUnit::new(unit.clone(), known(self.hash, self.requested), state),
            requested: self.requested,
            log: Arc::clone(&self.log),
            text: None,
        }
    }
}

/// Returns a definition without triggers, which never elapses. It replaces the definition of a
/// timer whose unit file can no longer be run.
pub(super) fn stop_only_definition(unit: &UnitName) -> Timer {
    Timer {
        unit: unit.clone(),
        triggers: Vec::new(),
        delay: RandomizedDelay::Random(std::time::Duration::ZERO),
        persistent: false,
        remain_after_elapse: false,
        conditions: Vec::new(),
    }
}

/// Next elapse of all timers, by both clocks.
#[derive(Debug, Default)]
pub(super) struct TimerQueue {
    clock: BTreeSet<(Timestamp, UnitName)>,
    wall: BTreeSet<(Timestamp, UnitName)>,
}

impl TimerQueue {
    /// Moves a timer in the queue.
    pub(super) fn change(&mut self, timer: &UnitName, before: NextElapse, after: NextElapse) {
        let change = |set: &mut BTreeSet<_>, before: Option<_>, after: Option<_>| {
            before.map(|at| set.remove(&(at, timer.clone())));
            after.map(|at| set.insert((at, timer.clone())));
        };
        change(&mut self.clock, before.clock, after.clock);
        change(&mut self.wall, before.wall, after.wall);
    }

    /// Returns the first elapse by each clock.
    pub(super) fn first(&self) -> NextElapse {
        let first = |set: &BTreeSet<(Timestamp, UnitName)>| set.first().map(|(at, _)| *at);
        NextElapse { clock: first(&self.clock), wall: first(&self.wall) }
    }

    /// Returns a timer that is due.
    pub(super) fn due(&self, now: DualTimestamp) -> Option<UnitName> {
        let by_clock = self.clock.first().filter(|(at, _)| *at <= now.clock);
        let by_wall = self.wall.first().filter(|(at, _)| *at <= now.wall);
        by_clock.or(by_wall).map(|(_, timer)| timer.clone())
    }

    /// Returns all timers with a wall-clock time.
    pub(super) fn by_wall(&self) -> Vec<UnitName> {
        self.wall.iter().map(|(_, timer)| timer.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_elapse_of_each_clock_comes_first() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        let due = |clock: Option<u64>, wall: Option<u64>| NextElapse {
            clock: clock.and_then(at),
            wall: wall.and_then(at),
        };
        let name = |text: &str| text.parse::<UnitName>().expect("it is a name");
        let (a, b) = (name("a.timer"), name("b.timer"));
        let mut queue = TimerQueue::default();
        queue.change(&a, NextElapse::default(), due(Some(5), Some(100)));
        queue.change(&b, NextElapse::default(), due(Some(3), None));
        assert_eq!(queue.first(), due(Some(3), Some(100)));
        let now = |clock, wall| DualTimestamp {
            clock: Timestamp::from_millis(clock),
            wall: Timestamp::from_millis(wall),
        };
        assert_eq!(queue.due(now(2, 99)), None);
        assert_eq!(queue.due(now(3, 99)), Some(b.clone()));
        assert_eq!(queue.due(now(2, 100)), Some(a.clone()));
        assert_eq!(queue.by_wall(), vec![a.clone()]);
        queue.change(&b, due(Some(3), None), NextElapse::default());
        queue.change(&a, due(Some(5), Some(100)), due(None, Some(90)));
        assert_eq!(queue.first(), due(None, Some(90)));
    }
}
