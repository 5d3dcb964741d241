//! The requests for loaded units, mapped to changes of the planner and its targets.

use std::collections::BTreeSet;

use fleet_core::graph::{
    DerivedState, Graph, Incarnation, Name, NotReloadable, StatusReport, Target,
};
use fleet_unitfile::UnitName;

use super::super::command::{CallResult, Reply, answer};
use super::super::core::Core;
use super::super::requests::UnitRequest;
use super::super::units::SupervisedUnit;
use super::status::{AwaitedRun, LoadedUnit, name_of};
use super::waiters::{is_busy, is_over, may_have_processes};
use super::{ManagedUnits, PulledStarter};
use crate::ServiceError;
use crate::native::state::manager_context::shutdown_refusal;
use crate::native::state::unit_directory::RequestedState;

impl ManagedUnits {
    /// Carries out a request for a loaded unit.
    pub(in super::super) fn carry_out(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        request: UnitRequest,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        if self.starters.is_loaded(unit) {
            let done = self.starters.carry_out(unit, request, requested);
            if matches!(request, UnitRequest::Stop | UnitRequest::Unload) {
                // A socket or path also stops the units that require it.
                self.apply_pending_loads(core);
                self.stop_with_dependents(core, &name_of(unit));
            }
            return answer(reply, done);
        }
        match request {
            // Only timers and activators are pulled.
            UnitRequest::Start(_) | UnitRequest::Pull => self.start(core, unit, requested, reply),
            UnitRequest::Restart(_) => self.restart(core, unit, requested, reply),
            UnitRequest::Trigger(_) => self.trigger(core, unit, requested, reply),
            UnitRequest::Stop => self.stop(core, unit, requested, reply),
            UnitRequest::Unload => self.begin_unload(core, unit, requested, reply),
        }
    }

    /// Returns the timers and activators to start before a unit, or why the unit cannot be started.
    pub(in super::super) fn prepare_start(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
    ) -> Result<Vec<PulledStarter>, ServiceError> {
        if self.starters.is_loaded(unit) {
            return self.starters.check_start(unit).map(|()| Vec::new());
        }
        Ok(self.starters_of(core, unit))
    }

    /// Starts a unit. A failed unit is tried again, and an active unit stays as it is.
    fn start(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        self.await_run(core, &name_of(unit), false);
        let Some((name, reply)) = self.accept_start(core, unit, requested, reply) else { return };
        self.request_start(core, &name);
        let state = core.planner.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => core.record_applied(&name, requested),
            _ => drop(core.reset_failed(&Target::from(&name))),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Restarts a unit, or starts it if it does not run. Also restarts all running units that
    /// systemd would stop together with the unit.
    fn restart(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        self.await_run(core, &name_of(unit), true);
        let Some((name, reply)) = self.accept_start(core, unit, requested, reply) else { return };
        self.request_start(core, &name);
        core.reset_failed(&Target::from(&name));
        let state = core.planner.status(&name).filter(|state| is_busy(&state.state));
        let before = state.and_then(|state| state.incarnation);
        for (unit, run) in self.restart_with_dependents(core, &name) {
            self.restart_after(&unit, run);
        }
        if let Some(run) = before {
            self.restart_after(&name, run);
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Starts a unit on behalf of a timer or activator, within its start limit. An active unit
    /// stays as it is, and a unit that waits for a retry keeps waiting. If the same elapse or event
    /// has been requested before (`trigger` is unchanged), the call only waits for the start.
    fn trigger(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        let before = self.requested(&name_of(unit));
        let Some((name, reply)) = self.accept_start(core, unit, requested, reply) else { return };
        if before.is_some_and(|before| before.trigger == requested.trigger) {
            // A unit that was stopped since will not start for this request.
            return match requested.should_run() {
                true => self.wait_for_start(&name, None, reply),
                false => answer(reply, Ok(())),
            };
        }
        self.request_start(core, &name);
        let state = core.planner.status(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.state, DerivedState::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.restart_after(&name, run),
            (None, Some(state)) if is_busy(&state.state) => core.record_applied(&name, requested),
            _ => self.retry_now(core, &name),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Stops a unit, and all units that systemd would stop with it.
    fn stop(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        let Some((name, reply)) = self.accept_request(core, unit, requested, reply) else { return };
        // Recorded only once the units that stop with it are known.
        self.stop_unit(core, &name, reply);
        core.record_applied(&name, requested);
    }

    /// Stops a unit that is about to be unloaded. `requested` is its requested state after the
    /// stop, which applies if the unit is not unloaded after all.
    fn begin_unload(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) {
        let name = name_of(unit);
        // A unit loaded or unloaded meanwhile must not affect this stop.
        self.apply_pending_files(core);
        let loaded = self.loaded_units.get_mut(&name);
        let Some(loaded) = loaded else { return answer(reply, Ok(())) };
        (loaded.requested, loaded.unloading, loaded.awaited) = (requested, true, None);
        self.publish_status(core, &name);
        self.stop_unit(core, &name, reply);
        core.record_applied(&name, requested);
    }

    /// Records the requested state of a loaded unit. If the unit is not loaded, answers the call
    /// with an error and returns `None`.
    ///
    /// The requested state is not passed to the current run yet, because each run stores the state
    /// that it gets as applied. Only the run that fulfils the request may do that, and it may be a
    /// later one.
    fn accept_request(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) -> Option<(Name, Reply<CallResult>)> {
        let name = name_of(unit);
        self.apply_pending_loads(core);
        let loaded = self.loaded_units.get_mut(&name);
        let Some(loaded) = loaded else {
            answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
            return None;
        };
        (loaded.requested, loaded.unloading) = (requested, false);
        if !requested.should_run() {
            loaded.awaited = None;
        }
        // The next call reads the published status.
        self.publish_status(core, &name);
        self.touched.insert(name.clone());
        Some((name, reply))
    }

    /// Does the same as [`accept_request`](Self::accept_request), for a request that starts a unit.
    /// During a shutdown the request is refused, even if the caller sent it before the shutdown
    /// began.
    fn accept_start(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply<CallResult>,
    ) -> Option<(Name, Reply<CallResult>)> {
        if core.shutting_down {
            answer(reply, Err(shutdown_refusal(unit)));
            return None;
        }
        self.accept_request(core, unit, requested, reply)
    }

    /// Hides the earlier run of a unit that is about to start or restart, until the result of the
    /// new run is known. A unit that is up and only started stays as it is.
    fn await_run(&mut self, core: &mut Core, name: &Name, is_restart: bool) {
        let busy = core.planner.status(name).filter(|state| is_busy(&state.state));
        let stays =
            |it: &StatusReport| !is_restart && !matches!(it.state, DerivedState::Stopping(_));
        let begins = !busy.as_ref().is_some_and(stays);
        let before = busy.and_then(|state| state.incarnation);
        if core.shutting_down {
            return;
        }
        if let Some(loaded) = self.loaded_units.get_mut(name) {
            loaded.awaited = begins.then_some(AwaitedRun { before });
        }
    }

    /// Tries a failed or completed unit again at once, if it waits for a retry.
    pub(super) fn retry_now(&mut self, core: &mut Core, name: &Name) {
        if core.planner.retry_now(&Target::from(name), core.now())
            && let Some(entry) = core.units.get_mut(name)
        {
            entry.is_auto_restart = false;
        }
    }

    /// Answers a caller once the start of a unit has a result. `before` is the run that must end
    /// first.
    pub(super) fn wait_for_start(
        &mut self,
        name: &Name,
        before: Option<Incarnation>,
        reply: Reply<CallResult>,
    ) {
        self.waiters.of(name).starts.push((before, reply));
    }

    /// Restarts a unit once this run of it is over.
    pub(super) fn restart_after(&mut self, name: &Name, run: Incarnation) {
        self.pending_restarts.insert(name.clone(), run);
    }

    /// Restarts a unit and all units that stop with it. For each of those other units that runs,
    /// returns its name and the run that has to end first.
    pub(super) fn restart_with_dependents(
        &mut self,
        core: &mut Core,
        name: &Name,
    ) -> Vec<(Name, Incarnation)> {
        let mut ending = Vec::new();
        for unit in self.graph.stopped_with(name) {
            let run = core.planner.status(&unit).and_then(|state| state.incarnation);
            if core.planner.restart(&Target::from(&unit)) {
                ending.extend(Some(unit).zip(run));
            }
        }
        core.planner.restart(&Target::from(name));
        ending
    }

    /// Stops a unit and all units that stop with it. A unit that is still needed is masked, so that
    /// it stays stopped until a unit that requires it is started.
    fn stop_unit(&mut self, core: &mut Core, name: &Name, reply: Reply<CallResult>) {
        let state = core.planner.status(name).filter(|state| may_have_processes(&state.state));
        self.stop_with_dependents(core, name);
        // The unit may have been waiting for a retry.
        let run = state.and_then(|state| state.incarnation);
        self.waiters.of(name).stops.push((run, reply));
        self.touched.insert(name.clone());
    }

    /// Reloads the configuration of a unit.
    pub(in super::super) fn reload(
        &mut self,
        core: &mut Core,
        unit: &UnitName,
        reply: Reply<CallResult>,
    ) {
        let name = name_of(unit);
        self.apply_pending_loads(core);
        if self.starters.is_loaded(unit) {
            let kind = unit.unit_type();
            let problem = format!("a {kind} has no configuration of its own: load its file again");
            let unit = unit.clone();
            return answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
        }
        if !self.is_loaded(&name) {
            return answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
        }
        let result = core.planner.request_reload(&Target::from(&name));
        // systemd refuses the reload before it propagates it.
        let is_propagated = result != Err(NotReloadable::NoCommand) || self.passes_reload(&name);
        if is_propagated {
            self.propagate_reload(core, &name);
        }
        match result {
            Ok(()) => self.waiters.of(&name).reloads.push(reply),
            Err(NotReloadable::NoCommand) if is_propagated => answer(reply, Ok(())),
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

    /// Requests the start of a unit, and unmasks everything that it requires.
    pub(super) fn request_start(&mut self, core: &mut Core, name: &Name) {
        let needed = requirements(core.planner.graph(), name);
        core.targets.unmask_started(&mut core.planner, &needed, core.context.now());
        self.sync_desired(core, name);
        // A new attempt includes the failed units that it requires.
        for target in needed.iter().filter(|target| target.as_str() != name.as_str()) {
            let unit = core.planner.graph().provider(target).map(|unit| unit.name.clone());
            let Some(unit) = unit else { continue };
            if core.planner.status(&unit).is_some_and(|state| is_over(&state.state)) {
                core.reset_failed(target);
                // Otherwise the stored state would keep the next daemon from starting the unit.
                core.units.get_mut(&unit).into_iter().for_each(SupervisedUnit::clear_result);
            }
        }
    }

    /// Stops a unit and all units that stop with it, and masks those that are still needed.
    pub(super) fn stop_with_dependents(&mut self, core: &mut Core, name: &Name) {
        self.sync_desired(core, name);
        let mut all = self.graph.stopped_after(name);
        all.insert(name.clone());
        let (mut mask, mut over) = (Vec::new(), Vec::new());
        for unit in &all {
            let Some(loaded) = self.loaded_units.get_mut(unit) else { continue };
            loaded.awaited = None;
            self.pending_restarts.remove(unit);
            self.waiters.refuse_starts(unit, &loaded.unit);
            if core.planner.status(unit).is_some_and(|state| state.needed) {
                mask.push(Target::from(unit));
            }
            if unit != name {
                over.push((unit.clone(), loaded.requested));
            }
        }
        core.targets.mask_stopped(&mut core.planner, mask, core.context.now());
        // A pending start is cancelled, for the next daemon too.
        for (unit, requested) in over {
            core.record_applied(&unit, requested);
        }
    }

    /// Adds the target of a unit to the planner's extra targets if the unit should run and the
    /// graph provides the target. Removes the target if the unit should not run.
    fn sync_desired(&mut self, core: &mut Core, name: &Name) {
        let loaded = self.loaded_units.get(name).filter(|_| !core.shutting_down);
        let should_run = loaded.is_some_and(LoadedUnit::should_run);
        let (target, now) = (Target::from(name), core.now());
        if !should_run {
            core.planner.remove_extra_target(&target, now);
        } else if core.planner.graph().provider(&target).is_some()
            && let Err(error) = core.planner.add_extra_target(target, now)
        {
            tracing::error!(%error, unit = %name, "cannot start a unit that should run");
        }
    }
}

/// Returns the targets of a unit and of all units that it requires.
pub(super) fn requirements(graph: &Graph, name: &Name) -> BTreeSet<Target> {
    let mut found = BTreeSet::from([Target::from(name)]);
    let mut open = vec![name.clone()];
    while let Some(next) = open.pop() {
        for (_, unit) in graph.dependencies(&next).into_iter().filter(|(kind, _)| kind.requires()) {
            if found.insert(Target::from(&unit.name)) {
                open.push(unit.name.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::{UnitFile, UnitName};
    use tokio::sync::oneshot;

    use super::super::status::tests::{call, load, open, request, start};
    use super::super::{Definition, LoadedUnit, name_of};
    use crate::native::supervisor::Supervisor;
    use crate::native::supervisor::compile::compile;

    fn another_file(supervisor: &Supervisor, unit: &UnitName) -> LoadedUnit {
        let text = "[Service]\nExecStart=/bin/sleep 1001\n";
        let file = UnitFile::parse(text).expect("it is well formed");
        let compiled = compile(unit, &file, &supervisor.host).expect("it is supported");
        LoadedUnit::new(unit.clone(), file.hash(), start(1), Definition::Valid(Box::new(compiled)))
    }

    /// The requested state is read before the shutdown. It is passed to the supervisor only after
    /// the shutdown has begun, as happens when the disk is slow.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_overtaken_by_a_shutdown_starts_nothing() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let units: Vec<UnitName> =
            ["a.service", "b.service"].map(|unit| unit.parse().expect("it is a name")).into();
        for unit in units.clone() {
            load(&handle, &unit, "[Service]\nExecStart=/bin/sleep 1000\n").await;
            let started = call(&handle, move |it| request(it, &unit, start(1))).await;
            started.await.expect("it is answered").expect("it starts");
        }
        let (replaced, noted) = (units[0].clone(), units[1].clone());
        let (reply, stopped) = oneshot::channel();
        call(&handle, move |supervisor| {
            supervisor.shut_down(reply);
            let loaded = another_file(supervisor, &replaced);
            let (managed, core) = (&mut supervisor.managed, &mut supervisor.core);
            managed.load(core, loaded).expect("it is loaded");
            managed.set_requested(core, &noted, start(1));
        })
        .await;
        assert!(stopped.await.expect("it is answered").is_empty(), "all units stop");
        for unit in units {
            let (busy, requested) = call(&handle, move |supervisor| {
                let name = name_of(&unit);
                supervisor.managed.apply_pending_files(&mut supervisor.core);
                supervisor.turn();
                let requested = supervisor.managed.requested(&name);
                (supervisor.core.units.get(&name).is_some_and(|it| it.handle.is_some()), requested)
            })
            .await;
            assert_eq!(
                (busy, requested),
                (false, Some(start(1).stopped())),
                "it was started again"
            );
        }
    }
}
