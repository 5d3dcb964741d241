//! The timers of a supervisor: loaded units that start another unit when they elapse.
//!
//! ```text
//! event loop ── requests, changed units, alarms ──> Timers ── TimerMachine  next elapse (pure)
//!                                                     │ └──── TimerQueue    their order (pure)
//!                                                     └────── CalendarAlarm wall-clock times
//! ```
//!
//! A timer starts its unit by a request, as a frontend does, so that the start is stored and runs
//! after earlier requests for the unit. The event loop polls these requests beside its commands.

mod entry;
mod start;
mod wall_clock;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{
    DualTimestamp, NextElapse, Timer, TimerContext, TimerMachine, TimerPhase,
};
use fleet_unitfile::{UnitHash, UnitName};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::command::CallResult;
use super::managed_units::Statuses;
use super::requests::{Requests, UnitRequest};
use crate::native::state::manager_context::{ManagerContext, STAMPS, STARTUP};
use crate::native::state::timer_record::{PersistentStamps, startup};
use crate::native::state::unit_directory::{RequestedState, StoredUnit};
use crate::{ServiceError, UnitDetails, wall_time};
use entry::{TimerEntry, TimerQueue, stop_only_definition};
use wall_clock::{AlarmEvent, CalendarAlarm, ZoneCache};

/// Result of starting the unit of a timer: the timer, the ID of the elapse, and whether the unit
/// was loaded.
type StartResult = (UnitName, u64, bool);

/// Event that the timers wait for.
pub(super) enum TimerEvent {
    Alarm(io::Result<AlarmEvent>),
    Started(StartResult),
}

/// All loaded timers.
pub(super) struct Timers {
    context: Arc<ManagerContext>,
    requests: Arc<Requests>,
    statuses: Statuses,
    zones: ZoneCache,
    stamps: PersistentStamps,
    /// Start time of the first daemon of this boot.
    startup: Timestamp,
    entries: BTreeMap<UnitName, TimerEntry>,
    /// Timers that start each unit.
    by_unit: BTreeMap<UnitName, BTreeSet<UnitName>>,
    /// Timers whose unit has changed since the last check.
    unchecked: BTreeSet<UnitName>,
    queue: TimerQueue,
    calendar: CalendarAlarm,
    /// Starts in progress.
    starts: FuturesUnordered<BoxFuture<'static, StartResult>>,
}

impl Timers {
    pub(super) fn new(
        context: &Arc<ManagerContext>,
        requests: &Arc<Requests>,
        statuses: &Statuses,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            requests: Arc::clone(requests),
            statuses: statuses.clone(),
            zones: ZoneCache::new(),
            stamps: PersistentStamps::new(context.state_file(STAMPS)),
            startup: context.now(),
            entries: BTreeMap::new(),
            by_unit: BTreeMap::new(),
            unchecked: BTreeSet::new(),
            queue: TimerQueue::default(),
            calendar: CalendarAlarm::default(),
            starts: FuturesUnordered::new(),
        }
    }

    /// Prepares the files of timers, and reads when the first daemon of this boot started.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        self.stamps.prepare()?;
        self.startup = startup(&self.context.runtime_file(STARTUP), self.context.now())?;
        Ok(())
    }

    /// Adds a timer that an earlier daemon has stored. If its file can no longer be run, there is
    /// no definition, and the timer never elapses.
    pub(super) fn recover(
        &mut self,
        unit: &UnitName,
        hash: UnitHash,
        definition: Option<&Timer>,
        (_, requested, run): &StoredUnit,
    ) -> io::Result<()> {
        let timer = definition.cloned().unwrap_or_else(|| stop_only_definition(unit));
        let entry = self.entry(unit, hash, *requested, timer)?.with_record(run.as_ref());
        self.insert(unit, entry);
        Ok(())
    }

    /// Continues with the stored states of all recovered timers. Their units are recovered.
    pub(super) fn resume(&mut self, was_shutting_down: bool) {
        let timers: Vec<UnitName> = self.entries.keys().cloned().collect();
        for unit in &timers {
            let starts = self.change(unit, |entry, cx| entry.resume(was_shutting_down, cx));
            if starts == Some(true) {
                self.start_again(unit);
            }
            // An elapse right before the daemon ended may not have reached the unit.
            self.start_unit(unit);
            // The unit may have changed while no daemon ran.
            self.check_unit(unit);
        }
    }

    /// Returns whether a timer is loaded.
    pub(super) fn is_loaded(&self, unit: &UnitName) -> bool {
        self.entries.contains_key(unit)
    }

    /// Adds a timer, or replaces the file of a timer that is loaded already.
    pub(super) fn load(
        &mut self,
        unit: &UnitName,
        hash: UnitHash,
        requested: RequestedState,
        timer: &Timer,
    ) -> CallResult {
        if !self.is_loaded(unit) {
            let entry = self.entry(unit, hash, requested, timer.clone()).map_err(|source| {
                ServiceError::Io { action: format!("start to supervise {unit}"), source }
            })?;
            self.insert(unit, entry);
            self.change(unit, |_, _| ());
            return Ok(());
        }
        self.zones.load(timer);
        self.remove_from_index(unit);
        let timer = Arc::new(timer.clone());
        self.change(unit, |entry, cx| {
            (entry.hash, entry.requested) = (hash, requested);
            entry.machine.replace(timer, cx);
        });
        self.add_to_index(unit);
        self.check_unit(unit);
        Ok(())
    }

    /// Sets the requested state of a timer whose file has not changed.
    pub(super) fn set_requested(&mut self, unit: &UnitName, requested: RequestedState) {
        self.change(unit, |entry, _| entry.requested = requested);
    }

    /// Returns an error if the unit of a timer is not loaded.
    pub(super) fn check_start(&self, unit: &UnitName) -> CallResult {
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get(unit).ok_or_else(not_loaded)?;
        let started = &entry.machine.timer().unit;
        match self.is_active(started) {
            Some(_) => Ok(()),
            None => Err(ServiceError::NothingToTrigger {
                unit: unit.clone(),
                missing: started.to_string(),
            }),
        }
    }

    /// Carries out a request, and sets the requested state after it.
    pub(super) fn carry_out(
        &mut self,
        unit: &UnitName,
        request: UnitRequest,
        requested: RequestedState,
    ) -> CallResult {
        let stops = matches!(request, UnitRequest::Stop | UnitRequest::Unload);
        if !stops {
            self.context.shutdown.refuse_start(unit)?;
        }
        if let Some(entry) = self.entries.get_mut(unit) {
            entry.requested = requested;
        }
        if stops {
            self.change(unit, |entry, _| entry.machine.on_stop());
            return Ok(());
        }
        if matches!(request, UnitRequest::Restart(_))
            && let Some(entry) = self.entries.get_mut(unit)
        {
            // Stored together with the start, since the next daemon would take a stop for the final
            // state.
            let before = entry.machine.next_elapse();
            entry.machine.on_stop();
            self.queue.change(unit, before, entry.machine.next_elapse());
        }
        self.start_timer(unit)
    }

    /// Stops all timers, as part of a shutdown.
    pub(super) fn stop_all(&mut self) {
        let timers: Vec<UnitName> = self.entries.keys().cloned().collect();
        for unit in &timers {
            self.change(unit, |entry, _| {
                entry.requested = entry.requested.stopped();
                entry.machine.on_stop();
            });
        }
    }

    /// Removes a timer after its stored state was removed. Returns whether it was loaded.
    pub(super) fn forget(&mut self, unit: &UnitName) -> bool {
        self.remove_from_index(unit);
        let Some(entry) = self.entries.remove(unit) else { return false };
        self.queue.change(unit, entry.machine.next_elapse(), NextElapse::default());
        true
    }

    /// Returns when a timer elapses next, and when it last elapsed. Both are times of the wall
    /// clock. Returns `None` if the timer is not loaded.
    pub(super) fn details(&self, unit: &UnitName) -> Option<UnitDetails> {
        let machine = &self.entries.get(unit)?.machine;
        let details = UnitDetails::default()
            .with_next_elapse(machine.next_elapse().to_wall(self.now()))
            .with_last_elapse(machine.state().last.last_wall);
        Some(details)
    }

    /// Notes that the status of a unit has changed.
    pub(super) fn on_unit_changed(&mut self, unit: &UnitName) {
        self.unchecked.extend(self.by_unit.get(unit).into_iter().flatten().cloned());
    }

    /// Passes the states of the units that have changed to their timers.
    pub(super) fn check_changed_units(&mut self) {
        for timer in std::mem::take(&mut self.unchecked) {
            self.check_unit(&timer);
        }
    }

    /// Sets the alarm for the next elapse by the wall clock, and returns the time of the next
    /// elapse by the other clock. During a shutdown no timer elapses. Otherwise the supervisor
    /// would refuse to start the unit, but a persistent timer would already have stored the elapse.
    pub(super) fn set_alarm(&mut self) -> Option<Timestamp> {
        let has_begun = self.context.shutdown.has_begun();
        let due = if has_begun { NextElapse::default() } else { self.queue.first() };
        self.calendar.set(due.wall);
        due.clock
    }

    /// Waits for an event. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> TimerEvent {
        tokio::select! {
            Some(started) = self.starts.next(), if !self.starts.is_empty() => {
                TimerEvent::Started(started)
            }
            alarm = self.calendar.wait(&*self.context.clock) => TimerEvent::Alarm(alarm),
        }
    }

    /// Handles an event.
    pub(super) fn on_event(&mut self, event: TimerEvent) {
        match event {
            TimerEvent::Alarm(alarm) => self.on_alarm(alarm),
            TimerEvent::Started(started) => self.on_started(&started),
        }
    }

    /// Lets all due timers elapse.
    pub(super) fn elapse(&mut self) {
        while !self.context.shutdown.has_begun()
            && let Some(timer) = self.queue.due(self.now())
        {
            let elapses = self.change(&timer, |entry, cx| {
                let elapses = entry.machine.on_elapse(cx);
                if elapses {
                    // Stored together with the elapse, so that the next daemon starts the unit if
                    // this one does not.
                    entry.starting = Some(random_number().wrapping_add(cx.now.clock.as_millis()));
                }
                elapses
            });
            let Some(entry) = self.entries.get(&timer).filter(|_| elapses == Some(true)) else {
                continue;
            };
            let persistent = entry.machine.timer().persistent;
            self.start_unit(&timer);
            if persistent {
                self.stamps.record(&timer, wall_time());
            }
        }
    }

    /// Starts the unit of a timer that has elapsed. The start does not count as a launch of the
    /// unit by fleet. A second start for the same elapse only waits for the first.
    fn start_unit(&mut self, timer: &UnitName) {
        let Some(entry) = self.entries.get(timer) else { return };
        let Some(elapse) = entry.starting else { return };
        let (requests, unit) = (Arc::clone(&self.requests), entry.machine.timer().unit.clone());
        let timer = timer.clone();
        let start = async move {
            let done = requests.request(&unit, UnitRequest::Trigger(elapse)).await;
            (timer, elapse, !matches!(done, Err(ServiceError::NotLoaded { .. })))
        };
        self.starts.push(start.boxed());
    }

    fn on_started(&mut self, (timer, elapse, is_known): &StartResult) {
        let entry = self.entries.get_mut(timer);
        let Some(entry) = entry.filter(|entry| entry.starting == Some(*elapse)) else { return };
        entry.starting = None;
        let unit = entry.machine.timer().unit.clone();
        let is_active = self.is_active(&unit);
        if !*is_known || is_active.is_none() {
            self.change(timer, |entry, _| {
                if entry.machine.state().phase == TimerPhase::Running {
                    entry.machine.on_unit_missing();
                }
            });
            // The unit may be loaded again meanwhile.
            return self.check_unit(timer);
        }
        self.change(timer, |entry, cx| {
            if !entry.unit_state.active && is_active == Some(false) {
                // The unit was active between two checks.
                entry.observe_unit(true, entry.machine.state().last.last.unwrap_or(cx.now.clock));
            }
        });
        self.check_unit(timer);
    }

    fn on_alarm(&mut self, event: io::Result<AlarmEvent>) {
        match event {
            Ok(AlarmEvent::Elapsed) => {}
            Ok(AlarmEvent::ClockSet) => {
                for timer in self.queue.by_wall() {
                    self.change(&timer, |entry, cx| entry.machine.on_time_set(cx));
                }
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "cannot watch the wall clock: calendar timers might elapse late"
                );
            }
        }
    }

    /// Observes the unit of a timer, and passes its state to the timer.
    fn check_unit(&mut self, timer: &UnitName) {
        if self.should_restart(timer) {
            return self.start_again(timer);
        }
        self.observe_unit(timer);
        self.change(timer, |entry, cx| {
            if entry.starting.is_none() {
                entry.machine.on_unit(entry.unit_state, cx);
            }
        });
    }

    /// Returns whether a timer has to be started again. This is the case if it failed because its
    /// unit was not loaded, and the unit is loaded now. (Replacing a unit's file unloads the unit
    /// for a short time.)
    fn should_restart(&self, timer: &UnitName) -> bool {
        self.entries.get(timer).is_some_and(|entry| {
            let has_failed = entry.machine.state().phase == TimerPhase::Failed;
            let is_known = || self.is_active(&entry.machine.timer().unit).is_some();
            has_failed && entry.requested.should_run() && is_known()
        })
    }

    fn observe_unit(&mut self, timer: &UnitName) {
        let now = self.context.now();
        let Some(entry) = self.entries.get(timer) else { return };
        let active = self.is_active(&entry.machine.timer().unit).unwrap_or(false);
        if let Some(entry) = self.entries.get_mut(timer) {
            entry.observe_unit(active, now);
        }
    }

    /// Returns whether a unit is active or in transition: in any state except inactive and failed.
    /// Returns `None` if the unit is not loaded.
    fn is_active(&self, unit: &UnitName) -> Option<bool> {
        Some(!self.statuses.get(unit)?.unit.has_ended())
    }

    /// Changes a timer, and then updates the queue, the stored state and the published status.
    fn change<R>(
        &mut self,
        timer: &UnitName,
        act: impl FnOnce(&mut TimerEntry, TimerContext<'_>) -> R,
    ) -> Option<R> {
        let cx = TimerContext { now: self.now(), random: random_number(), zones: &self.zones };
        let entry = self.entries.get_mut(timer)?;
        let before = entry.machine.next_elapse();
        let result = act(entry, cx);
        self.queue.change(timer, before, entry.machine.next_elapse());
        if let Err(error) = entry.write() {
            tracing::error!(
                unit = %timer,
                %error,
                "cannot save the state of a timer: after this program restarts, an older state of \
                 the timer applies"
            );
        }
        if self.statuses.publish(entry.status(timer)) {
            self.context.feed.report(timer);
        }
        Some(result)
    }

    fn entry(
        &self,
        unit: &UnitName,
        hash: UnitHash,
        requested: RequestedState,
        timer: Timer,
    ) -> io::Result<TimerEntry> {
        let directory = self.context.directory(unit.as_str());
        let log = self.context.open_log(directory.log())?;
        let machine = TimerMachine::new(Arc::new(timer), self.startup);
        Ok(TimerEntry::new(machine, hash, requested, directory, log))
    }

    fn insert(&mut self, unit: &UnitName, entry: TimerEntry) {
        self.zones.load(entry.machine.timer());
        self.entries.insert(unit.clone(), entry);
        self.add_to_index(unit);
    }

    fn add_to_index(&mut self, timer: &UnitName) {
        if let Some(entry) = self.entries.get(timer) {
            let unit = entry.machine.timer().unit.clone();
            self.by_unit.entry(unit).or_default().insert(timer.clone());
        }
    }

    fn remove_from_index(&mut self, timer: &UnitName) {
        let Some(entry) = self.entries.get(timer) else { return };
        let unit = &entry.machine.timer().unit;
        if let Some(timers) = self.by_unit.get_mut(unit) {
            timers.remove(timer);
            if timers.is_empty() {
                self.by_unit.remove(unit);
            }
        }
    }

    fn now(&self) -> DualTimestamp {
        DualTimestamp { clock: self.context.now(), wall: wall_time() }
    }
}

fn random_number() -> u64 {
    // Zero, a valid value, if the kernel gives no random number.
    getrandom::u64().unwrap_or(0)
}
