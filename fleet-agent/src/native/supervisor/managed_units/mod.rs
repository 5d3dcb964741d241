//! The units that fleet has loaded, and the requests for these units.
//!
//! ```text
//! load, unload ──> LoadedUnits ──> LoadedGraph ── new graph ──> planner
//! requests ──────> calls ── targets, masks, restarts ─────────> planner
//! changed units <── Waiters (answers), Statuses (published) <── planner, runs
//! ```
//!
//! Requests are mapped to the graph: loading a unit adds it to the graph, and each unit that should
//! run is an extra target. There is no goal. A caller waits until the unit has reached the
//! requested state. All state of this module belongs to the event loop, except [`Statuses`], which
//! callers read. The event loop passes the [`Core`] that these units share with units of files.
//!
//! | module | topic |
//! |---|---|
//! | `graph` | the graph of all loaded units, rebuilt when they change |
//! | `external` | external units, which this manager does not run |
//! | `calls`, `waiters` | start, stop, restart, reload, unload; the callers that wait for them |
//! | `follow_ups` | effects on other units: `OnFailure=`, `PropagatesStopTo=` and similar |
//! | `upkeep` | starts and stops by the state of other units: `Upholds=`, `StopWhenUnneeded=` |
//! | `status` | a loaded unit; its published status: of its run, otherwise of the planner |
//! | `recovery` | the units that an earlier daemon has left |
//!
//! Timers and activators are in `supervisor/starters`. [`ManagedUnits`] owns them, because only
//! loaded units have such units.

mod calls;
pub(in crate::native) mod external;
mod follow_ups;
mod graph;
mod recovery;
pub(super) mod status;
mod upkeep;
mod waiters;

pub(in crate::native) use self::recovery::ManagedUnitsConfig;
pub(super) use self::status::{Definition, known, name_of};
pub(super) use self::waiters::hit_start_limit;
pub(super) use follow_ups::{FollowUps, RunEnd};
pub(super) use graph::{LoadedGraph, PulledStarter};
pub(in crate::native) use status::{LoadedUnit, PublishedStatus, Statuses};

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use fleet_core::ActiveState;
use fleet_core::Timestamp;
use fleet_core::graph::{DerivedState, Incarnation, InitState, Name, Retry, Target, WaitReason};
use fleet_unitfile::UnitName;

use super::command::CallResult;
use super::core::Core;
use super::starters::Starters;
use super::units::SupervisedUnit;
use crate::native::run::adopt::resume;
use crate::native::state::unit_directory::RequestedState;
use crate::{ServiceError, UnitDetails};
use calls::requirements;
use external::External;
use follow_ups::UnitResult;
use graph::NamedObservation;
use status::{LoadedUnits, status_of};
use upkeep::Upkeep;
use waiters::{Waiters, start_result, stop_result};

/// All units that fleet has loaded.
pub(super) struct ManagedUnits {
    loaded_units: LoadedUnits,
    /// Number of loads so far, from which each unit gets its `load_number`. Of two units that
    /// exclude each other, the one with the higher number is left out of the graph.
    load_count: u64,
    graph: LoadedGraph,
    starters: Starters,
    follow_ups: FollowUps,
    upkeep: Upkeep,
    waiters: Waiters,
    /// Units to restart, each with its current run. The unit is restarted as soon as this run is
    /// over, even if the run has failed.
    pending_restarts: BTreeMap<Name, Incarnation>,
    statuses: Statuses,
    /// Units to publish again, even if the planner reports no change.
    touched: BTreeSet<Name>,
}

impl ManagedUnits {
    /// Creates the state of no loaded units.
    pub(super) fn new(
        graph: LoadedGraph,
        starters: Starters,
        follow_ups: FollowUps,
        statuses: Statuses,
    ) -> Self {
        Self {
            loaded_units: LoadedUnits::new(),
            load_count: 0,
            graph,
            starters,
            follow_ups,
            upkeep: Upkeep::default(),
            waiters: Waiters::default(),
            pending_restarts: BTreeMap::new(),
            statuses,
            touched: BTreeSet::new(),
        }
    }

    pub(super) fn starters(&mut self) -> &mut Starters {
        &mut self.starters
    }

    /// Returns the external unit that a stand-in of this name represents, if there is one.
    pub(super) fn external(&self, name: &Name) -> Option<&External> {
        self.graph.external(name).filter(|_| !self.is_loaded(name))
    }

    /// Returns whether a unit is loaded, even if it is not in the graph. As long as a unit is
    /// loaded, its stored state is kept.
    pub(super) fn is_loaded(&self, unit: &Name) -> bool {
        self.loaded_units.contains_key(unit)
    }

    /// Returns the requested state of a unit.
    pub(super) fn requested(&self, unit: &Name) -> Option<RequestedState> {
        self.loaded_units.get(unit).map(|loaded| loaded.requested)
    }

    /// Returns the requested state of a unit that is about to be started.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the unit file is invalid or the unit is no longer
    /// loaded.
    pub(super) fn request_for_start(&self, unit: &Name) -> io::Result<RequestedState> {
        match self.loaded_units.get(unit) {
            Some(LoadedUnit { definition: Definition::Invalid(problem), .. }) => {
                Err(io::Error::other(problem.clone()))
            }
            Some(loaded) => Ok(loaded.requested),
            None => Err(io::Error::other("it is no longer loaded")),
        }
    }

    /// Adds a loaded unit, or replaces the file of a unit that is loaded already.
    pub(super) fn load(&mut self, core: &mut Core, mut loaded: LoadedUnit) -> CallResult {
        let name = name_of(&loaded.unit);
        loaded.requested = stopped_if_shutting_down(core, loaded.requested);
        if let Some(done) = self.starters.load(&loaded) {
            self.graph.insert_starter(&loaded.unit, loaded.definition.relations());
            return done;
        }
        core.context.descriptors.set_service(name.as_str(), loaded.definition.descriptors());
        if self.is_loaded(&name) {
            self.replace_file(core, &name, loaded);
        } else {
            self.add_unit(core, &name, loaded)?;
        }
        self.publish_status(core, &name);
        self.touched.insert(name);
        Ok(())
    }

    /// Sets the requested state of a loaded unit whose unit file has not changed.
    pub(super) fn set_requested(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
    ) {
        let (name, requested) = (name_of(unit), stopped_if_shutting_down(core, requested));
        let loaded = self.loaded_units.get_mut(&name);
        if let Some(loaded) = loaded {
            loaded.requested = requested;
            self.publish_status(core, &name);
        }
        self.starters.set_requested(unit, requested);
    }

    /// Adds a unit that was not loaded. If the unit already runs, its run is adopted. (This happens
    /// if this daemon could not read the unit's stored state when it started.)
    fn add_unit(&mut self, core: &mut Core, name: &Name, loaded: LoadedUnit) -> CallResult {
        let failed =
            |source| ServiceError::Io { action: format!("start to supervise {name}"), source };
        if self.graph.take_over_external(name, core.now()) {
            // The stand-in must not be started as a service.
            let stand_in = core.units.remove(name).and_then(|entry| entry.handle);
            stand_in.into_iter().for_each(|handle| handle.task.abort());
        }
        let mut entry = SupervisedUnit::new(&core.context, name).map_err(failed)?;
        let run = entry.directory.read_run().map_err(failed)?;
        let run = run.filter(|run| run.run_state.is_in_progress());
        let incarnation = Incarnation(core.planner.last_incarnation().0 + 1);
        let mut found = None;
        if let Some(run) = run {
            let definition = loaded.definition();
            found = Some(resume(&core.context, &entry.stored(name, &definition), run, incarnation));
        }
        let found = found.transpose().map_err(failed)?;
        if let Some((observed, _)) = &found {
            entry.is_auto_restart = observed.retry_at.is_some();
        }
        core.units.insert(name.clone(), entry);
        self.insert(name.clone(), loaded);
        self.graph.mark_stale();
        if let Some((observed, driver)) = found {
            self.relink(core, vec![(name.clone(), observed)]);
            core.units.spawn_run(name, incarnation, driver);
        }
        Ok(())
    }

    /// Adds a unit, as the last that was loaded.
    fn insert(&mut self, name: Name, mut loaded: LoadedUnit) {
        self.load_count += 1;
        loaded.load_number = self.load_count;
        self.loaded_units.insert(name, loaded);
    }

    /// Replaces the unit file of a loaded unit. The current run continues, but will be stopped
    /// according to the new definition. The graph is rebuilt after a short delay, or before the
    /// next start if that comes first.
    fn replace_file(&mut self, core: &mut Core, name: &Name, new: LoadedUnit) {
        let Some(loaded) = self.loaded_units.get_mut(name) else { return };
        (loaded.hash, loaded.requested, loaded.definition) =
            (new.hash, new.requested, new.definition);
        self.graph.on_file_changed(core.now());
        if let Some(entry) = core.units.get(name) {
            entry.set_definition(loaded.definition());
        }
    }

    /// Removes a unit after its stored state was removed.
    pub(super) fn forget(&mut self, core: &mut Core, unit: &UnitName) {
        let name = name_of(unit);
        if self.starters.forget(unit) {
            self.graph.remove_starter(unit);
        }
        core.context.descriptors.forget_service(name.as_str());
        self.loaded_units.remove(&name);
        self.upkeep.forget(&name);
        self.graph.mark_stale();
        self.statuses.remove(unit);
        self.starters.on_unit_changed(unit);
        core.units.remove(&name);
        core.targets.forget_mask(&Target::from(&name));
        core.context.feed.report(unit);
    }

    /// Returns the deadline for rebuilding the graph after files have changed.
    pub(super) fn relink_due(&self) -> Option<Timestamp> {
        self.graph.due()
    }

    /// Rebuilds the graph if units were loaded or unloaded. Units are often loaded in batches, so
    /// the graph is only rebuilt when an operation depends on it.
    pub(super) fn apply_pending_loads(&mut self, core: &mut Core) {
        if self.graph.is_stale() {
            self.relink(core, Vec::new());
        }
    }

    /// Rebuilds the graph if unit files have changed. Called before the planner acts, so that no
    /// action is based on the old content of a file.
    pub(super) fn apply_pending_files(&mut self, core: &mut Core) {
        if self.graph.due().is_some() {
            self.relink(core, Vec::new());
        }
    }

    fn relink(&mut self, core: &mut Core, found: Vec<NamedObservation>) {
        self.touched.extend(self.loaded_units.keys().cloned());
        self.graph.relink(&mut self.loaded_units, core, found);
    }

    /// Returns the timers and activators to start together with a unit. These are pulled in by the
    /// unit itself or by a unit that it requires.
    fn starters_of(&mut self, core: &mut Core, unit: &UnitName) -> Vec<PulledStarter> {
        let name = name_of(unit);
        if !self.graph.has_starters() || !self.is_loaded(&name) {
            return Vec::new();
        }
        self.apply_pending_loads(core);
        let needed = requirements(core.planner.graph(), &name);
        self.graph.starters_pulled_by(&needed, &self.loaded_units)
    }

    /// Notes a report of a run. A caller that waits for a start gets its answer as soon as the unit
    /// is up, because the unit may be up only briefly.
    pub(super) fn on_report(
        &mut self,
        core: &mut Core,
        name: &Name,
        run: Incarnation,
        is_up: bool,
    ) {
        if !self.is_loaded(name) {
            return self.touch_dependents(name);
        }
        if is_up {
            self.publish_status(core, name);
            self.waiters.answer_up(name, run);
        }
        self.touched.insert(name.clone());
    }

    /// Publishes the status of all changed units, and answers the callers that wait for them.
    pub(super) fn publish(&mut self, core: &mut Core, changed: BTreeSet<Name>) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(changed);
        self.record_start_limit_hits(core, &touched);
        for unit in &touched {
            self.settle_awaited_run(core, unit);
            self.publish_status(core, unit);
            self.release_descriptors(core, unit);
            let loaded = self.loaded_units.get(unit);
            if self.waiters.answer(unit, loaded, core) {
                let requested = self.requested(unit).unwrap_or_default();
                core.record_applied(unit, requested);
            }
        }
    }

    /// Stores the start limit hit of each of `units` that the planner no longer retries for this
    /// reason. The planner decides this after the last run of the unit, so the stored state of that
    /// run does not include it.
    fn record_start_limit_hits(&mut self, core: &mut Core, units: &BTreeSet<Name>) {
        for unit in units {
            let state = core.planner.status(unit).map(|state| state.state);
            if !state.is_some_and(|what| hit_start_limit(&what)) {
                continue;
            }
            let Some(entry) = core.units.get_mut(unit) else { continue };
            let is_new = !entry.run_state.gave_up;
            entry.record_start_limit_hit();
            let Some(loaded) = self.loaded_units.get(unit).filter(|_| is_new) else { continue };
            let before = self.statuses.get(&loaded.unit);
            if before.is_none_or(|before| before.unit.state.active != ActiveState::Failed) {
                self.follow_up(core, unit, UnitResult::Failure);
            }
        }
    }

    /// Shows a unit's state as it is again if the result of its requested start is known.
    fn settle_awaited_run(&mut self, core: &Core, name: &Name) {
        let Some(loaded) = self.loaded_units.get_mut(name) else { return };
        let Some(awaited) = &loaded.awaited else { return };
        let (state, entry) = (core.planner.status(name), core.units.get(name));
        if loaded.refused.is_some() || start_result(state.as_ref(), entry, awaited.before).is_some()
        {
            loaded.awaited = None;
            // As in systemd, only a requested start fails because of a dependency.
            if matches!(
                state.map(|state| state.state),
                Some(DerivedState::Waiting(WaitReason::Blocked(_)))
            ) {
                self.follow_up(core, name, UnitResult::Failure);
            }
        }
    }

    /// Closes the stored descriptors of a unit that has ended and is not about to start again.
    fn release_descriptors(&self, core: &Core, name: &Name) {
        let Some(loaded) = self.loaded_units.get(name) else { return };
        let restarts = loaded.awaited.is_some() || self.pending_restarts.contains_key(name);
        let status = self.statuses.get(&loaded.unit);
        if !restarts && status.is_some_and(|status| status.unit.has_ended()) {
            core.context.descriptors.release(name.as_str());
        }
    }

    /// Publishes the status of a unit, and reports a change to subscribers.
    fn publish_status(&mut self, core: &Core, name: &Name) {
        let (loaded, entry) = (self.loaded_units.get(name), core.units.get(name));
        let Some((loaded, entry)) = loaded.zip(entry) else { return };
        let state = core.planner.status(name);
        let waits_for = state.as_ref().and_then(|state| self.external_wait(core, state));
        let status = status_of(loaded, state.as_ref(), entry, waits_for);
        let after = status.unit.state.active;
        let before = loaded.is_target().then(|| self.statuses.get(&loaded.unit)).flatten();
        if self.statuses.publish(status) {
            core.context.feed.report(&loaded.unit);
            self.starters.on_unit_changed(&loaded.unit);
        }
        if let Some(before) = before {
            self.on_target_changed(core, name, before.unit.state.active, after);
        }
    }

    /// Returns details of a loaded unit.
    pub(super) fn details(
        &self,
        core: &Core,
        unit: &UnitName,
    ) -> Result<UnitDetails, ServiceError> {
        let name = name_of(unit);
        if let Some(details) = self.starters.details(unit) {
            return Ok(details);
        }
        if !self.is_loaded(&name) {
            return Err(ServiceError::NotLoaded { unit: unit.clone() });
        }
        let retry = match core.planner.status(&name).map(|state| state.state) {
            Some(
                DerivedState::Failed { retry: Retry::At(at), .. }
                | DerivedState::Completed(Retry::At(at)),
            ) => Some(at.since(core.now())),
            _ => None,
        };
        let degraded_by = core.planner.degraded_by(&name).iter().map(ToString::to_string).collect();
        let loaded = self.loaded_units.get(&name);
        let ignored_options = loaded.map(LoadedUnit::ignored_options);
        let ignored_sandboxing = loaded.map(LoadedUnit::ignored_sandboxing);
        let status = self.statuses.get(unit);
        Ok(UnitDetails::default()
            .with_status_text(status.and_then(|status| status.text.clone()))
            .with_retry_in(retry)
            .with_degraded_by(degraded_by)
            .with_ignored_options(ignored_options.unwrap_or_default())
            .with_ignored_sandboxing(ignored_sandboxing.unwrap_or_default())
            .with_tracking(core.context.tracking().to_string()))
    }

    /// Begins a shutdown: no loaded unit is requested to run any more, and all timers and
    /// activators stop.
    pub(super) fn begin_shutdown(&mut self, core: &mut Core) {
        self.apply_pending_loads(core);
        core.shutting_down = true;
        self.pending_restarts.clear();
        let mut all = Vec::new();
        for (name, loaded) in &mut self.loaded_units {
            loaded.requested = loaded.requested.stopped();
            loaded.awaited = None;
            self.waiters.refuse_starts(name, &loaded.unit);
            all.push((name.clone(), loaded.requested));
        }
        for (name, requested) in all {
            core.record_applied(&name, requested);
            self.publish_status(core, &name);
            self.touched.insert(name);
        }
        self.starters.stop_all();
    }

    /// Returns an error for each loaded unit that cannot be stopped.
    pub(super) fn stop_errors(&self, planner: &InitState) -> Vec<ServiceError> {
        let stuck = |(name, loaded): (&Name, &LoadedUnit)| {
            let state = planner.status(name)?;
            let problem = stop_result(Some(&state), state.incarnation)?.err()?;
            Some(ServiceError::StopFailed { unit: loaded.unit.clone(), problem })
        };
        self.loaded_units.iter().filter_map(stuck).collect()
    }
}

/// Corrects a requested state that was read before a shutdown began.
fn stopped_if_shutting_down(core: &Core, requested: RequestedState) -> RequestedState {
    if core.shutting_down { requested.stopped() } else { requested }
}
