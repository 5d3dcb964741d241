//! fleet's units, with their records and their states from systemd.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::TargetState;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::bus::{object_path, unit_path};
use super::record::Record;
use super::state::{ObservedState, Properties};
use crate::{Drift, ManagedUnit};

/// The units, by name and by systemd's object path.
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
    /// The unit's record. `None` during the first load of the unit. Until that load has succeeded,
    /// the unit is not known.
    record: Option<Record>,
    observed: ObservedState,
    external_stop: ExternalStopDetector,
    /// Number of signals of the unit so far. If it changes during a query, the response may be
    /// older than a signal, and must not override it.
    signals: u64,
    /// Whether systemd has nothing of an earlier run.
    is_new: bool,
    /// Closed with the unit, which ends its followed journals.
    alive: watch::Sender<()>,
}

impl State {
    /// Returns the tracked unit with this name in systemd.
    fn named(&mut self, in_systemd: &str) -> Option<(UnitName, &mut Entry)> {
        let unit = self.paths.get(&object_path(in_systemd))?;
        Some((unit.clone(), self.units.get_mut(unit)?))
    }
}

impl UnitTable {
    /// Begins to track a unit, or stores its record.
    pub(crate) fn follow(&self, unit: &UnitName, record: Option<Record>) {
        let mut state = self.lock();
        state.paths.insert(unit_path(unit), unit.clone());
        let entry = state.units.entry(unit.clone()).or_default();
        if record.is_some() {
            entry.record = record;
            entry.external_stop.reset();
        }
    }

    pub(crate) fn forget(&self, unit: &UnitName) {
        let mut state = self.lock();
        state.paths.remove(&unit_path(unit));
        state.units.remove(unit);
    }

    /// Records that systemd has nothing of a unit but its file.
    pub(crate) fn mark_new(&self, unit: &UnitName) {
        if let Some(entry) = self.lock().units.get_mut(unit) {
            entry.is_new = entry.observed.is_inactive();
        }
    }

    /// Returns whether the unit is marked as new, and clears the mark. The next start of a new unit
    /// is its first.
    pub(crate) fn take_new(&self, unit: &UnitName) -> bool {
        let mut state = self.lock();
        state.units.get_mut(unit).is_some_and(|entry| std::mem::take(&mut entry.is_new))
    }

    /// Whether the unit with this object path is tracked.
    pub(crate) fn is_followed(&self, path: &str) -> bool {
        self.lock().paths.contains_key(path)
    }

    /// Returns another tracked unit that systemd knows by the same name.
    pub(crate) fn namesake(&self, unit: &UnitName) -> Option<UnitName> {
        let state = self.lock();
        state.paths.get(&unit_path(unit)).filter(|other| *other != unit).cloned()
    }

    /// Returns the names of all tracked units.
    pub(crate) fn names(&self) -> Vec<UnitName> {
        self.lock().units.keys().cloned().collect()
    }

    /// Returns the record of a known unit.
    pub(crate) fn record(&self, unit: &UnitName) -> Option<Record> {
        self.lock().units.get(unit)?.record.clone()
    }

    /// Whether a known unit has a pending request.
    pub(crate) fn is_pending(&self, unit: &UnitName) -> bool {
        self.lock().units.get(unit).is_some_and(Entry::is_pending)
    }

    /// Returns the known units with a pending request.
    pub(crate) fn pending(&self) -> Vec<UnitName> {
        let state = self.lock();
        let pending = state.units.iter().filter(|(_, entry)| entry.is_pending());
        pending.map(|(unit, _)| unit.clone()).collect()
    }

    /// Returns a receiver that is closed once the unit is no longer known.
    pub(crate) fn alive(&self, unit: &UnitName) -> Option<watch::Receiver<()>> {
        Some(self.lock().units.get(unit)?.alive.subscribe())
    }

    /// Returns the state of a unit from systemd.
    pub(crate) fn observed(&self, unit: &UnitName) -> ObservedState {
        self.lock().units.get(unit).map(|entry| entry.observed.clone()).unwrap_or_default()
    }

    /// Returns a known unit.
    pub(crate) fn managed(&self, unit: &UnitName) -> Option<ManagedUnit> {
        self.lock().units.get(unit)?.managed(unit)
    }

    /// Returns all known units.
    pub(crate) fn all_managed(&self) -> Vec<ManagedUnit> {
        let state = self.lock();
        state.units.iter().filter_map(|(unit, entry)| entry.managed(unit)).collect()
    }

    /// Applies a signal to the unit with this object path. Returns the unit's name if the unit is
    /// known and its state has changed.
    pub(crate) fn on_signal(
        &self,
        path: &str,
        change: impl FnOnce(&mut ObservedState),
    ) -> Option<UnitName> {
        let mut state = self.lock();
        let unit = state.paths.get(path)?.clone();
        let entry = state.units.get_mut(&unit)?;
        entry.signals += 1;
        entry.change(change).then_some(unit)
    }

    /// Applies the request or the success of a start.
    pub(crate) fn on_start(&self, unit: &UnitName, change: fn(&mut ObservedState)) {
        if let Some(entry) = self.lock().units.get_mut(unit) {
            change(&mut entry.observed);
        }
    }

    /// Returns how a known unit was changed by others.
    pub(crate) fn drift(&self, unit: &UnitName) -> Option<Drift> {
        let state = self.lock();
        let entry = state.units.get(unit)?;
        (entry.is_launched() && entry.external_stop.is_stopped()).then_some(Drift::Stopped)
    }

    /// Records that a job of a unit, by its name in systemd, has begun.
    pub(crate) fn on_job(&self, job: &str, unit: &str) {
        if let Some((_, entry)) = self.lock().named(unit) {
            entry.external_stop.on_job(job, entry.observed.is_active());
        }
    }

    /// Records that a job of a unit, by its name in systemd, is over. Returns the unit if this job
    /// has stopped it and was not requested by fleet.
    pub(crate) fn on_job_end(&self, job: &str, unit: &str, is_ours: bool) -> Option<UnitName> {
        let mut state = self.lock();
        let (unit, entry) = state.named(unit)?;
        let is_down = entry.observed.is_inactive() || entry.observed.has_failed();
        let stopped = entry.external_stop.on_job_end(job, is_ours, is_down);
        (stopped && entry.is_launched()).then_some(unit)
    }

    /// Records the end of a start of a unit, by its name in systemd, that an earlier daemon had
    /// requested. Returns the unit if its state has changed.
    pub(crate) fn on_queued_end(&self, unit: &str, result: &str) -> Option<UnitName> {
        let mut state = self.lock();
        let (unit, entry) = state.named(unit)?;
        let was_queued = entry.observed.is_queued();
        entry.observed.on_queued_end(result);
        was_queued.then_some(unit)
    }

    /// Returns the number of signals of a unit so far.
    pub(crate) fn signals(&self, unit: &UnitName) -> u64 {
        self.lock().units.get(unit).map_or(0, |entry| entry.signals)
    }

    /// Applies a response by calling `change`. Returns whether a known unit has changed.
    ///
    /// `signals` is the signal count from before the query. If it has changed since, the second
    /// argument of `change` is `false`, because the response may be older than the signal.
    pub(crate) fn on_response(
        &self,
        unit: &UnitName,
        signals: u64,
        change: impl FnOnce(&mut ObservedState, bool),
    ) -> bool {
        self.lock().units.get_mut(unit).is_some_and(|entry| {
            let is_latest = entry.signals == signals;
            entry.change(|observed| change(observed, is_latest))
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_pending(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.order.is_some())
    }

    fn is_launched(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.known.requested == TargetState::Launched)
    }

    fn managed(&self, unit: &UnitName) -> Option<ManagedUnit> {
        let known = self.record.as_ref()?.known;
        let queued = || "waits for its start, which is in the queue of systemd".to_owned();
        let waits_for = self.observed.is_queued().then(queued);
        let managed = ManagedUnit::new(unit.clone(), known, self.observed.state());
        Some(ManagedUnit { waits_for, ..managed })
    }

    /// Applies a change. Returns whether it is visible from outside.
    fn change(&mut self, change: impl FnOnce(&mut ObservedState)) -> bool {
        let before = self.observed.clone();
        change(&mut self.observed);
        self.is_new &= self.observed.is_inactive();
        if self.observed.is_active() {
            self.external_stop.reset();
        }
        self.record.is_some() && before.state() != self.observed.state()
    }
}

/// Returns the change that applies properties of one interface.
pub(crate) fn apply_properties<'a>(
    interface: &'a str,
    properties: &'a Properties,
) -> impl FnOnce(&mut ObservedState) + use<'a> {
    move |observed| observed.on_properties(interface, properties)
}

/// Detects external stops of one unit, for example by `systemctl stop`, from the jobs that this
/// daemon has observed. Pure: no I/O, no clock.
///
/// systemd reports neither the type nor the requester of a finished job, so the stop is detected by
/// the unit's state. A job has stopped the unit if all of the following hold:
///
/// - The unit was up when the job began.
/// - Fleet did not request the job.
/// - The unit is down when the job is over.
///
/// A unit that ends by itself does so without a job. A unit that its timer starts is not up when
/// the job begins.
#[derive(Debug, Default)]
pub(crate) struct ExternalStopDetector {
    /// The unit's current job, if the unit was up when that job began; otherwise `None`. A unit has
    /// only one job at a time.
    job: Option<String>,
    stopped: bool,
}

impl ExternalStopDetector {
    /// Records that a job of the unit has begun.
    pub(crate) fn on_job(&mut self, job: &str, is_up: bool) {
        self.job = is_up.then(|| job.to_owned());
    }

    /// Records that a job of the unit is over. Returns whether this job has stopped the unit and
    /// was not requested by fleet.
    pub(crate) fn on_job_end(&mut self, job: &str, is_ours: bool, is_down: bool) -> bool {
        let came = self.job.take_if(|came| came.as_str() == job).is_some();
        let stops = came && !is_ours && is_down;
        self.stopped |= stops;
        stops
    }

    /// Clears the stop: the unit is up, or fleet has requested something else.
    pub(crate) fn reset(&mut self) {
        self.stopped = false;
    }

    /// Whether the unit was stopped by others, and still is.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Generation};
    use fleet_unitfile::UnitFile;
    use zbus::wire::Variant;

    use super::super::bus::UNIT;
    use super::*;

    #[test]
    fn signals_of_a_service_concern_its_container() {
        let [container, service] =
            ["web.container", "web.service"].map(|it| it.parse().expect("it is a name"));
        let table = UnitTable::default();
        let hash = UnitFile::parse("[Container]\nImage=a\n").expect("it parses").hash();
        table.follow(&container, Some(Record::new(hash, Epoch(1)).launched(Generation(1))));
        assert_eq!(table.namesake(&service), Some(container.clone()));
        assert_eq!(table.namesake(&container), None);
        let signal = |state: &str| {
            let state = Variant::from(state).try_to_owned().expect("it holds no descriptor");
            let changed = Properties::from([("ActiveState".to_owned(), state)]);
            let path = "/org/freedesktop/systemd1/unit/web_2eservice";
            table.on_signal(path, apply_properties(UNIT, &changed))
        };
        assert_eq!(signal("active"), Some(container.clone()));
        table.on_job("/job/1", "web.service");
        assert_eq!(signal("inactive"), Some(container.clone()));
        assert_eq!(table.on_job_end("/job/1", "web.service", false), Some(container.clone()));
        assert_eq!(table.drift(&container), Some(Drift::Stopped));
        table.forget(&container);
        assert_eq!((signal("active"), table.namesake(&service)), (None, None));
    }

    #[test]
    fn external_stop_is_detected_by_job_effect() {
        // Whether it was up when the job began, whether the job is fleet's, whether it is down
        // afterwards.
        let rows = [
            ((true, false, true), true, "stopped by others"),
            ((true, true, true), false, "fleet stopped it"),
            ((true, false, false), false, "restarted by others"),
            ((false, false, true), false, "a timer started it, and it has done its work"),
        ];
        for ((is_up, is_ours, is_down), stopped, what) in rows {
            let mut external_stop = ExternalStopDetector::default();
            external_stop.on_job("/job/1", is_up);
            assert!(!external_stop.on_job_end("/job/2", false, true), "another unit's: {what}");
            assert_eq!(external_stop.on_job_end("/job/1", is_ours, is_down), stopped, "{what}");
            assert_eq!(external_stop.is_stopped(), stopped, "{what}");
            external_stop.reset();
            assert!(!external_stop.is_stopped(), "{what}");
        }
    }
}
