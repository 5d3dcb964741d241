//! The state that all commands change: the planner, its targets and the supervised units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{
    DerivedState, EventKind, Graph, Incarnation, InitState, Name, Retry, Settings, StatusReport,
    StopReason, Target, UnitEvent,
};

use super::command::SupervisorError;
use super::managed_units::hit_start_limit;
use super::recovery::{forget_unrecoverable, retry_unrecoverable};
use super::targets::Targets;
use super::units::Units;
use crate::native::run::machine::state::RunState;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::RequestedState;

/// The planner, its targets and the supervised units. Their source (files, or loads by fleet) makes
/// no difference here.
pub(super) struct Core {
    pub(super) context: Arc<ManagerContext>,
    pub(super) planner: InitState,
    pub(super) targets: Targets,
    pub(super) units: Units,
    /// Units of files that could not be recovered, with the reason.
    pub(super) unrecoverable: BTreeMap<Name, String>,
    /// Whether a shutdown has begun, so that no unit may start.
    pub(super) shutting_down: bool,
}

impl Core {
    pub(super) fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// Sets the goal and the extra targets, and stores them.
    pub(super) fn set_goal(
        &mut self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        if self.shutting_down {
            return Err(SupervisorError::ShuttingDown);
        }
        let now = self.now();
        self.targets.set_goal(&mut self.planner, goal, extra_targets, now)
    }

    /// Removes the goal and the extra targets until the supervisor ends, without storing that.
    pub(super) fn clear_goal(&mut self) {
        // An empty goal is always valid.
        drop(self.planner.set_goal(None, BTreeSet::new(), self.context.now()));
    }

    /// Masks a target. Returns `false` if its unit was already masked.
    pub(super) fn mask(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        let now = self.now();
        self.targets.mask(&mut self.planner, target, now)
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    pub(super) fn unmask(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        let now = self.now();
        self.targets.unmask(&mut self.planner, target, now)
    }

    /// Replaces the units of files and their settings.
    pub(super) fn replace_graph(
        &mut self,
        graph: Graph,
        settings: &Settings,
    ) -> Result<(), SupervisorError> {
        retry_unrecoverable(self, settings.max_starting);
        let now = self.now();
        self.targets.replace_graph(&mut self.planner, graph, settings, now)?;
        tracing::info!("the units were reloaded");
        self.take_over_definitions(&self.units.names());
        if self.shutting_down {
            // The reload must not start units again during a shutdown.
            self.clear_goal();
        }
        Ok(())
    }

    /// Passes definitions that a reload has changed to the runs of these units.
    pub(super) fn take_over_definitions<'a>(&mut self, units: impl IntoIterator<Item = &'a Name>) {
        for unit in units {
            if let Some(entry) = self.units.get_mut(unit)
                && let Some(runs) = self.planner.running(unit)
            {
                entry.take_over_definition(runs);
            }
        }
    }

    /// Clears the failed or completed state of the unit that provides a target. Returns whether
    /// there was one.
    pub(super) fn reset_failed(&mut self, target: &Target) -> bool {
        let graph = self.planner.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut removed = self.unrecoverable.keys().filter(|unit| graph.unit(unit).is_none());
        // No unit in the graph provides a target of a removed unit.
        if let Some(unit) = removed.find(is_meant).cloned() {
            forget_unrecoverable(self, &unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            forget_unrecoverable(self, &unit);
            self.units.get_mut(&unit).into_iter().for_each(|entry| entry.is_auto_restart = false);
        }
        self.planner.reset_failed(target, self.context.now())
    }

    /// Records that the requested state of a loaded unit is applied, or that nothing has to be done
    /// for it.
    pub(super) fn record_applied(&mut self, name: &Name, requested: RequestedState) {
        let is_inactive = self.planner.is_inactive(name);
        if let Some(entry) = self.units.get_mut(name) {
            entry.record_applied(requested, is_inactive);
        }
    }

    /// Passes an event of a run to the planner. Returns whether it was about the current run.
    pub(super) fn on_event(
        &mut self,
        unit: &Name,
        incarnation: Incarnation,
        kind: EventKind,
        now: Timestamp,
    ) -> bool {
        let event = UnitEvent { unit: unit.clone(), incarnation, kind };
        self.planner.on_event(&event, now)
    }

    /// Returns whether a unit is stopping in order to start again.
    pub(super) fn is_restarting(&self, unit: &Name) -> bool {
        use StopReason::{DefinitionChanged, RestartRequested};
        let state = self.planner.status(unit).map(|status| status.state);
        matches!(state, Some(DerivedState::Stopping(Some(DefinitionChanged | RestartRequested))))
    }

    /// Returns the status of a unit that waits for a retry, or `None` if it does not. An unneeded
    /// unit is not retried, however its run ended.
    pub(super) fn pending_retry(&self, unit: &Name) -> Option<StatusReport> {
        self.planner.status(unit).filter(|state| {
            state.needed
                && matches!(
                    state.state,
                    DerivedState::Failed { retry: Retry::At(_), .. }
                        | DerivedState::Completed(Retry::At(_))
                )
        })
    }

    /// Records the end of a unit's run: whether it will be retried, and `unread`, the requested
    /// state that the run has not read.
    pub(super) fn record_end(&mut self, unit: &Name, unread: Option<RequestedState>) {
        let again = self.pending_retry(unit);
        let is_inactive = self.planner.is_inactive(unit);
        let Some(entry) = self.units.get_mut(unit) else { return };
        entry.is_auto_restart = again.is_some();
        again.iter().for_each(|state| entry.persist_counters(state));
        // The run was over before it read the request, so it has not written this itself.
        unread.into_iter().for_each(|requested| entry.write_applied(requested, is_inactive));
    }

    /// Updates the stored state of each of `units` that has no current run. Stores that the unit
    /// has hit its start limit, or clears the stored state if the hit or a failed stop was reset.
    /// The planner decides this after the last run, so that run has not stored it.
    pub(super) fn persist_ended_runs(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let entry = self.units.get_mut(unit).filter(|entry| entry.handle.is_none());
            let Some(entry) = entry else { continue };
            let state = self.planner.status(unit).map(|status| status.state);
            let gave_up = state.as_ref().is_some_and(hit_start_limit);
            let is_failed = matches!(state, Some(DerivedState::Failed { .. }));
            let run_state = match (gave_up, entry.run_state.gave_up) {
                (true, false) => RunState { gave_up, ..RunState::clone(&entry.run_state) },
                (false, true) => RunState::default(),
                _ if !is_failed && entry.run_state.has_failed_to_stop() => RunState::default(),
                _ => continue,
            };
            if gave_up {
                tracing::warn!(%unit, "giving up a unit: it has reached its restart limit");
            }
            entry.set_idle_state(run_state, "its earlier saved state applies");
        }
    }

    /// Removes a unit that no longer exists, with its stored state.
    pub(super) fn remove_unit(&mut self, unit: &Name) {
        self.units.remove(unit);
        if let Err(error) = self.context.storage(unit.as_str()).remove() {
            tracing::warn!(
                %unit,
                %error,
                "cannot remove the stored state of a unit that no longer exists"
            );
        }
    }

    /// Returns whether all runs are over, except those of stuck units.
    pub(super) fn is_idle(&self) -> bool {
        let is_stuck = |unit| {
            let state = self.planner.status(unit);
            state.is_some_and(|state| {
                matches!(state.state, DerivedState::Failed { stuck: true, .. })
            })
        };
        let mut running = self.units.iter().filter(|(_, entry)| entry.handle.is_some());
        running.all(|(unit, _)| is_stuck(unit))
    }
}
