//! The task that runs all timers.

mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{DualTimestamp, NextElapse, TimerContext, TimerPhase};
use fleet_unitfile::UnitName;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};

use super::alarm::{AlarmEvent, CalendarAlarm};
use super::entry::TimerEntry;
use super::queue::TimerQueue;
use super::storage::{PersistentStamps, startup};
use super::zones::ZoneCache;
use super::{PublishedTimer, QueuedRequest, TimerStatusMap, TimerTargets, is_timer};
use crate::clock::wait_until;
use crate::native::state::manager_context::{ManagerContext, STARTUP, file_name};
use crate::native::supervisor::host_capabilities::HostCapabilities;
use crate::{ChangeReceiver, wall_time};

/// Result of starting the unit of a timer: the timer, the ID of the elapse, and whether the unit
/// was loaded.
type StartResult = (UnitName, u64, bool);

pub(super) struct TimerTask {
    context: Arc<ManagerContext>,
    units: Arc<dyn TimerTargets>,
    zones: ZoneCache,
    stamps: PersistentStamps,
    startup: Timestamp,
    entries: BTreeMap<UnitName, TimerEntry>,
    /// Timers that start each unit.
    by_unit: BTreeMap<UnitName, BTreeSet<UnitName>>,
    queue: TimerQueue,
    calendar: CalendarAlarm,
    /// Starts in progress.
    starts: FuturesUnordered<BoxFuture<'static, StartResult>>,
    statuses: TimerStatusMap,
}

impl TimerTask {
    pub(super) fn open(
        context: &Arc<ManagerContext>,
        units: Arc<dyn TimerTargets>,
        directory: &Path,
        statuses: &TimerStatusMap,
    ) -> io::Result<Self> {
        Ok(Self {
            context: Arc::clone(context),
            units,
            zones: ZoneCache::new(),
            stamps: PersistentStamps::open(directory.join("timers"))?,
            startup: startup(&context.runtime_file(STARTUP), context.now())?,
            entries: BTreeMap::new(),
            by_unit: BTreeMap::new(),
            queue: TimerQueue::default(),
            calendar: CalendarAlarm::default(),
            starts: FuturesUnordered::new(),
            statuses: Arc::clone(statuses),
        })
    }

    /// Reads the timers that an earlier daemon has stored.
    pub(super) fn recover(&mut self, host: &HostCapabilities) -> io::Result<()> {
        let has_ended = self.context.shutdown.exists()?;
        for name in self.context.known_units()? {
            let unit = UnitName::parse(&name).ok().filter(is_timer);
            let Some(unit) = unit else { continue };
            let directory = self.context.directory(unit.as_str());
            match TimerEntry::read(&unit, directory.clone(), host, self.startup) {
                Ok(Some(mut entry)) => {
                    if has_ended {
                        entry.clear_pending_start();
                    }
                    self.resume(&unit, entry);
                }
                Ok(None) => directory.remove()?,
                // A timer that cannot be read must not keep others from being recovered.
                Err(error) => tracing::error!(
                    %unit,
                    %error,
                    "cannot read the saved state of a timer: the timer does not elapse"
                ),
            }
        }
        Ok(())
    }

    fn resume(&mut self, unit: &UnitName, entry: TimerEntry) {
        self.insert(unit, entry);
        let starts = self.change(unit, |entry, cx| {
            let timer = Arc::new(entry.machine.timer().clone());
            entry.resume(timer, cx)
        });
        if starts == Some(true) {
            self.start_timer(unit);
        }
        // An elapse right before the daemon ended may not have reached the unit.
        self.start_unit(unit);
        // The unit may have changed while no daemon ran.
        self.check_unit(unit);
    }

    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<QueuedRequest>,
        mut changes: ChangeReceiver,
    ) {
        loop {
            self.elapse();
            let due = self.due();
            self.calendar.set(due.wall);
            let clock = Arc::clone(&self.context.clock);
            tokio::select! {
                request = inbox.recv() => match request {
                    Some((unit, ask, reply)) => {
                        let answer = self.on_request(&unit, ask).await;
                        // The caller may be gone.
                        drop(reply.send(answer));
                    }
                    None => return,
                },
                changed = changes.next(), if !self.by_unit.is_empty() => {
                    let timers = changed.iter().filter_map(|unit| self.by_unit.get(unit));
                    let timers: BTreeSet<UnitName> = timers.flatten().cloned().collect();
                    timers.iter().for_each(|timer| self.check_unit(timer));
                }
                Some(started) = self.starts.next(), if !self.starts.is_empty() => {
                    self.on_started(&started);
                }
                () = wait_until(&*clock, due.clock) => {}
                event = self.calendar.wait(&*clock) => self.on_alarm(event),
            }
        }
    }

    /// Starts a timer, unless it is active.
    fn start_timer(&mut self, unit: &UnitName) {
        let Some(entry) = self.entries.get(unit) else { return };
        let (timer, file) = (entry.machine.timer(), file_name(unit.as_str()));
        let last = match timer.persistent {
            true => self.stamps.read(&file).unwrap_or_else(|error| {
                tracing::warn!(
                    %unit,
                    %error,
                    "cannot read when a timer last elapsed: if the timer has missed a start, the \
                     unit is not started now"
                );
                None
            }),
            false => None,
        };
        // The stamp may be missing or outdated.
        let known = entry.machine.state().last.last_wall.filter(|known| *known <= wall_time());
        let last = last.map(|last| known.map_or(last, |known| last.max(known)));
        if timer.persistent && last.is_none() {
            self.stamp(unit);
        }
        self.observe_unit(unit);
        self.change(unit, |entry, cx| entry.machine.on_start(last, entry.unit_state, cx));
    }

    /// Returns the time of the next elapse. During a shutdown no timer elapses. Otherwise the
    /// manager would refuse to start the unit, but a persistent timer would already have stored the
    /// elapse.
    fn due(&self) -> NextElapse {
        if self.context.shutdown.has_begun() { NextElapse::default() } else { self.queue.first() }
    }

    /// Lets all due timers elapse.
    fn elapse(&mut self) {
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
                self.stamp(&timer);
            }
        }
    }

    /// Starts the unit of a timer that has elapsed.
    fn start_unit(&mut self, timer: &UnitName) {
        let Some(entry) = self.entries.get(timer) else { return };
        let Some(elapse) = entry.starting else { return };
        let start = self.units.start(&entry.machine.timer().unit, elapse);
        let started = timer.clone();
        self.starts.push(start.map(move |is_known| (started, elapse, is_known)).boxed());
    }

    fn on_started(&mut self, (timer, elapse, is_known): &StartResult) {
        let entry = self.entries.get_mut(timer);
        let Some(entry) = entry.filter(|entry| entry.starting == Some(*elapse)) else { return };
        entry.starting = None;
        let is_active = self.units.is_active(&entry.machine.timer().unit);
        if !*is_known || is_active.is_none() {
            self.change(timer, |entry, _| {
                if entry.machine.state().phase == TimerPhase::Running {
                    entry.machine.on_unit_missing();
                }
            });
            // The unit may be loaded again by now.
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
            return self.start_timer(timer);
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
            let is_known = || self.units.is_active(&entry.machine.timer().unit).is_some();
            has_failed && entry.requested.should_run() && is_known()
        })
    }

    fn observe_unit(&mut self, timer: &UnitName) {
        let now = self.context.now();
        if let Some(entry) = self.entries.get_mut(timer) {
            let active = self.units.is_active(&entry.machine.timer().unit);
            entry.observe_unit(active.unwrap_or(false), now);
        }
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
        let statuses = entry.managed_unit(timer);
        let (next, last) = (entry.machine.next_elapse(), entry.machine.state().last.last_wall);
        let mut all = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = match all.get_mut(timer) {
            Some(seen) => {
                (seen.next, seen.last) = (next, last);
                std::mem::replace(&mut seen.unit, statuses.clone()) != statuses
            }
            None => {
                let alive = watch::Sender::new(());
                let seen = PublishedTimer { unit: statuses, next, last, alive };
                all.insert(timer.clone(), seen).is_none()
            }
        };
        drop(all);
        if is_new {
            self.context.feed.report(timer);
        }
        Some(result)
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
        let Some(unit) = self.entries.get(timer).map(|entry| &entry.machine.timer().unit) else {
            return;
        };
        if let Some(timers) = self.by_unit.get_mut(unit) {
            timers.remove(timer);
            if timers.is_empty() {
                self.by_unit.remove(unit);
            }
        }
    }

    /// Writes the stamp of a persistent timer outside the async runtime.
    fn stamp(&self, timer: &UnitName) {
        let (stamps, unit) = (self.stamps.clone(), timer.clone());
        let file = file_name(unit.as_str());
        stamps.set(&file, wall_time());
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = stamps.write(&file) {
                tracing::error!(
                    %unit,
                    %error,
                    "cannot save when a timer elapsed: after a reboot, the timer might start the \
                     unit again"
                );
            }
        }));
    }

    fn now(&self) -> DualTimestamp {
        DualTimestamp { clock: self.context.now(), wall: wall_time() }
    }
}

fn random_number() -> u64 {
    // Zero, a valid value, if the kernel gives no random number.
    getrandom::u64().unwrap_or(0)
}
