//! Effects of a unit on units that are no dependents: `OnFailure=`, `OnSuccess=`,
//! `PropagatesReloadTo=` and `PropagatesStopTo=`.
//!
//! A follow-up starts its unit by the same request as a timer does, so that the start is stored and
//! does not count as a launch by fleet. Each reaction looks up the unit that has changed in an
//! index, so its cost does not depend on the number of units.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::ActiveState;
use fleet_core::graph::{Name, NotReloadable, StatusReport, Target};
use fleet_unitfile::UnitName;
use tokio::task::JoinSet;

use super::super::core::Core;
use super::super::requests::{Requests, UnitRequest};
use super::ManagedUnits;
use super::status::LoadedUnit;
use super::waiters::is_over;
use crate::ServiceError;
use crate::native::run::driver::{MonitorVariables, result_variables};
use crate::native::run::machine::state::{RunOutcome, ServicePhase};

/// Starts the units of `OnFailure=` and `OnSuccess=`.
pub(in super::super) struct FollowUps {
    requests: Arc<Requests>,
    /// Starts in progress.
    starts: JoinSet<()>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RunEnd {
    /// Whether the run has started a process. Without one, systemd neither starts nor fails the
    /// unit: one of its conditions or assertions did not hold.
    pub(in super::super) has_begun: bool,
    /// Whether the run was stopped in order to restart the unit.
    pub(in super::super) is_restart: bool,
}

/// Result of a unit that may start other units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitResult {
    Failure,
    Success,
}

impl FollowUps {
    pub(in super::super) fn new(requests: &Arc<Requests>) -> Self {
        Self { requests: Arc::clone(requests), starts: JoinSet::new() }
    }

    /// Starts a unit because of the result of another unit.
    fn start(&mut self, unit: UnitName, of: Name, result: UnitResult) {
        while self.starts.try_join_next().is_some() {}
        let requests = Arc::clone(&self.requests);
        self.starts.spawn(async move {
            let trigger = UnitRequest::Trigger(getrandom::u64().unwrap_or(1));
            let option = match result {
                UnitResult::Failure => "OnFailure=",
                UnitResult::Success => "OnSuccess=",
            };
            match requests.request(&unit, trigger).await {
                Ok(()) => tracing::info!(%unit, %of, "started a unit because of {option}"),
                Err(ServiceError::NotLoaded { .. }) => tracing::warn!(
                    %unit,
                    %of,
                    "cannot start a unit because of {option}: it is not loaded on this machine: \
                     submit it with MachineOf={of} in its [X-Fleet] section"
                ),
                Err(error) => tracing::warn!(
                    %unit,
                    %of,
                    error = &error as &dyn std::error::Error,
                    "cannot start a unit because of {option}"
                ),
            }
        });
    }
}

impl ManagedUnits {
    /// Reacts to the end of a run, after the planner has handled it.
    pub(in super::super) fn on_run_ended(&mut self, core: &mut Core, unit: &Name, end: RunEnd) {
        let Some(entry) = core.units.get(unit).filter(|_| self.is_loaded(unit)) else { return };
        let run_state = Arc::clone(&entry.run_state);
        let is_skipped =
            matches!(run_state.outcome, Some(RunOutcome::Assert | RunOutcome::Condition));
        if core.shutting_down || is_skipped && !end.has_begun {
            return;
        }
        if !end.is_restart {
            self.propagate_stop(core, unit);
        }
        if core.pending_retry(unit).is_some() {
            return;
        }
        match run_state.phase {
            ServicePhase::Failed => self.follow_up(core, unit, UnitResult::Failure),
            _ => self.follow_up(core, unit, UnitResult::Success),
        }
    }

    /// Stops the units that stop with `unit`, which has ended without a request to stop it. (Such a
    /// request stops them itself.)
    fn propagate_stop(&mut self, core: &mut Core, unit: &Name) {
        for other in self.graph.effects().stops.get(unit).cloned().into_iter().flatten() {
            let ends = |state: &StatusReport| !is_over(&state.state) && state.needed;
            let is_retried = core.pending_retry(&other).is_some();
            if is_retried || core.planner.status(&other).as_ref().is_some_and(ends) {
                self.stop_with_dependents(core, &other);
                self.touched.insert(other);
            }
        }
    }

    /// Returns whether a unit without commands for a reload passes it on, as targets do.
    pub(super) fn passes_reload(&self, unit: &Name) -> bool {
        let is_target = self.loaded_units.get(unit).is_some_and(LoadedUnit::is_target);
        is_target && self.graph.effects().reloads.contains_key(unit)
    }

    /// Reloads the active units to which the reload of `unit` is propagated. As in systemd, their
    /// results do not matter to the caller.
    pub(super) fn propagate_reload(&mut self, core: &mut Core, unit: &Name) {
        let mut found = BTreeSet::from([unit.clone()]);
        let mut open = vec![unit.clone()];
        while let Some(next) = open.pop() {
            for other in self.graph.effects().reloads.get(&next).into_iter().flatten() {
                if !found.insert(other.clone()) {
                    continue;
                }
                let result = core.planner.request_reload(&Target::from(other));
                let passes = result == Err(NotReloadable::NoCommand) && self.passes_reload(other);
                if result.is_ok() || passes {
                    self.touched.insert(other.clone());
                    open.push(other.clone());
                }
            }
        }
    }

    /// Reacts to a change of a target's published state. Targets have no runs.
    pub(super) fn on_target_changed(
        &mut self,
        core: &Core,
        unit: &Name,
        before: ActiveState,
        after: ActiveState,
    ) {
        if before == ActiveState::Active && after == ActiveState::Inactive {
            self.follow_up(core, unit, UnitResult::Success);
        }
    }

    /// Starts the units that a result of `unit` starts.
    pub(super) fn follow_up(&mut self, core: &Core, unit: &Name, result: UnitResult) {
        if core.shutting_down {
            return;
        }
        let effects = self.graph.effects();
        let index = match result {
            UnitResult::Failure => &effects.on_failure,
            UnitResult::Success => &effects.on_success,
        };
        for other in index.get(unit).into_iter().flatten() {
            if let Ok(other) = other.as_str().parse() {
                self.follow_ups.start(other, unit.clone(), result);
            }
        }
    }

    /// Returns the variables that describe the unit whose result starts `unit`. As in systemd,
    /// there are none if several units name it.
    pub(in super::super) fn monitor_variables(
        &self,
        core: &Core,
        unit: &Name,
    ) -> Option<MonitorVariables> {
        let sources = self.graph.effects().triggered_by.get(unit)?;
        let source = sources.first().filter(|_| sources.len() == 1)?;
        let entry = core.units.get(source)?;
        let names = ["MONITOR_SERVICE_RESULT", "MONITOR_EXIT_CODE", "MONITOR_EXIT_STATUS"];
        let mut variables = result_variables(names, &entry.run_state);
        let record = entry.directory.read_run().ok().flatten().unwrap_or_default();
        if !record.invocation.is_empty() {
            variables.push(("MONITOR_INVOCATION_ID", record.invocation));
        }
        variables.push(("MONITOR_UNIT", source.to_string()));
        Some(MonitorVariables(variables))
    }
}
