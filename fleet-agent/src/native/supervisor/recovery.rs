//! Recovers the units that an earlier `fleet-init` left in its directory.
//! `managed_units/recovery.rs` recovers the units of `fleetd`, with the functions here that resume
//! single runs.
//!
//! The state of a unit is derived from its stored run state: the current phase, the result of the
//! run, and the restart counters. Timeouts are not stored, so each timeout starts from zero.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Activity, Exit, FailureCause, Graph, Incarnation, InitUnit, Name, Observation, ObservedUnit,
    Phase, StopOutcome, StopReason,
};

use super::event_loop::Supervisor;
use super::handle::InitSupervisor;
use super::managed_units::hit_start_limit;
use super::supervised_unit::{SupervisedUnit, read_definition};
use super::unrecoverable::{reason, unrecoverable_state};
use crate::native::adopt::resume;
use crate::native::descriptors::check_descriptors_left;
use crate::native::manager_context::{ManagerContext, was_used_this_boot};
use crate::native::outcome::{ProcessExit, RunOutcome};
use crate::native::run_driver::RunDriver;
use crate::native::run_state::{RunState, ServicePhase};
use crate::native::unit_directory::{RunRecord, UnitDirectory};

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
            let driver = resume_run(context, name, entry, &definition, run, incarnation)?.1;
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

impl Supervisor {
    /// Updates the stored state of each of `units` that has no current run. Stores that the unit
    /// has hit its start limit, or clears the stored state if the hit was reset. The planner
    /// decides this after the last run, so that run has not stored it.
    pub(super) fn persist_start_limit_hits(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let entry = self.units.get_mut(unit).filter(|entry| entry.handle.is_none());
            let Some(entry) = entry else { continue };
            let gave_up =
                self.planner.status(unit).is_some_and(|state| hit_start_limit(&state.state));
            let run_state = match (gave_up, entry.run_state.gave_up) {
                (true, false) => RunState { gave_up, ..RunState::clone(&entry.run_state) },
                (false, true) => RunState::default(),
                _ => continue,
            };
            if gave_up && self.managed.is_none() {
                tracing::warn!(%unit, "giving up a unit: it has reached its restart limit");
            }
            if let Err(error) = entry.set_idle_state(run_state) {
                tracing::warn!(
                    %unit,
                    %error,
                    "cannot save whether a unit has reached its start limit: after fleet-init \
                     restarts, the earlier saved state of the unit applies"
                );
            }
        }
    }
}

impl InitSupervisor {
    /// Returns whether a supervisor has used a directory since the machine or its container was
    /// booted. If so, units may still be running, and the next supervisor will adopt them. Returns
    /// `false` if the check fails.
    #[must_use]
    pub fn has_used(directory: &Path) -> bool {
        was_used_this_boot(directory).unwrap_or_default()
    }
}

/// Resumes a run of an earlier supervisor. Returns the observed state of the unit for the planner,
/// and the driver of the run.
pub(super) fn resume_run(
    context: &Arc<ManagerContext>,
    name: &Name,
    entry: &SupervisedUnit,
    definition: &Arc<InitUnit>,
    run: RunRecord,
    incarnation: Incarnation,
) -> io::Result<(ObservedUnit, RunDriver)> {
    let now = context.now();
    let observed = observe_run(definition, &run.run_state, incarnation, now);
    let (spec, log) = (Arc::clone(definition), Arc::clone(&entry.log));
    let driver = resume(context, name.as_str(), &entry.directory, log, spec, run)?;
    Ok((observed, driver))
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

/// Derives the observation of a unit from the state of its last run.
fn observe_run(
    definition: &Arc<InitUnit>,
    run_state: &RunState,
    incarnation: Incarnation,
    now: Timestamp,
) -> ObservedUnit {
    let limits = definition.timeouts;
    let later = |span: Option<Duration>| span.map(|span| now.after(span));
    let busy = ObservedUnit {
        since: now,
        incarnation: Some(incarnation),
        definition: Some(Arc::clone(definition)),
        processes: true,
        exit: run_state.exit.map(ProcessExit::exit),
        attempts: run_state.attempts,
        failures: run_state.failures,
        ..ObservedUnit::default()
    };
    match run_state.phase {
        phase if phase.is_starting() => {
            ObservedUnit { phase: Phase::Starting, deadline: later(limits.start), ..busy }
        }
        phase if phase.is_stopping() => ObservedUnit {
            phase: Phase::Stopping,
            outcome: Some(stop_outcome(run_state)),
            deadline: later(limits.stop),
            ..busy
        },
        ServicePhase::Failed
            if run_state.stop_requested && run_state.outcome == Some(RunOutcome::Timeout) =>
        {
            observe_end(definition, run_state, Some(FailureCause::StopTimeout), now)
        }
        ServicePhase::Dead | ServicePhase::Failed | ServicePhase::AutoRestart => {
            observe_ended(definition, run_state, now)
        }
        phase => {
            let activity = match phase {
                ServicePhase::Exited => Activity::Exited,
                _ if phase.is_reloading() => Activity::Reloading,
                _ => Activity::Running,
            };
            let runtime = later(definition.run.runtime_max);
            let reload = later(limits.reload).filter(|_| activity == Activity::Reloading);
            let deadline = runtime.into_iter().chain(reload).min();
            let phase = Phase::Active(activity);
            ObservedUnit { phase, active_since: Some(now), deadline, ..busy }
        }
    }
}

fn stop_outcome(run_state: &RunState) -> StopOutcome {
    match (run_state.outcome, cause(run_state)) {
        _ if run_state.stop_requested => StopOutcome::Inactive(StopReason::Unneeded),
        (Some(RunOutcome::Condition), _) => StopOutcome::Skipped,
        (_, Some(cause)) => StopOutcome::Failed(cause),
        (_, None) => StopOutcome::Completed(run_state.exit.map(ProcessExit::exit)),
    }
}

/// Derives the observation of a unit whose run is over.
pub(super) fn observe_ended(
    definition: &InitUnit,
    run_state: &RunState,
    now: Timestamp,
) -> ObservedUnit {
    if run_state.stop_requested || run_state.outcome.is_none() {
        return ObservedUnit::default();
    }
    observe_end(definition, run_state, cause(run_state), now)
}

fn observe_end(
    definition: &InitUnit,
    run_state: &RunState,
    cause: Option<FailureCause>,
    now: Timestamp,
) -> ObservedUnit {
    let phase = if cause.is_some() { Phase::Failed } else { Phase::Completed };
    let attempts = run_state.attempts.saturating_add(1);
    let failures = if cause.is_some() { run_state.failures.saturating_add(1) } else { 0 };
    let restart = &definition.restart;
    let exit = run_state.exit.map(ProcessExit::exit);
    let gave_up = run_state.gave_up || run_state.outcome == Some(RunOutcome::StartLimitHit);
    let again = run_state.outcome != Some(RunOutcome::Condition) && restart.applies(cause, exit);
    let retry_at = (again && !gave_up).then(|| now.after(restart.delay_of(attempts)));
    let counts = ObservedUnit { attempts, failures, ..ObservedUnit::default() };
    ObservedUnit { phase, since: now, cause, retry_at, gave_up, ..counts }
}

/// Returns the failure cause of a run; `None` if it did not fail.
fn cause(run_state: &RunState) -> Option<FailureCause> {
    Some(match run_state.outcome? {
        RunOutcome::Success | RunOutcome::Condition => return None,
        RunOutcome::Timeout if run_state.phase.is_stopping() => FailureCause::StopTimeout,
        RunOutcome::Timeout => FailureCause::StartTimeout,
        RunOutcome::Watchdog => FailureCause::Watchdog,
        RunOutcome::Assert => FailureCause::Assertion,
        RunOutcome::Resources => FailureCause::Resources,
        RunOutcome::Protocol => FailureCause::Protocol,
        _ => FailureCause::Exit(run_state.exit.map_or(Exit::Unknown, ProcessExit::exit)),
    })
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::RestartWhen;

    use super::*;
    use crate::native::run_machine_tests::spec;

    #[test]
    fn recovered_unit_keeps_its_counters() {
        let definition = spec("ExecStart=/bin/true\n");
        let starting = [ServicePhase::StartPre, ServicePhase::Start, ServicePhase::StartPost];
        for phase in starting.into_iter().chain([ServicePhase::Running, ServicePhase::StopSigterm])
        {
            let counts = RunState { attempts: 5, failures: 2, restarts: 8, ..RunState::default() };
            let run_state = RunState { phase, ..counts };
            let observed =
                observe_run(&definition, &run_state, Incarnation(1), Timestamp::from_millis(0));
            assert_eq!((observed.attempts, observed.failures), (5, 2), "{phase:?}");
        }
    }

    /// Observes a run state of a unit with `Restart=on-abnormal`.
    fn after(run_state: &RunState) -> ObservedUnit {
        let mut definition = InitUnit::clone(&spec("Type=notify\nExecStart=/bin/true\n"));
        definition.restart.when = RestartWhen::OnAbnormal;
        observe_run(&Arc::new(definition), run_state, Incarnation(1), Timestamp::from_millis(0))
    }

    #[test]
    fn abnormal_end_stays_abnormal_after_a_recovery() {
        for (outcome, exit, cause) in [
            (RunOutcome::Protocol, ProcessExit::Code(0), FailureCause::Protocol),
            (RunOutcome::Resources, ProcessExit::NotSpawned, FailureCause::Resources),
        ] {
            let (outcome, exit) = (Some(outcome), Some(exit));
            let observed = after(&RunState {
                phase: ServicePhase::Failed,
                outcome,
                exit,
                ..RunState::default()
            });
            assert_eq!((observed.cause, observed.retry_at.is_some()), (Some(cause), true));
            assert_eq!((observed.attempts, observed.failures), (1, 1));
        }
    }

    #[test]
    fn main_exit_is_recovered_while_processes_are_left() {
        let (outcome, exit) = (Some(RunOutcome::Watchdog), Some(ProcessExit::Signal(6)));
        let phase = ServicePhase::StopSigterm;
        let observed = after(&RunState { phase, outcome, exit, ..RunState::default() });
        assert_eq!(observed.outcome, Some(StopOutcome::Failed(FailureCause::Watchdog)));
        assert_eq!(observed.exit, Some(Exit::Signal(6)));
    }
}
