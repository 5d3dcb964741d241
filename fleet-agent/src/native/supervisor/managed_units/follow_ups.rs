//! Reactions to the results of units: the units of `OnFailure=` and `OnSuccess=`.
//!
//! A follow-up starts its unit by the same request as a timer does, so that the start is stored and
//! does not count as a launch by fleet. Each reaction looks up the unit that has changed in an
//! index, so its cost does not depend on the number of units.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::ActiveState;
use fleet_core::graph::Name;
use fleet_unitfile::UnitName;
use tokio::task::JoinSet;

use super::super::core::Core;
use super::super::requests::{Requests, UnitRequest};
use super::ManagedUnits;
use crate::ServiceError;
use crate::native::run::driver::result_variables;
use crate::native::run::machine::state::{RunOutcome, ServicePhase};

/// Starts the units of `OnFailure=` and `OnSuccess=`.
pub(in super::super) struct FollowUps {
    requests: Arc<Requests>,
    /// Starts in progress.
    starts: JoinSet<()>,
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
    /// Reacts to the end of a run, after the planner has handled it. `has_begun` is whether the run
    /// has started a process. Without one, systemd neither starts nor fails the unit: one of its
    /// conditions or assertions did not hold.
    pub(in super::super) fn on_run_ended(&mut self, core: &Core, unit: &Name, has_begun: bool) {
        let Some(entry) = core.units.get(unit).filter(|_| self.is_loaded(unit)) else { return };
        if core.pending_retry(unit).is_some() {
            return;
        }
        let is_skipped =
            matches!(entry.run_state.outcome, Some(RunOutcome::Assert | RunOutcome::Condition));
        match entry.run_state.phase {
            _ if is_skipped && !has_begun => {}
            ServicePhase::Failed => self.follow_up(core, unit, UnitResult::Failure),
            _ => self.follow_up(core, unit, UnitResult::Success),
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

    /// Returns the variables that describe the unit whose result starts `unit`. As in systemd, there
    /// are none if several units name it.
    pub(in super::super) fn monitor_variables(
        &self,
        core: &Core,
        unit: &Name,
    ) -> Vec<(&'static str, String)> {
        let sources = self.graph.effects().triggered_by.get(unit);
        let only =
            |sources: &BTreeSet<Name>| sources.first().filter(|_| sources.len() == 1).cloned();
        let Some(source) = sources.and_then(only) else { return Vec::new() };
        let Some(entry) = core.units.get(&source) else { return Vec::new() };
        let names = ["MONITOR_SERVICE_RESULT", "MONITOR_EXIT_CODE", "MONITOR_EXIT_STATUS"];
        let mut variables = result_variables(names, &entry.run_state);
        let record = entry.directory.read_run().ok().flatten().unwrap_or_default();
        if !record.invocation.is_empty() {
            variables.push(("MONITOR_INVOCATION_ID", record.invocation));
        }
        variables.push(("MONITOR_UNIT", source.to_string()));
        variables
    }
}
