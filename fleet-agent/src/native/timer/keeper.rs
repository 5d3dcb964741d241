//! The task that sees to all timers.

mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{Due, Look, Moment, TimerPhase};
use fleet_unitfile::UnitName;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};

use super::alarm::{Calendar, Ring};
use super::entry::Entry;
use super::queue::Queue;
use super::record::{Stamps, startup};
use super::zones::KnownZones;
use super::{Request, Seen, Shown, Units, is_timer};
use crate::clock::wait_until;
use crate::native::identity::Host;
use crate::native::machine::{Machine, STARTUP, file_name};
use crate::{StateChanges, wall_time};

/// The end of a start: the timer, the elapse, and whether the unit was known.
type Started = (UnitName, u64, bool);

pub(super) struct Keeper {
    machine: Arc<Machine>,
    units: Arc<dyn Units>,
    zones: KnownZones,
    stamps: Stamps,
    startup: Timestamp,
    entries: BTreeMap<UnitName, Entry>,
    /// From a unit to the timers that start it.
    by_unit: BTreeMap<UnitName, BTreeSet<UnitName>>,
    queue: Queue,
    calendar: Calendar,
    /// The starts that are under way.
    starts: FuturesUnordered<BoxFuture<'static, Started>>,
    shown: Shown,
}

impl Keeper {
    pub(super) fn open(
        machine: &Arc<Machine>,
        units: Arc<dyn Units>,
        directory: &Path,
        shown: &Shown,
    ) -> io::Result<Self> {
        Ok(Self {
            machine: Arc::clone(machine),
            units,
            zones: KnownZones::new(),
            stamps: Stamps::open(directory.join("timers"))?,
            startup: startup(&directory.join(STARTUP), machine.now())?,
            entries: BTreeMap::new(),
            by_unit: BTreeMap::new(),
            queue: Queue::default(),
            calendar: Calendar::default(),
            starts: FuturesUnordered::new(),
            shown: Arc::clone(shown),
        })
    }

    /// Reads back what an earlier daemon knew.
    pub(super) fn take_back(&mut self, host: &Host) -> io::Result<()> {
        let has_ended = self.machine.end.is_noted()?;
        for name in self.machine.known()? {
            let unit = UnitName::parse(&name).ok().filter(is_timer);
            let Some(unit) = unit else { continue };
            let directory = self.machine.directory(unit.as_str());
            match Entry::read(&unit, directory.clone(), host, self.startup) {
                Ok(Some(mut entry)) => {
                    if has_ended {
                        entry.forget_elapse();
                    }
                    self.resume(&unit, entry);
                }
                Ok(None) => directory.remove()?,
                // One unit that cannot be read must not keep the others from being taken back.
                Err(error) => tracing::error!(%unit, %error, "cannot take a timer back"),
            }
        }
        Ok(())
    }

    fn resume(&mut self, unit: &UnitName, entry: Entry) {
        self.enter(unit, entry);
        let starts = self.change(unit, |entry, look| {
            let timer = Arc::new(entry.life.timer().clone());
            entry.resume(timer, look)
        });
        if starts == Some(true) {
            self.begin(unit);
        }
        // What came just before the daemon ended may not have reached the unit.
        self.start_unit(unit);
        // While no daemon ran it may have changed.
        self.look_at(unit);
    }

    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Request>,
        mut changes: StateChanges,
    ) {
        loop {
            self.elapse();
            let due = self.due();
            self.calendar.await_moment(due.wall);
            let clock = Arc::clone(&self.machine.clock);
            tokio::select! {
                request = inbox.recv() => match request {
                    Some((unit, ask, reply)) => {
                        let answer = self.on_request(&unit, ask).await;
                        // Whoever asked may have gone away, which changes nothing.
                        drop(reply.send(answer));
                    }
                    None => return,
                },
                changed = changes.next(), if !self.by_unit.is_empty() => {
                    let timers = changed.iter().filter_map(|unit| self.by_unit.get(unit));
                    let timers: BTreeSet<UnitName> = timers.flatten().cloned().collect();
                    timers.iter().for_each(|timer| self.look_at(timer));
                }
                Some(started) = self.starts.next(), if !self.starts.is_empty() => {
                    self.on_started(&started);
                }
                () = wait_until(&*clock, due.clock) => {}
                ring = self.calendar.ring(&*clock) => self.on_ring(ring),
            }
        }
    }

    /// Starts a timer, unless it is active.
    fn begin(&mut self, unit: &UnitName) {
        let Some(entry) = self.entries.get(unit) else { return };
        let (timer, file) = (entry.life.timer(), file_name(unit.as_str()));
        let last = match timer.persistent {
            true => self.stamps.read(&file).unwrap_or_else(|error| {
                tracing::warn!(%unit, %error, "cannot tell when a timer last elapsed");
                None
            }),
            false => None,
        };
        // The stamp may not have been written, or not be written at all.
        let known = entry.life.memory().past.last_wall.filter(|known| *known <= wall_time());
        let last = last.map(|last| known.map_or(last, |known| last.max(known)));
        if timer.persistent && last.is_none() {
            self.stamp(unit);
        }
        self.see(unit);
        self.change(unit, |entry, look| entry.life.on_start(last, entry.sight, look));
    }

    /// When the next timer is due. None elapses any more once all units are to end: their starts
    /// would be refused, and a persistent one would count as done.
    fn due(&self) -> Due {
        if self.machine.end.has_begun() { Due::default() } else { self.queue.first() }
    }

    /// Lets all timers elapse that are due.
    fn elapse(&mut self) {
        while !self.machine.end.has_begun()
            && let Some(timer) = self.queue.due(self.now())
        {
            let elapses = self.change(&timer, |entry, look| {
                let elapses = entry.life.on_moment(look);
                if elapses {
                    // Written down together, so that the next daemon starts the unit otherwise.
                    entry.starting = Some(dice().wrapping_add(look.now.clock.as_millis()));
                }
                elapses
            });
            let Some(entry) = self.entries.get(&timer).filter(|_| elapses == Some(true)) else {
                continue;
            };
            let persistent = entry.life.timer().persistent;
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
        let start = self.units.start(&entry.life.timer().unit, elapse);
        let started = timer.clone();
        self.starts.push(start.map(move |is_known| (started, elapse, is_known)).boxed());
    }

    fn on_started(&mut self, (timer, elapse, is_known): &Started) {
        let entry = self.entries.get_mut(timer);
        let Some(entry) = entry.filter(|entry| entry.starting == Some(*elapse)) else { return };
        entry.starting = None;
        let is_active = self.units.is_active(&entry.life.timer().unit);
        if !*is_known || is_active.is_none() {
            self.change(timer, |entry, _| {
                if entry.life.memory().phase == TimerPhase::Running {
                    entry.life.on_missing();
                }
            });
            // By now it may be there again.
            return self.look_at(timer);
        }
        self.change(timer, |entry, look| {
            if !entry.sight.active && is_active == Some(false) {
                // It has come and gone between two looks.
                entry.see(true, entry.life.memory().past.last.unwrap_or(look.now.clock));
            }
        });
        self.look_at(timer);
    }

    fn on_ring(&mut self, ring: io::Result<Ring>) {
        match ring {
            Ok(Ring::Come) => {}
            Ok(Ring::Set) => {
                for timer in self.queue.by_wall() {
                    self.change(&timer, |entry, look| entry.life.on_time_set(look));
                }
            }
            Err(error) => tracing::error!(%error, "cannot wait for the calendar"),
        }
    }

    /// Sees what the unit of a timer does, and tells the timer.
    fn look_at(&mut self, timer: &UnitName) {
        if self.is_to_begin_again(timer) {
            return self.begin(timer);
        }
        self.see(timer);
        self.change(timer, |entry, look| {
            if entry.starting.is_none() {
                entry.life.on_unit(entry.sight, look);
            }
        });
    }

    /// Whether the unit of a timer is there again that was not when the timer elapsed, as it is not
    /// for a moment when its content is replaced.
    fn is_to_begin_again(&self, timer: &UnitName) -> bool {
        self.entries.get(timer).is_some_and(|entry| {
            let has_failed = entry.life.memory().phase == TimerPhase::Failed;
            let is_known = || self.units.is_active(&entry.life.timer().unit).is_some();
            has_failed && entry.asked.is_wanted() && is_known()
        })
    }

    fn see(&mut self, timer: &UnitName) {
        let now = self.machine.now();
        if let Some(entry) = self.entries.get_mut(timer) {
            let active = self.units.is_active(&entry.life.timer().unit);
            entry.see(active.unwrap_or(false), now);
        }
    }

    /// Does something to a timer, and sees to all that follows from its new state.
    fn change<R>(
        &mut self,
        timer: &UnitName,
        act: impl FnOnce(&mut Entry, Look<'_>) -> R,
    ) -> Option<R> {
        let look = Look { now: self.now(), dice: dice(), zones: &self.zones };
        let entry = self.entries.get_mut(timer)?;
        let before = entry.life.due();
        let result = act(entry, look);
        self.queue.change(timer, before, entry.life.due());
        if let Err(error) = entry.write() {
            tracing::error!(unit = %timer, %error, "cannot write down the state of a timer");
        }
        let shown = entry.shown(timer);
        let mut all = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = match all.get_mut(timer) {
            Some(seen) => std::mem::replace(&mut seen.unit, shown.clone()) != shown,
            None => {
                let seen = Seen { unit: shown, alive: watch::Sender::new(()) };
                all.insert(timer.clone(), seen).is_none()
            }
        };
        drop(all);
        if is_new {
            self.machine.feed.report(timer);
        }
        Some(result)
    }

    fn enter(&mut self, unit: &UnitName, entry: Entry) {
        self.zones.learn(entry.life.timer());
        self.entries.insert(unit.clone(), entry);
        self.enter_index(unit);
    }

    fn enter_index(&mut self, timer: &UnitName) {
        if let Some(entry) = self.entries.get(timer) {
            let unit = entry.life.timer().unit.clone();
            self.by_unit.entry(unit).or_default().insert(timer.clone());
        }
    }

    fn leave_index(&mut self, timer: &UnitName) {
        let Some(unit) = self.entries.get(timer).map(|entry| &entry.life.timer().unit) else {
            return;
        };
        if let Some(timers) = self.by_unit.get_mut(unit) {
            timers.remove(timer);
            if timers.is_empty() {
                self.by_unit.remove(unit);
            }
        }
    }

    /// Writes down that a persistent timer elapses now, away from the runtime.
    fn stamp(&self, timer: &UnitName) {
        let (stamps, unit) = (self.stamps.clone(), timer.clone());
        let file = file_name(unit.as_str());
        stamps.note(&file, wall_time());
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = stamps.write(&file) {
                tracing::error!(%unit, %error, "cannot write down when a timer elapsed");
            }
        }));
    }

    fn now(&self) -> Moment {
        Moment { clock: self.machine.now(), wall: wall_time() }
    }
}

fn dice() -> u64 {
    // Without a random number the delay is none, which is one of those that there may be.
    getrandom::u64().unwrap_or(0)
}
