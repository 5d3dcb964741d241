//! The calls of fleet, mapped to changes of the graph and its targets.

use fleet_core::graph::{DerivedState, Incarnation, Name, NotReloadable, StatusReport, Target};
use fleet_unitfile::UnitName;

use super::super::Supervisor;
use super::super::command::{CallResult, Reply, answer};
use super::super::requests::UnitRequest;
use super::waiters::{is_busy, may_have_processes};
use super::{AwaitedRun, LoadedUnit, PulledTimer};
use crate::ServiceError;
use crate::lock::lock;
use crate::native::state::shutdown_marker::shutdown_refusal;
use crate::native::state::unit_directory::RequestedState;

impl Supervisor {
    /// Carries out a request for a loaded unit.
    pub(in super::super) fn carry_out(
        &mut self,
        unit: &UnitName,
        request: UnitRequest,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        if self.timers.is_loaded(unit) {
            return answer(reply, self.timers.carry_out(unit, request, requested));
        }
        match request {
            // Only timers are pulled.
            UnitRequest::Start(_) | UnitRequest::Pull => self.start(unit, requested, reply),
            UnitRequest::Restart(_) => self.restart(unit, requested, reply),
            UnitRequest::Trigger(_) => self.trigger(unit, requested, reply),
            UnitRequest::Stop => self.stop(unit, requested, reply),
            UnitRequest::Unload => self.begin_unload(unit, requested, reply),
        }
    }

    /// Returns the timers to start before a unit, or why the unit cannot be started.
    pub(in super::super) fn prepare_start(
        &mut self,
        unit: &UnitName,
    ) -> Result<Vec<PulledTimer>, ServiceError> {
        if self.timers.is_loaded(unit) {
            return self.timers.check_start(unit).map(|()| Vec::new());
        }
        Ok(self.timers_of(unit))
    }

    /// Starts a unit. A failed unit is tried again, and an active unit stays as it is.
    fn start(&mut self, unit: &UnitName, requested: RequestedState, reply: Reply<CallResult>) {
        self.await_run(&name_of(unit), false);
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        self.request_start(&name);
        let state = self.planner.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => self.record_applied(&name, requested),
            _ => drop(self.reset_failed(&Target::from(&name))),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Restarts a unit, or starts it if it does not run. Also restarts all running units that
    /// systemd would stop together with the unit.
    fn restart(&mut self, unit: &UnitName, requested: RequestedState, reply: Reply<CallResult>) {
        self.await_run(&name_of(unit), true);
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        self.request_start(&name);
        self.reset_failed(&Target::from(&name));
        let state = self.planner.status(&name).filter(|state| is_busy(&state.state));
        let before = state.and_then(|state| state.incarnation);
        for (unit, run) in self.restart_with_dependents(&name) {
            self.restart_after(&unit, run);
        }
        if let Some(run) = before {
            self.restart_after(&name, run);
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Starts a unit on behalf of a timer, within its start limit. An active unit stays as it is,
    /// and a unit that waits for a retry keeps waiting. If the same elapse of the timer has been
    /// requested before (`trigger` is unchanged), the call only waits for the start.
    fn trigger(&mut self, unit: &UnitName, requested: RequestedState, reply: Reply<CallResult>) {
        let before = self.managed.requested(&name_of(unit));
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        if before.is_some_and(|before| before.trigger == requested.trigger) {
            // A unit that was stopped since will not start for this request.
            return match requested.should_run() {
                true => self.wait_for_start(&name, None, reply),
                false => answer(reply, Ok(())),
            };
        }
        self.request_start(&name);
        let state = self.planner.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => self.record_applied(&name, requested),
            _ => self.retry_now(&name),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Stops a unit, and all units that systemd would stop with it.
    fn stop(&mut self, unit: &UnitName, requested: RequestedState, reply: Reply<CallResult>) {
        let Some((name, reply)) = self.accept_request(unit, requested, reply) else { return };
        // Recorded only once the units that stop with it are known.
        self.stop_unit(&name, reply);
        self.record_applied(&name, requested);
    }

    /// Prepares the stop of all loaded units: they are not requested to run any more.
    pub(in super::super) fn stop_managed_units(&mut self) {
        self.managed.pending_restarts.clear();
        let mut all = Vec::new();
        for (name, loaded) in &mut self.managed.loaded_units {
            loaded.requested = loaded.requested.stopped();
            loaded.awaited = None;
            self.managed.waiters.refuse_starts(name, &loaded.unit);
            all.push((name.clone(), loaded.requested));
        }
        for (name, requested) in all {
            self.record_applied(&name, requested);
            self.publish_status(&name);
            self.touched.insert(name);
        }
    }

    /// Stops a unit that is about to be unloaded. `requested` is its requested state after the
    /// stop, which applies if the unit is not unloaded after all.
    fn begin_unload(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        let name = name_of(unit);
        // A unit loaded or unloaded meanwhile must not affect this stop.
        self.apply_pending_files();
        let loaded = self.managed.loaded_units.get_mut(&name);
        let Some(loaded) = loaded else { return answer(reply, Ok(())) };
        (loaded.requested, loaded.unloading, loaded.awaited) = (requested, true, None);
        self.publish_status(&name);
        self.stop_unit(&name, reply);
        self.record_applied(&name, requested);
    }

    /// Removes a unit after its stored state was removed.
    pub(in super::super) fn forget(&mut self, unit: &UnitName) {
        let name = name_of(unit);
        if self.timers.forget(unit) {
            self.managed.remove_timer(unit);
        }
        self.managed.loaded_units.remove(&name);
        self.managed.graph_is_stale = true;
        self.managed.statuses.remove(unit);
        self.timers.on_unit_changed(unit);
        self.units.remove(&name);
        lock(&self.logs).remove(&name);
        // The planner learns of it with the next relink.
        if self.selection.desired.mask.remove(&Target::from(&name)) {
            self.write_mask();
        }
        self.context.feed.report(unit);
    }

    /// Reloads the configuration of a unit.
    pub(in super::super) fn reload_managed(&mut self, unit: &UnitName, reply: Reply<CallResult>) {
        let name = name_of(unit);
        self.apply_pending_loads();
        if self.timers.is_loaded(unit) {
            let problem = "a timer has no configuration of its own: load its file again".to_owned();
            let unit = unit.clone();
            return answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
        }
        if !self.managed.is_loaded(&name) {
            return answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
        }
        match self.planner.request_reload(&Target::from(&name)) {
            Ok(()) => self.managed.waiters.of(&name).reloads.push(reply),
            Err(why) => {
                let problem = match why {
                    NotReloadable::NoCommand => {
                        "its file has no ExecReload=: add one, or restart the unit"
                    }
                    _ => "it is not active: start it",
                };
                let (unit, problem) = (unit.clone(), problem.to_owned());
                answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
            }
        }
        self.touched.insert(name);
    }

    /// Records the requested state of a loaded unit. If the unit is not loaded, answers the call
    /// with an error and returns `None`.
    ///
    /// The requested state is not passed to the current run yet, because each run stores the state
    /// that it gets as applied. Only the run that fulfils the request may do that, and it may be a
    /// later one.
    fn accept_request(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) -> Option<(Name, Reply<CallResult>)> {
        let name = name_of(unit);
        self.apply_pending_loads();
        let loaded = self.managed.loaded_units.get_mut(&name);
        let Some(loaded) = loaded else {
            answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
            return None;
        };
        (loaded.requested, loaded.unloading) = (requested, false);
        if !requested.should_run() {
            loaded.awaited = None;
        }
        // The next call reads the published status.
        self.publish_status(&name);
        self.touched.insert(name.clone());
        Some((name, reply))
    }

    /// Does the same as [`accept_request`](Self::accept_request), for a request that starts a unit.
    /// During a shutdown the request is refused, even if the caller sent it before the shutdown
    /// began.
    fn accept_start(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) -> Option<(Name, Reply<CallResult>)> {
        if self.shutting_down {
            answer(reply, Err(shutdown_refusal(unit)));
            return None;
        }
        self.accept_request(unit, requested, reply)
    }

    /// Hides the earlier run of a unit that is about to start or restart, until the result of the
    /// new run is known. A unit that is up and only started stays as it is.
    fn await_run(&mut self, name: &Name, is_restart: bool) {
        let busy = self.planner.status(name).filter(|state| is_busy(&state.state));
        let stays =
            |it: &StatusReport| !is_restart && !matches!(it.state, DerivedState::Stopping(_));
        let begins = !busy.as_ref().is_some_and(stays);
        let before = busy.and_then(|state| state.incarnation);
        if self.shutting_down {
            return;
        }
        if let Some(loaded) = self.managed.loaded_units.get_mut(name) {
            loaded.awaited = begins.then_some(AwaitedRun { before });
        }
    }

    fn retry_now(&mut self, name: &Name) {
        if self.planner.retry_now(&Target::from(name), self.context.now())
            && let Some(entry) = self.units.get_mut(name)
        {
            entry.is_auto_restart = false;
        }
    }

    pub(super) fn wait_for_start(
        &mut self,
        name: &Name,
        before: Option<Incarnation>,
        reply: Reply<CallResult>,
    ) {
        self.managed.waiters.of(name).starts.push((before, reply));
    }

    pub(super) fn restart_after(&mut self, name: &Name, run: Incarnation) {
        self.managed.pending_restarts.insert(name.clone(), run);
    }

    /// Restarts the running units that stop with a unit which restarts by itself, as systemd does.
    /// They start again once that unit is active.
    pub(in super::super) fn restart_dependents_of_due_restarts(
        &mut self,
        now: fleet_core::Timestamp,
    ) {
        if self.managed.loaded_units.is_empty() {
            return;
        }
        for unit in self.planner.due_restarts(now) {
            for (dependent, run) in self.restart_with_dependents(&unit) {
                self.restart_after(&dependent, run);
            }
        }
    }

    /// Restarts a unit and all units that stop with it. For each of those other units that runs,
    /// returns its name and the run that has to end first.
    fn restart_with_dependents(&mut self, name: &Name) -> Vec<(Name, Incarnation)> {
        let mut ending = Vec::new();
        for unit in self.managed.linked.stopped_with(name) {
            let run = self.planner.status(&unit).and_then(|state| state.incarnation);
            if self.planner.restart(&Target::from(&unit)) {
                ending.extend(Some(unit).zip(run));
            }
        }
        self.planner.restart(&Target::from(name));
        ending
    }

    /// Stops a unit and all units that stop with it. A unit that is still needed is masked, so that
    /// it stays stopped until a unit that requires it is started.
    fn stop_unit(&mut self, name: &Name, reply: Reply<CallResult>) {
        let state = self.planner.status(name).filter(|state| may_have_processes(&state.state));
        self.stop_with_dependents(name);
        // The unit may have been waiting for a retry.
        let run = state.and_then(|state| state.incarnation);
        self.managed.waiters.of(name).stops.push((run, reply));
        self.touched.insert(name.clone());
    }

    /// Records that the requested state of a unit is applied, or that nothing has to be done for
    /// it.
    pub(super) fn record_applied(&mut self, name: &Name, requested: RequestedState) {
        let is_inactive = self.planner.is_inactive(name);
        if let Some(entry) = self.units.get_mut(name) {
            entry.record_applied(requested, is_inactive);
        }
    }
}

/// Returns the name of a unit in the graph.
pub(in super::super) fn name_of(unit: &UnitName) -> Name {
    Name::new(unit.as_str()).expect("each name of a unit of systemd is one of the graph")
}

impl Supervisor {
    /// Adds a loaded unit, or replaces the file of a unit that is loaded already.
    pub(in super::super) fn load(&mut self, mut loaded: LoadedUnit) -> CallResult {
        let name = name_of(&loaded.unit);
        loaded.requested = self.stopped_if_shutting_down(loaded.requested);
        if let Some((timer, relations)) = loaded.definition.timer() {
            self.managed.add_timer(&loaded.unit, relations);
            let LoadedUnit { unit, hash, requested, .. } = loaded;
            return self.timers.load(&unit, hash, requested, timer);
        }
        if self.managed.is_loaded(&name) {
            self.replace_file(&name, loaded);
        } else {
            self.add_unit(&name, loaded)?;
        }
        self.publish_status(&name);
        self.touched.insert(name);
        Ok(())
    }

    /// Sets the requested state of a loaded unit whose unit file has not changed.
    pub(in super::super) fn set_requested(&mut self, unit: &UnitName, requested: RequestedState) {
        let (name, requested) = (name_of(unit), self.stopped_if_shutting_down(requested));
        let loaded = self.managed.loaded_units.get_mut(&name);
        if let Some(loaded) = loaded {
            loaded.requested = requested;
            self.publish_status(&name);
        }
        self.timers.set_requested(unit, requested);
    }

    /// Corrects a requested state that was read before a shutdown began.
    fn stopped_if_shutting_down(&self, requested: RequestedState) -> RequestedState {
        if self.shutting_down { requested.stopped() } else { requested }
    }
}
