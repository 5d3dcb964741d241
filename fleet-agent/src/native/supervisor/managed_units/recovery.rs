//! Opens the units that an earlier daemon left in its directory: loaded units, requested states,
//! running processes, timers
//! and activators. `supervisor/recovery.rs` recovers units of files, and lists the
//! differences.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::AcceptedOptions;
use fleet_core::graph::{
    DerivedState, Graph, Incarnation, InitState, Name, Observation, ObservedUnit, Settings, Target,
};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use tokio::sync::oneshot;

use super::super::command::SupervisorHandle;
use super::super::compile::{HostCapabilities, compile, host_capabilities};
use super::super::core::Core;
use super::super::starters::is_starter;
use super::super::units::{SupervisedUnit, Units};
use super::super::{Supervisor, UnitSource};
use super::ManagedUnits;
use super::external::External;
use super::graph::LoadedGraph;
use super::status::{Definition, LoadedUnit, name_of};
use crate::ServiceError;
use crate::native::linux::limits::check_descriptors_left;
use crate::native::run::adopt::{observe_ended, resume};
use crate::native::run::driver::RunDriver;
use crate::native::state::desired_targets::TargetSelection;
use crate::native::state::manager_context::{ManagerContext, TARGETS};
use crate::native::state::unit_directory::{PendingRequest, RunRecord, StoredUnit};
use crate::native::supervisor::command::{SupervisorConfig, io_error};

/// Configuration of managed units, in addition to that of any supervisor.
pub(in crate::native) struct ManagedUnitsConfig {
    pub(in crate::native) accept: AcceptedOptions,
    pub(in crate::native) external: BTreeMap<UnitName, External>,
    pub(in crate::native) max_starting: Option<NonZeroU32>,
}

/// Recovered state of one unit.
struct RecoveredUnit {
    name: Name,
    loaded: LoadedUnit,
    entry: SupervisedUnit,
    observed: Option<ObservedUnit>,
    driver: Option<(Incarnation, RunDriver)>,
    /// The pending request: stored, but not yet applied.
    pending: PendingRequest,
}

impl SupervisorHandle {
    /// Opens the directory of loaded units, and continues with the units that an earlier daemon has
    /// left in it.
    pub(in crate::native) async fn open_loaded(
        config: SupervisorConfig,
        managed: ManagedUnitsConfig,
    ) -> Result<Self, ServiceError> {
        let ManagedUnitsConfig { accept, external, max_starting } = managed;
        let context = config.open().await?;
        let host = host_capabilities(
            accept,
            context.controllers(),
            context.has_cgroup_filters(),
            context.executor.is_some(),
        );
        let targets_file = context.runtime_file(TARGETS);
        let selection = TargetSelection::read(&targets_file).unwrap_or_else(|error| {
            tracing::error!(
                %error,
                file = %targets_file.display(),
                "cannot read which units were stopped by request: those that other units require \
                 might start again"
            );
            None
        });
        let settings = Settings::default();
        let selection = selection.unwrap_or_else(|| TargetSelection::from_settings(&settings));
        let none = InitState::restore(Graph::default(), &settings, Observation::default());
        let planner = none.expect("nothing is wrong with no goal");
        let graph = LoadedGraph::new(external, max_starting);
        let mut supervisor =
            Supervisor::new(context, host, UnitSource::Loads, (planner, selection), graph);
        supervisor.managed.recover(&mut supervisor.core, &supervisor.host).await?;
        // Otherwise the next daemon would ignore requests from now on.
        let removed = supervisor.core.context.shutdown.remove();
        removed.map_err(io_error("complete an earlier shutdown"))?;
        Ok(supervisor.spawn())
    }
}

impl ManagedUnits {
    /// Recovers the units that an earlier daemon has stored.
    async fn recover(
        &mut self,
        core: &mut Core,
        host: &HostCapabilities,
    ) -> Result<(), ServiceError> {
        let context = Arc::clone(&core.context);
        let was_shutting_down = context.shutdown.exists();
        let was_shutting_down =
            was_shutting_down.map_err(io_error("complete an earlier shutdown"))?;
        // Before the requested states are read.
        let applied =
            context.directories().and_then(|all| context.shutdown.apply_to(all.into_iter()));
        applied.map_err(io_error("complete an earlier shutdown"))?;
        self.starters.prepare().map_err(io_error("read the stored timers"))?;
        let mut starters = Vec::new();
        let recovered = recover_units(&context, host, &mut starters, &mut core.units)
            .map_err(io_error("read the stored units"))?;
        for (starter, stored) in &starters {
            self.recover_starter(starter, stored, host);
        }
        self.graph.require_externals(recovered.iter().map(|unit| &unit.loaded));
        let up = self.graph.externals().find_up(&*context.clock).await;
        self.resume_all(core, recovered, up);
        self.starters.resume(was_shutting_down);
        Ok(())
    }

    /// Adds a timer or activator that an earlier daemon has stored. One that cannot be read must
    /// not keep others from being recovered.
    fn recover_starter(&mut self, unit: &UnitName, stored: &StoredUnit, host: &HostCapabilities) {
        let file = UnitFile::parse_collecting(&stored.0).0;
        let compiled = compile(unit, &file, host).inspect_err(|bad| {
            let (line, problem) = (bad.line, &bad.problem);
            let text = "cannot start a timer, socket or path: the saved unit file is invalid";
            tracing::warn!(%unit, line, problem, "{text}");
        });
        let compiled = compiled.ok();
        if let Some(compiled) = &compiled {
            self.graph.insert_starter(unit, &compiled.relations);
        }
        let (hash, compiled) = (file.hash(), compiled.as_ref());
        let recovered = match unit.unit_type() {
            UnitType::Timer => {
                let timer = compiled.and_then(|compiled| compiled.timer.as_ref());
                self.starters.timers.recover(unit, hash, timer, stored)
            }
            _ => {
                let activator = compiled.and_then(|compiled| compiled.activator.as_ref());
                self.starters.activators.recover(unit, hash, activator, stored)
            }
        };
        if let Err(error) = recovered {
            tracing::error!(
                %unit,
                %error,
                "cannot read the saved state of a timer, socket or path: it starts nothing"
            );
        }
    }

    /// Continues the runs of the recovered units, and applies each request that an earlier daemon
    /// stored but did not apply. `up` lists the external units that a probe found to be up.
    fn resume_all(&mut self, core: &mut Core, recovered: Vec<RecoveredUnit>, up: Vec<Name>) {
        let first = recovered.len() as u64 + 1;
        let (mut found, mut drivers, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for RecoveredUnit { name, loaded, entry, observed, driver, pending: is_pending } in
            recovered
        {
            let descriptors = loaded.definition.descriptors();
            core.context.descriptors.set_service(name.as_str(), descriptors);
            self.insert(name.clone(), loaded);
            core.units.insert(name.clone(), entry);
            found.extend(observed.map(|observed| (name.clone(), observed)));
            if is_pending != PendingRequest::Nothing {
                let run = driver.as_ref().map(|(run, _)| *run);
                pending.push((name.clone(), is_pending, run));
            }
            drivers.extend(driver.map(|(run, driver)| (name, run, driver)));
        }
        // Recovered units must not lose the external units that they depend on.
        let up = up.into_iter().filter(|name| !self.is_loaded(name));
        for (name, run) in up.zip((first..).map(Incarnation)) {
            let observed = self.graph.externals().observed_up(&name, run, &*core.context.clock);
            found.push((name, observed));
        }
        self.relink(core, found);
        for (name, run, mut driver) in drivers {
            driver.set_monitor(self.monitor_variables(core, &name));
            core.units.spawn_run(&name, run, driver);
        }
        for (name, pending, run) in pending {
            self.apply_pending(core, &name, pending, run);
        }
        // Publishes the status of all units before the first turn.
        core.units.names().iter().for_each(|name| self.publish_status(core, name));
    }

    /// Applies a request that an earlier daemon has stored but not applied. `run` is the current
    /// run of the unit, if it has one.
    ///
    /// If this run has to end before the request can be fulfilled, the request is not passed to it.
    /// The run would store the request as applied.
    fn apply_pending(
        &mut self,
        core: &mut Core,
        name: &Name,
        pending: PendingRequest,
        run: Option<Incarnation>,
    ) {
        let requested = self.requested(name).unwrap_or_default();
        match pending {
            PendingRequest::Nothing => return,
            PendingRequest::Stop => {
                self.stop_with_dependents(core, name);
                return core.record_applied(name, requested);
            }
            PendingRequest::Start | PendingRequest::Restart | PendingRequest::Elapse => {
                self.request_start(core, name);
            }
        }
        let Some(run) = run else {
            // A target has no run that would store the request as applied; the waiter does, as for
            // a call.
            return self.wait_for_start(name, None, oneshot::channel().0);
        };
        let state = core.planner.status(name);
        let is_stopping =
            state.is_some_and(|state| matches!(state.state, DerivedState::Stopping(_)));
        if pending != PendingRequest::Restart && !is_stopping {
            return core.record_applied(name, requested);
        }
        core.planner.restart(&Target::from(name));
        self.restart_after(name, run);
    }
}

fn recover_units(
    context: &Arc<ManagerContext>,
    host: &HostCapabilities,
    starters: &mut Vec<(UnitName, StoredUnit)>,
    units: &mut Units,
) -> io::Result<Vec<RecoveredUnit>> {
    let (mut recovered, mut running) = (Vec::new(), 0);
    for name in context.known_units()? {
        let Ok(unit) = UnitName::parse(&name) else { continue };
        if is_starter(&unit) {
            let directory = context.directory(unit.as_str());
            match directory.read() {
                Ok(Some(stored)) => starters.push((unit, stored)),
                Ok(None) => directory.remove()?,
                Err(error) => tracing::error!(
                    %unit,
                    %error,
                    "cannot read the saved state of a timer, socket or path: it starts nothing"
                ),
            }
            continue;
        }
        let incarnation = Incarnation(recovered.len() as u64 + 1);
        let found = recover_unit(context, host, &unit, incarnation);
        let may_run = match &found {
            Ok(back) => back.as_ref().is_some_and(|back| back.driver.is_some()),
            Err(_) => true,
        };
        if may_run {
            check_descriptors_left(running)?;
            running += 1;
        }
        match found {
            Ok(back) => recovered.extend(back),
            // A unit that cannot be read must not keep others from being recovered. It is not
            // loaded, and cannot be loaded while its stored run is invalid.
            Err(error) => {
                tracing::error!(
                    %unit,
                    %error,
                    "cannot read the saved state of a unit: the unit's processes are not supervised"
                );
                limit_log(context, &unit, units);
            }
        }
    }
    // The order of loading is lost. Of units that exclude each other, running ones win.
    let runs = |back: &RecoveredUnit| back.driver.is_some();
    recovered.sort_by(|a, b| (!runs(a), &a.name).cmp(&(!runs(b), &b.name)));
    Ok(recovered)
}

/// Keeps the log of an unrecoverable unit within its size limit, because the unit's processes may
/// still write to it.
fn limit_log(context: &ManagerContext, unit: &UnitName, units: &mut Units) {
    match context.open_log(context.directory(unit.as_str()).log()) {
        Ok(log) => units.insert_log(name_of(unit), log),
        Err(error) => {
            let text = "cannot open the log of a unit: the log grows without limit";
            tracing::error!(%unit, %error, "{text}");
        }
    }
}

fn recover_unit(
    context: &Arc<ManagerContext>,
    host: &HostCapabilities,
    unit: &UnitName,
    incarnation: Incarnation,
) -> io::Result<Option<RecoveredUnit>> {
    let name = name_of(unit);
    let directory = context.directory(unit.as_str());
    let Some((source, requested, run)) = directory.read()? else {
        directory.remove()?;
        return Ok(None);
    };
    let (file, _) = UnitFile::parse_collecting(&source);
    let definition = compile(unit, &file, host).map_or_else(
        |bad| {
            let (line, problem) = (bad.line, &bad.problem);
            tracing::warn!(
                %unit,
                line,
                problem,
                "cannot start a unit: the saved unit file is invalid"
            );
            Definition::Invalid(bad.problem)
        },
        |compiled| Definition::Valid(Box::new(compiled)),
    );
    let loaded = LoadedUnit::new(unit.clone(), file.hash(), requested, definition);
    let mut entry = SupervisedUnit::new(context, &name)?;
    let run = match run {
        Some(run) => run,
        // An operator may have removed the file, as the error for an invalid one suggests. The
        // requested state then counts as applied, so that no stopped dependency is started again.
        None => {
            let run = RunRecord { requested, ..RunRecord::default() };
            directory.write_run(&run)?;
            run
        }
    };
    let pending = requested.pending_since(run.requested);
    entry.applied = run.requested;
    let (observed, driver) = recover_run(context, &loaded, &mut entry, run, pending, incarnation)?;
    let driver = driver.map(|driver| (incarnation, driver));
    Ok(Some(RecoveredUnit { name, loaded, entry, observed, driver, pending }))
}

/// Returns the observed state of a unit for the planner, and the driver of its run if the run
/// continues. Returns no observed state if a pending request starts the unit anyway.
fn recover_run(
    context: &Arc<ManagerContext>,
    loaded: &LoadedUnit,
    entry: &mut SupervisedUnit,
    run: RunRecord,
    pending: PendingRequest,
    incarnation: Incarnation,
) -> io::Result<(Option<ObservedUnit>, Option<RunDriver>)> {
    let definition = loaded.definition();
    entry.run_state = Arc::new(run.run_state.clone());
    if run.run_state.is_in_progress() {
        let name = name_of(&loaded.unit);
        let (observed, driver) =
            resume(context, &entry.stored(&name, &definition), run, incarnation)?;
        return Ok((Some(observed), Some(driver)));
    }
    let now: Timestamp = context.now();
    let is_to_run =
        matches!(pending, PendingRequest::Start | PendingRequest::Restart | PendingRequest::Elapse);
    let observed = (!is_to_run).then(|| observe_ended(&definition, &entry.run_state, now));
    entry.is_auto_restart = observed.as_ref().is_some_and(|observed| observed.retry_at.is_some());
    Ok((observed, None))
}
