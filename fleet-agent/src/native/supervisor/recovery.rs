//! Recovery of units of files: reads which units an earlier `fleet-init` left in its directory.
//!
//! The units of `fleetd` are recovered in `managed_units/recovery.rs`. Both read the same records,
//! and `run/adopt.rs` derives the state of a unit and adopts its processes for both. They differ in
//! what else they know:
//!
//! | | units of files | loaded units |
//! |---|---|---|
//! | known units | those of the graph, and those that still run | those with a stored file |
//! | definition of a run | stored with the run, as files may have changed | the stored file |
//! | needed units | by the goal | by the stored requests, which are applied now if necessary |
//! | unreadable record | shows the unit as failed, for an operator | the unit is not loaded |
//!
//! # Units that cannot be recovered
//!
//! The processes of such a unit may still run, so the supervisor starts no new run beside them. It
//! reports the unit as failed with processes left, together with the reason, until the unit can be
//! recovered or an operator resets it. Other units are unaffected. The log of the unit is still
//! kept within its size limit, and can be read.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::AcceptedOptions;
use fleet_core::graph::{
    EventKind, FailureCause, Graph, Incarnation, InitState, InitUnit, Name, Observation,
    ObservedUnit, Phase, Settings,
};

use super::command::{LANGUAGE, SupervisorConfig, SupervisorError, SupervisorHandle, io_error};
use super::compile::host_capabilities;
use super::core::Core;
use super::managed_units::LoadedGraph;
use super::targets::restore_state;
use super::units::{SupervisedUnit, read_definition};
use super::{Supervisor, UnitSource};
use crate::native::linux::limits::check_descriptors_left;
use crate::native::run::adopt::{observe_run, resume, stop_only_definition};
use crate::native::run::driver::RunDriver;
use crate::native::state::desired_targets::TargetSelection;
use crate::native::state::manager_context::{ManagerContext, TARGETS};
use crate::native::state::unit_directory::{RunRecord, UnitDirectory};

/// Recovered state of all units: the observed unit states for the planner, the supervisor's own
/// state of each unit, and the runs to continue. Units that cannot be recovered are listed with the
/// reason.
#[derive(Default)]
pub(super) struct Recovery {
    pub(super) observation: Observation,
    pub(super) units: BTreeMap<Name, SupervisedUnit>,
    pub(super) runs: Vec<(Name, Incarnation, RunDriver)>,
    pub(super) unrecoverable: BTreeMap<Name, String>,
}

impl SupervisorHandle {
    /// Opens the directory of units of files, and continues with what an earlier supervisor has
    /// left in it.
    pub(in crate::native) async fn open_files(
        config: SupervisorConfig,
        graph: Graph,
        settings: &Settings,
    ) -> Result<Self, SupervisorError> {
        let config = config.with_language(std::env::var(LANGUAGE).ok());
        let context = config.open().await?;
        let recovery =
            Recovery::read(&context, &graph).map_err(io_error("read the stored state"))?;
        let stored = TargetSelection::read(&context.runtime_file(TARGETS))
            .map_err(io_error("read the desired targets"))?;
        let Recovery { observation, units, runs, unrecoverable } = recovery;
        let is_written = stored.is_some();
        let restored = restore_state(graph, settings, observation, stored)?;
        let accept = AcceptedOptions::default();
        let host = host_capabilities(
            accept,
            context.controllers(),
            context.has_cgroup_filters(),
            context.executor.is_some(),
        );
        let mut supervisor =
            Supervisor::new(context, host, UnitSource::Files, restored, LoadedGraph::default());
        let core = &mut supervisor.core;
        for (unit, entry) in units {
            core.units.insert(unit, entry);
        }
        core.unrecoverable = unrecoverable;
        if is_written {
            // Stores the new configured targets, which later overrides are compared with.
            core.targets.write()?;
        }
        for (unit, incarnation, driver) in runs {
            core.units.spawn_run(&unit, incarnation, driver);
        }
        core.take_over_definitions(&core.units.names());
        Ok(supervisor.spawn())
    }
}

impl Recovery {
    /// Reads everything that an earlier supervisor has stored.
    pub(super) fn read(context: &Arc<ManagerContext>, graph: &Graph) -> io::Result<Self> {
        let mut recovery = Self::default();
        for name in context.known_units()? {
            let Ok(name) = Name::new(&name) else { continue };
            let count = |recovery: &Self| recovery.runs.len() + recovery.unrecoverable.len();
            let before = count(&recovery);
            recovery.recover_unit(context, graph, &name);
            if count(&recovery) > before {
                check_descriptors_left(recovery.runs.len())?;
            }
        }
        recovery.observation.add_virtual(graph, context.now(), |_| true);
        Ok(recovery)
    }

    /// Recovers a unit. A failure does not keep other units from being recovered.
    pub(super) fn recover_unit(
        &mut self,
        context: &Arc<ManagerContext>,
        graph: &Graph,
        name: &Name,
    ) {
        if let Err(error) = self.try_recover_unit(context, graph, name) {
            tracing::error!(
                unit = %name,
                %error,
                "cannot read the saved state of a unit: the unit's processes are not supervised"
            );
            self.observation.last = Incarnation(self.observation.last.0 + 1);
            let observed = unrecoverable_state(graph, name, self.observation.last, context.now());
            self.observation.units.insert(name.clone(), observed);
            self.unrecoverable.insert(name.clone(), reason(name, &error));
            // Its processes may still write to the log.
            if let Err(error) = entry_of(&mut self.units, context, name) {
                tracing::error!(
                    unit = %name,
                    %error,
                    "cannot open the log of a unit: the log grows without limit"
                );
            }
        }
    }

    fn try_recover_unit(
        &mut self,
        context: &Arc<ManagerContext>,
        graph: &Graph,
        name: &Name,
    ) -> io::Result<()> {
        let directory = context.storage(name.as_str());
        let present = graph.unit(name);
        let Some(run) = directory.read_run()? else {
            self.units.remove(name);
            return Ok(());
        };
        if !run.run_state.is_in_progress() && present.is_none() {
            self.units.remove(name);
            return directory.remove();
        }
        let definition = match (definition(&directory, graph, name), present) {
            // No process was started from another definition.
            (Err(_), Some(present)) if !run.run_state.is_in_progress() => Arc::clone(present),
            (definition, _) => definition?,
        };
        let incarnation = Incarnation(self.observation.last.0 + 1);
        let (run_state, now) = (run.run_state.clone(), context.now());
        let mut observed = observe_run(&definition, &run_state, incarnation, now);
        // Another definition clears a start limit hit, even if it changed while no supervisor ran.
        let is_changed = |present: &Arc<InitUnit>| definition.runs_otherwise(present);
        if observed.gave_up && present.is_some_and(is_changed) {
            observed = ObservedUnit::default();
        }
        let entry = entry_of(&mut self.units, context, name)?;
        if run_state.is_in_progress() {
            let driver = resume(context, &entry.stored(name, &definition), run, incarnation)?.1;
            self.runs.push((name.clone(), incarnation, driver));
        }
        entry.run_state = Arc::new(run_state);
        entry.written = Some(definition);
        entry.is_auto_restart = observed.retry_at.is_some();
        self.observation.last = incarnation;
        self.observation.units.insert(name.clone(), observed);
        Ok(())
    }
}

/// Returns the supervisor's state of a unit, and creates it if there is none. An existing state is
/// used again, because the log that it holds must not be opened twice.
fn entry_of<'a>(
    units: &'a mut BTreeMap<Name, SupervisedUnit>,
    context: &ManagerContext,
    name: &Name,
) -> io::Result<&'a mut SupervisedUnit> {
    Ok(match units.entry(name.clone()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(SupervisedUnit::new(context, name)?),
    })
}

/// Returns the stored definition of a unit. If none is stored, returns the definition in the graph.
/// If the graph has none either, returns an error.
fn definition(directory: &UnitDirectory, graph: &Graph, name: &Name) -> io::Result<Arc<InitUnit>> {
    let present = graph.unit(name).cloned();
    let written = read_definition(directory, name)?.map(Arc::new);
    let known = match (written, present) {
        // Shares the equal definition instead of keeping it twice.
        (Some(written), Some(present)) if *written == *present => Some(present),
        (written, present) => written.or(present),
    };
    let unknown = || directory.invalid_definition(format!("no stanza of {name}"));
    known.ok_or_else(unknown)
}

/// Returns the observed state of a unit that cannot be recovered.
pub(super) fn unrecoverable_state(
    graph: &Graph,
    name: &Name,
    incarnation: Incarnation,
    now: Timestamp,
) -> ObservedUnit {
    let present = graph.unit(name).cloned();
    ObservedUnit {
        phase: Phase::Failed,
        since: now,
        incarnation: Some(incarnation),
        definition: Some(present.unwrap_or_else(|| Arc::new(stop_only_definition(name.clone())))),
        processes: true,
        cause: Some(FailureCause::Lost),
        ..ObservedUnit::default()
    }
}

/// Describes why a unit cannot be recovered and what to do about it.
pub(super) fn reason(unit: &Name, error: &io::Error) -> String {
    format!(
        "{error}; to try again, use \"fleet-init reload\"; if no process of the unit is left, use \
         \"fleet-init reset-failed {unit}\""
    )
}

/// Tries again to recover the units that could not be recovered.
pub(super) fn retry_unrecoverable(core: &mut Core, max_starting: Option<NonZeroU32>) {
    if core.unrecoverable.is_empty() || core.shutting_down {
        return;
    }
    let graph = core.planner.graph().clone();
    let mut recovery = Recovery { observation: core.planner.observation(), ..Recovery::default() };
    for name in core.unrecoverable.keys() {
        recovery.observation.units.remove(name);
        recovery.units.extend(core.units.remove(name).map(|entry| (name.clone(), entry)));
        recovery.recover_unit(&core.context, &graph, name);
    }
    let Recovery { observation, units, runs, unrecoverable } = recovery;
    for (unit, entry) in units {
        core.units.insert(unit, entry);
    }
    let settings = Settings { max_starting, ..Settings::default() };
    let settings = core.targets.desired().apply_to(&settings);
    match InitState::restore(graph, &settings, observation) {
        Ok(planner) => core.planner = planner,
        Err(error) => {
            tracing::error!(%error, "cannot supervise the recovered units: all stay failed");
            return;
        }
    }
    core.unrecoverable = unrecoverable;
    for (unit, incarnation, driver) in runs {
        core.units.spawn_run(&unit, incarnation, driver);
    }
}

/// Treats an unrecoverable unit as gone; does nothing for any other unit.
pub(super) fn forget_unrecoverable(core: &mut Core, unit: &Name) {
    if core.unrecoverable.remove(unit).is_none() {
        return;
    }
    let written = core.context.storage(unit.as_str()).write_run(&RunRecord::default());
    if let Err(error) = written {
        tracing::warn!(
            %unit,
            %error,
            "cannot save the reset of a unit that could not be recovered: after fleet-init \
             restarts, the unit is shown as failed again"
        );
    }
    let incarnation = core.planner.status(unit).and_then(|state| state.incarnation);
    if let Some(incarnation) = incarnation {
        let now = core.now();
        core.on_event(unit, incarnation, EventKind::AllGone, now);
    }
}
