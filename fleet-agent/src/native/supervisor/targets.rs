//! Changes of the goal, the extra targets and the masks of a supervisor, and the replacement of its
//! graph. Also the shutdown, which clears the goal.

use std::collections::BTreeSet;

use fleet_core::graph::{DerivedState, Graph, InitState, Name, Observation, Settings, Target};

use super::Supervisor;
use super::command::{Reply, answer};
use super::error::{SupervisorError, io_error};
use crate::ServiceError;
use crate::native::state::desired_targets::TargetSelection;

impl Supervisor {
    /// Sets the goal and the extra targets, and stores them.
    pub(super) fn set_goal(
        &mut self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        if self.shutting_down {
            return Err(SupervisorError::ShuttingDown);
        }
        let valid = self.planner.check_goal(goal.as_ref(), &extra_targets);
        valid.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        (selection.desired.goal, selection.desired.extra_targets) =
            (goal.clone(), extra_targets.clone());
        // A choice that cannot be stored is not carried out.
        self.store_selection(selection)?;
        let names: Vec<&str> = extra_targets.iter().map(Target::as_str).collect();
        let goal_name = goal.as_ref().map_or("none", Target::as_str);
        tracing::info!(goal = goal_name, extra_targets = names.join(", "), "the goal was set");
        let done = self.planner.set_goal(goal, extra_targets, self.context.now());
        done.map_err(SupervisorError::InvalidTargets)
    }

    /// Removes the goal and the extra targets until the supervisor ends, without storing that.
    pub(super) fn clear_goal(&mut self) {
        // An empty goal is always valid.
        drop(self.planner.set_goal(None, BTreeSet::new(), self.context.now()));
    }

    /// Masks a target. Returns `false` if its unit was already masked.
    pub(super) fn mask_target(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        if !self.masks_of(target).is_empty() {
            return Ok(false);
        }
        let now = self.context.now();
        let masked = self.planner.mask(target.clone(), now);
        masked.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        selection.desired.mask.insert(target.clone());
        if let Err(error) = self.store_selection(selection) {
            self.planner.unmask(target, now);
            return Err(error);
        }
        tracing::info!(%target, "the target was masked");
        Ok(true)
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    pub(super) fn unmask_target(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        let masks = self.masks_of(target);
        let configured = &self.selection.configured.mask;
        if let Some(target) = masks.intersection(configured).next().cloned() {
            return Err(SupervisorError::MaskedBySettings { target });
        }
        if masks.is_empty() {
            return Ok(false);
        }
        let mut selection = self.selection.clone();
        selection.desired.mask.retain(|it| !masks.contains(it));
        self.store_selection(selection)?;
        let now = self.context.now();
        masks.iter().for_each(|it| self.planner.unmask(it, now));
        tracing::info!(%target, "the target was unmasked");
        Ok(true)
    }

    /// Returns the masked targets of the unit that provides a target.
    fn masks_of(&self, target: &Target) -> BTreeSet<Target> {
        let provider = |target: &Target| -> Option<&Name> {
            self.planner.graph().provider(target).map(|unit| &unit.name)
        };
        let unit = provider(target);
        let is_of_unit = |it: &&Target| *it == target || (unit.is_some() && provider(it) == unit);
        self.selection.desired.mask.iter().filter(is_of_unit).cloned().collect()
    }

    /// Replaces the graph and the settings. Overrides of an operator stay in effect.
    pub(super) fn replace_graph(
        &mut self,
        graph: Graph,
        settings: &Settings,
    ) -> Result<(), SupervisorError> {
        self.retry_unrecoverable(settings.max_starting);
        let selection = self.selection.rebase(settings);
        let earlier = self.selection.clone();
        if selection != earlier {
            self.store_selection(selection.clone())?;
        }
        let (settings, now) = (selection.desired.apply_to(settings), self.context.now());
        if let Err(error) = self.planner.reload_with(graph, &settings, now) {
            if selection != earlier {
                self.store_selection(earlier)?;
            }
            return Err(SupervisorError::InvalidTargets(error));
        }
        tracing::info!("the units were reloaded");
        self.take_over_definitions();
        if self.shutting_down {
            // The reload must not start units again during a shutdown.
            self.clear_goal();
        }
        Ok(())
    }

    /// Passes definitions that a reload has changed to the runs of their units.
    pub(super) fn take_over_definitions(&mut self) {
        let units: Vec<Name> = self.units.keys().cloned().collect();
        units.iter().for_each(|unit| self.take_over_definition(unit));
    }

    /// Clears the failed or completed state of the unit that provides a target. Returns whether
    /// there was one.
    pub(super) fn reset_failed(&mut self, target: &Target) -> bool {
        let graph = self.planner.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut removed = self.unrecoverable.keys().filter(|unit| graph.unit(unit).is_none());
        // No unit in the graph provides a target of a removed unit.
        if let Some(unit) = removed.find(is_meant).cloned() {
            self.forget_unrecoverable(&unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            self.forget_unrecoverable(&unit);
            self.units.get_mut(&unit).into_iter().for_each(|entry| entry.is_auto_restart = false);
        }
        self.planner.reset_failed(target, self.context.now())
    }

    /// Begins to stop all units, and refuses to start any from now on. The stored targets stay.
    pub(super) fn shut_down(&mut self, reply: Reply<Vec<ServiceError>>) {
        self.apply_pending_loads();
        self.shutting_down = true;
        self.stop_managed_units();
        self.timers.stop_all();
        self.clear_goal();
        self.idle_waiters.push(reply);
    }

    /// Answers the callers that wait for a shutdown, if all runs are over except those of stuck
    /// units.
    pub(super) fn answer_idle_waiters(&mut self) {
        if self.idle_waiters.is_empty() {
            return;
        }
        let is_stuck = |unit| {
            let state = self.planner.status(unit);
            state.is_some_and(|state| {
                matches!(state.state, DerivedState::Failed { stuck: true, .. })
            })
        };
        let mut running = self.units.iter().filter(|(_, entry)| entry.handle.is_some());
        if !running.all(|(unit, _)| is_stuck(unit)) {
            return;
        }
        for waiter in self.idle_waiters.drain(..) {
            answer(waiter, self.managed.stop_errors(&self.planner));
        }
    }

    /// Kills all processes of all runs. Their exits are reported as usual.
    pub(super) fn kill_all(&mut self) {
        let handles = self.units.values().filter_map(|entry| entry.handle.as_ref());
        handles.for_each(|handle| handle.sender.update(|update| update.kill = true));
    }

    /// Stores the desired targets.
    pub(super) fn write_targets(&self) -> Result<(), SupervisorError> {
        let stored = self.selection.write(&self.targets_file);
        Ok(stored.map_err(io_error("store the desired targets"))?)
    }

    /// Stores other desired targets. If that fails, the earlier ones stay.
    fn store_selection(&mut self, selection: TargetSelection) -> Result<(), SupervisorError> {
        let stored = selection.write(&self.targets_file);
        stored.map_err(io_error("store the desired targets, so nothing is changed"))?;
        self.selection = selection;
        Ok(())
    }
}

/// Restores the planner with the stored targets. If there are none, or the graph does not provide
/// them, uses the configured targets.
pub(super) fn restore_state(
    graph: Graph,
    settings: &Settings,
    observation: Observation,
    stored: Option<TargetSelection>,
) -> Result<(InitState, TargetSelection), SupervisorError> {
    if let Some(selection) = stored.map(|stored| stored.rebase(settings)) {
        let observation = Observation {
            extra_targets: selection.desired.extra_targets.clone(),
            ..observation.clone()
        };
        match InitState::restore(graph.clone(), &selection.desired.apply_to(settings), observation)
        {
            Ok(planner) => return Ok((planner, selection)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "cannot restore the goal and masks set at run time: using the configured ones"
                );
            }
        }
    }
    let planner = InitState::restore(graph, settings, observation)
        .map_err(SupervisorError::InvalidTargets)?;
    Ok((planner, TargetSelection::from_settings(settings)))
}
