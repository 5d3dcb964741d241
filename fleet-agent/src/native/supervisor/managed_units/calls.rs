//! What fleet asks for, as a change of what the graph is to be.

use std::collections::BTreeSet;

use fleet_core::graph::{DerivedState, Incarnation, Name, NotReloadable, Target};
use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

use super::super::event_loop::{Supervisor, lock};
use super::waiters::{answer, is_busy, may_have_processes};
use super::{CallResult, LoadedUnit, Reply};
use crate::ServiceError;
use crate::native::shutdown_marker::shutdown_refusal;
use crate::native::unit_directory::RequestedState;

impl Supervisor {
    /// Has a unit run; one that failed gets a new attempt, and one that is up stays as it is.
    pub(in crate::native) fn start(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) {
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        self.request_start(&name);
        let state = self.system.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => self.record_applied(&name, requested),
            _ => drop(self.reset_failed(&Target::from(&name))),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit end, if it runs, and run again; so do those that are stopped with it.
    pub(in crate::native) fn restart(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) {
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        self.request_start(&name);
        self.reset_failed(&Target::from(&name));
        let state = self.system.status(&name).filter(|state| is_busy(&state.state));
        let before = state.and_then(|state| state.incarnation);
        for (unit, run) in self.restart_with_dependents(&name) {
            self.restart_after(&unit, run);
        }
        if let Some(run) = before {
            self.restart_after(&name, run);
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit run once more, within its limit of starts; one that is up stays as it is, and one
    /// that waits for its next attempt waits on. What was asked already is waited for.
    pub(in crate::native) fn trigger(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) {
        let before = self.managed.as_ref().and_then(|managed| managed.requested(&name_of(unit)));
        let Some((name, reply)) = self.accept_start(unit, requested, reply) else { return };
        if before.is_some_and(|before| before.trigger == requested.trigger) {
            // Nothing more comes of it where the unit was stopped since.
            return match requested.should_run() {
                true => self.wait_for_start(&name, None, reply),
                false => answer(reply, Ok(())),
            };
        }
        self.request_start(&name);
        let state = self.system.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => self.record_applied(&name, requested),
            _ => self.retry_now(&name),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit not run, and none that systemd would stop with it.
    pub(in crate::native) fn stop(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) {
        let Some((name, reply)) = self.accept_request(unit, requested, reply) else { return };
        // It is done once it is known what stays down with it.
        self.stop_unit(&name, reply);
        self.record_applied(&name, requested);
    }

    /// Has all units end: nothing is needed any more, so that they do in the order of the graph.
    pub(in crate::native) fn stop_all(
        &mut self,
        after: impl Fn(RequestedState) -> RequestedState,
    ) -> Vec<oneshot::Receiver<CallResult>> {
        self.apply_pending_loads();
        let Some(managed) = &mut self.managed else { return Vec::new() };
        managed.pending_restarts.clear();
        managed.shutting_down = true;
        let mut all = Vec::new();
        for (name, loaded) in &mut managed.loaded_units {
            loaded.requested = after(loaded.requested);
            managed.waiters.refuse_starts(name, &loaded.unit);
            all.push((name.clone(), loaded.requested));
        }
        // Nothing is wrong with wanting nothing.
        drop(self.system.set_goal(None, BTreeSet::new(), self.context.now()));
        all.into_iter().map(|(name, requested)| self.await_stop(&name, requested)).collect()
    }

    fn await_stop(
        &mut self,
        name: &Name,
        requested: RequestedState,
    ) -> oneshot::Receiver<CallResult> {
        let (reply, answer) = oneshot::channel();
        let state = self.system.status(name).filter(|state| may_have_processes(&state.state));
        if let Some(managed) = &mut self.managed {
            let run = state.and_then(|state| state.incarnation);
            managed.waiters.of(name).stops.push((run, reply));
        }
        self.record_applied(name, requested);
        self.publish_status(name);
        self.touched.insert(name.clone());
        answer
    }

    /// Has a unit end that is to be forgotten then.
    pub(in crate::native) fn begin_unload(&mut self, unit: &UnitName, reply: Reply) {
        let name = name_of(unit);
        // What was loaded or unloaded since has no say in how this one ends.
        self.apply_pending_files();
        let loaded = self.managed.as_mut().and_then(|managed| managed.loaded_units.get_mut(&name));
        let Some(loaded) = loaded else { return answer(reply, Ok(())) };
        loaded.unloading = true;
        self.stop_unit(&name, reply);
    }

    /// Forgets a unit whose records are gone.
    pub(in crate::native) fn forget(&mut self, unit: &UnitName) {
        let name = name_of(unit);
        let Some(managed) = &mut self.managed else { return };
        managed.loaded_units.remove(&name);
        managed.graph_is_stale = true;
        lock(&managed.statuses).remove(unit);
        self.units.remove(&name);
        lock(&self.logs).remove(&name);
        // What decides learns of it together with the rest.
        if self.selection.desired.mask.remove(&Target::from(&name)) {
            self.write_mask();
        }
        self.context.feed.report(unit);
    }

    /// Has a unit read its configuration again.
    pub(in crate::native) fn reload_managed(&mut self, unit: &UnitName, reply: Reply) {
        let name = name_of(unit);
        self.apply_pending_loads();
        let Some(managed) = &mut self.managed else { return };
        if !managed.loaded_units.contains_key(&name) {
            return answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
        }
        match self.system.request_reload(&Target::from(&name)) {
            Ok(()) => managed.waiters.of(&name).reloads.push(reply),
            Err(why) => {
                let problem = match why {
                    NotReloadable::NoCommand => {
                        "its file does not say how: add an ExecReload=, or restart it"
                    }
                    _ => "it is not active: start it",
                };
                let (unit, problem) = (unit.clone(), problem.to_owned());
                answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
            }
        }
        self.touched.insert(name);
    }

    /// Remembers what is asked of a unit. One that is not loaded cannot be asked anything.
    ///
    /// Its run is told only where it is the one that is meant: it writes that down as done.
    fn accept_request(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) -> Option<(Name, Reply)> {
        let name = name_of(unit);
        self.apply_pending_loads();
        let loaded = self.managed.as_mut().and_then(|managed| managed.loaded_units.get_mut(&name));
        let Some(loaded) = loaded else {
            answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
            return None;
        };
        (loaded.requested, loaded.unloading) = (requested, false);
        // Whoever asks next goes by what is seen.
        self.publish_status(&name);
        self.touched.insert(name.clone());
        Some((name, reply))
    }

    /// The same for what would have a unit run. Once all units are to end, none is started any
    /// more, also by a call that was on its way.
    fn accept_start(
        &mut self,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) -> Option<(Name, Reply)> {
        if self.managed.as_ref().is_some_and(|managed| managed.shutting_down) {
            answer(reply, Err(shutdown_refusal(unit)));
            return None;
        }
        self.accept_request(unit, requested, reply)
    }

    fn retry_now(&mut self, name: &Name) {
        if self.system.retry_now(&Target::from(name), self.context.now())
            && let Some(entry) = self.units.get_mut(name)
        {
            entry.is_auto_restart = false;
        }
    }

    pub(super) fn wait_for_start(
        &mut self,
        name: &Name,
        before: Option<Incarnation>,
        reply: Reply,
    ) {
        let Some(managed) = &mut self.managed else { return };
        managed.waiters.of(name).starts.push((before, reply));
    }

    fn restart_after(&mut self, name: &Name, run: Incarnation) {
        if let Some(managed) = &mut self.managed {
            managed.pending_restarts.insert(name.clone(), run);
        }
    }

    /// Has a unit started anew, with those that are stopped along, and tells which runs of these
    /// end.
    fn restart_with_dependents(&mut self, name: &Name) -> Vec<(Name, Incarnation)> {
        let Some(managed) = &self.managed else { return Vec::new() };
        let mut ending = Vec::new();
        for unit in managed.linked.stopped_with(name) {
            let run = self.system.status(&unit).and_then(|state| state.incarnation);
            if self.system.restart(&Target::from(&unit)) {
                ending.extend(Some(unit).zip(run));
            }
        }
        self.system.restart(&Target::from(name));
        ending
    }

    /// A unit ends, with all that are stopped with it; those that are needed all the same are
    /// masked until somebody starts what needs them.
    fn stop_unit(&mut self, name: &Name, reply: Reply) {
        let state = self.system.status(name).filter(|state| may_have_processes(&state.state));
        self.stop_with_dependents(name);
        if let Some(managed) = &mut self.managed {
            // It may have been waiting for its next attempt.
            let run = state.and_then(|state| state.incarnation);
            managed.waiters.of(name).stops.push((run, reply));
        }
        self.touched.insert(name.clone());
    }

    /// What was asked of a unit is done, or nothing comes of it.
    pub(super) fn record_applied(&mut self, name: &Name, requested: RequestedState) {
        let is_off = self.system.is_inactive(name);
        if let Some(entry) = self.units.get_mut(name) {
            entry.record_applied(requested, is_off);
        }
    }
}

/// The unit as the graph calls it.
pub(in crate::native) fn name_of(unit: &UnitName) -> Name {
    Name::new(unit.as_str()).expect("each name of a unit of systemd is one of the graph")
}

impl Supervisor {
    /// Takes a unit in that is loaded, or another file of one that is.
    pub(in crate::native) fn load(&mut self, mut loaded: LoadedUnit) -> CallResult {
        let name = name_of(&loaded.unit);
        loaded.requested = self.stopped_if_shutting_down(loaded.requested);
        if self.managed.as_ref().is_some_and(|managed| managed.is_loaded(&name)) {
            self.replace_file(&name, loaded);
        } else {
            self.add_unit(&name, loaded)?;
        }
        self.publish_status(&name);
        self.touched.insert(name);
        Ok(())
    }

    /// Remembers what is asked of a unit by its load.
    pub(in crate::native) fn set_requested(&mut self, unit: &UnitName, requested: RequestedState) {
        let (name, requested) = (name_of(unit), self.stopped_if_shutting_down(requested));
        let loaded = self.managed.as_mut().and_then(|managed| managed.loaded_units.get_mut(&name));
        if let Some(loaded) = loaded {
            loaded.requested = requested;
            self.publish_status(&name);
        }
    }

    /// What is asked of a unit by a load, which had read what was asked before all were to end.
    fn stopped_if_shutting_down(&self, requested: RequestedState) -> RequestedState {
        let shutting_down = self.managed.as_ref().is_some_and(|managed| managed.shutting_down);
        if shutting_down { requested.stopped() } else { requested }
    }
}
