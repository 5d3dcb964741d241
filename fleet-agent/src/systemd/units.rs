//! All units of this manager: what was asked of each, and what systemd tells of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::TargetState;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::bus::unit_path;
use super::external_stop::ExternalStopDetector;
use super::record::Record;
use super::state::{ObservedState, Properties};
use crate::{Drift, ManagedUnit};

/// The units, by name and by systemd's path.
#[derive(Debug, Default)]
pub(crate) struct UnitTable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    units: BTreeMap<UnitName, Entry>,
    paths: BTreeMap<String, UnitName>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Nothing before the unit is loaded for the first time; it is not known then.
    record: Option<Record>,
    seen: ObservedState,
    external_stop: ExternalStopDetector,
    /// Counts what systemd has told, so that an answer is not taken for newer than a signal.
    news: u64,
    /// systemd has nothing of an earlier run.
    is_new: bool,
    /// Ends with the unit, so that those who follow its journal end too.
    alive: watch::Sender<()>,
}

impl UnitTable {
    /// Begins to follow a unit, or remembers what was asked of it.
    pub(crate) fn follow(&self, unit: &UnitName, record: Option<Record>) {
        let mut state = self.lock();
        state.paths.insert(unit_path(unit.as_str()), unit.clone());
        let entry = state.units.entry(unit.clone()).or_default();
        if record.is_some() {
            entry.record = record;
            entry.external_stop.reset();
        }
    }

    pub(crate) fn forget(&self, unit: &UnitName) {
        let mut state = self.lock();
        state.paths.remove(&unit_path(unit.as_str()));
        state.units.remove(unit);
    }

    /// systemd has nothing of a unit but its file.
    pub(crate) fn mark_new(&self, unit: &UnitName) {
        if let Some(entry) = self.lock().units.get_mut(unit) {
            entry.is_new = entry.seen.is_inactive();
        }
    }

    /// Whether a unit that is about to be started is so for the first time.
    pub(crate) fn take_new(&self, unit: &UnitName) -> bool {
        let mut state = self.lock();
        state.units.get_mut(unit).is_some_and(|entry| std::mem::take(&mut entry.is_new))
    }

    /// Whether the unit with that path is followed.
    pub(crate) fn is_followed(&self, path: &str) -> bool {
        self.lock().paths.contains_key(path)
    }

    /// All units that are followed.
    pub(crate) fn names(&self) -> Vec<UnitName> {
        self.lock().units.keys().cloned().collect()
    }

    /// What was asked of a known unit.
    pub(crate) fn record(&self, unit: &UnitName) -> Option<Record> {
        self.lock().units.get(unit)?.record.clone()
    }

    /// Closes when the unit is not known any more.
    pub(crate) fn alive(&self, unit: &UnitName) -> Option<watch::Receiver<()>> {
        Some(self.lock().units.get(unit)?.alive.subscribe())
    }

    /// What systemd tells of a unit.
    pub(crate) fn seen(&self, unit: &UnitName) -> ObservedState {
        self.lock().units.get(unit).map(|entry| entry.seen.clone()).unwrap_or_default()
    }

    /// A known unit.
    pub(crate) fn managed(&self, unit: &UnitName) -> Option<ManagedUnit> {
        self.lock().units.get(unit)?.managed(unit)
    }

    /// All known units.
    pub(crate) fn all_managed(&self) -> Vec<ManagedUnit> {
        let state = self.lock();
        state.units.iter().filter_map(|(unit, entry)| entry.managed(unit)).collect()
    }

    /// A signal tells of a unit; returns its name if that is news of a known one.
    pub(crate) fn on_signal(
        &self,
        path: &str,
        change: impl FnOnce(&mut ObservedState),
    ) -> Option<UnitName> {
        let mut state = self.lock();
        let unit = state.paths.get(path)?.clone();
        let entry = state.units.get_mut(&unit)?;
        entry.news += 1;
        entry.change(change).then_some(unit)
    }

    /// A start is asked for, or went well.
    pub(crate) fn on_start(&self, unit: &UnitName, change: fn(&mut ObservedState)) {
        if let Some(entry) = self.lock().units.get_mut(unit) {
            change(&mut entry.seen);
        }
    }

    /// What somebody other than fleet has done to a known unit.
    pub(crate) fn drift(&self, unit: &UnitName) -> Option<Drift> {
        let state = self.lock();
        let entry = state.units.get(unit)?;
        (entry.is_launched() && entry.external_stop.is_stopped()).then_some(Drift::Stopped)
    }

    /// A job of a unit has come.
    pub(crate) fn on_job(&self, job: &str, unit: &str) {
        if let Some(entry) = self.lock().units.get_mut(unit) {
            entry.external_stop.on_job(job, entry.seen.is_active());
        }
    }

    /// A job of a unit is over; returns the unit's name if it is seen by that that somebody stopped
    /// it whom fleet did not ask to.
    pub(crate) fn on_job_end(&self, job: &str, unit: &str, is_ours: bool) -> Option<UnitName> {
        let mut state = self.lock();
        let entry = state.units.get_mut(unit)?;
        let is_down = entry.seen.is_inactive() || entry.seen.has_failed();
        let stopped = entry.external_stop.on_job_end(job, is_ours, is_down);
        if stopped && entry.is_launched() { unit.parse().ok() } else { None }
    }

    /// How much systemd has told of a unit by now.
    pub(crate) fn news(&self, unit: &UnitName) -> u64 {
        self.lock().units.get(unit).map_or(0, |entry| entry.news)
    }

    /// Takes in what systemd answered. The change is told whether no signal came since `news`, for
    /// one that did may be newer. Returns whether it is news of a known unit.
    pub(crate) fn on_answer(
        &self,
        unit: &UnitName,
        news: u64,
        change: impl FnOnce(&mut ObservedState, bool),
    ) -> bool {
        self.lock().units.get_mut(unit).is_some_and(|entry| {
            let is_latest = entry.news == news;
            entry.change(|seen| change(seen, is_latest))
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_launched(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.known.requested == TargetState::Launched)
    }

    fn managed(&self, unit: &UnitName) -> Option<ManagedUnit> {
        let known = self.record.as_ref()?.known;
        Some(ManagedUnit { unit: unit.clone(), known, state: self.seen.state() })
    }

    /// Whether the change can be noticed from outside.
    fn change(&mut self, change: impl FnOnce(&mut ObservedState)) -> bool {
        let before = self.seen.clone();
        change(&mut self.seen);
        self.is_new &= self.seen.is_inactive();
        if self.seen.is_active() {
            self.external_stop.reset();
        }
        self.record.is_some() && before.state() != self.seen.state()
    }
}

/// The change that properties of one interface make.
pub(crate) fn apply_properties<'a>(
    interface: &'a str,
    properties: &'a Properties,
) -> impl FnOnce(&mut ObservedState) + use<'a> {
    move |seen| seen.on_properties(interface, properties)
}
