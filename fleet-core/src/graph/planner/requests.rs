//! Requests: targets, masks, resets, and the replacement of the graph.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::InitState;
use super::event::StartRateLimit;
use super::need::Demand;
use super::phase::Phase;
use crate::Timestamp;
use crate::graph::build::{Graph, GraphError, Settings};
use crate::graph::model::Target;

/// Reason why a unit cannot reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReloadable {
    /// No unit provides the target.
    #[error("no unit provides the target")]
    NotProvided,
    /// The unit that provides it is not active.
    #[error("the unit is not active")]
    NotActive,
    /// The unit has no reload command.
    #[error("the unit has no reload command")]
    NoCommand,
}

impl InitState {
    /// Sets the goal and the extra targets. The effect is as if the goal were a virtual unit with a
    /// `waits-for` edge to each of these targets.
    ///
    /// Units that are no longer needed are stopped. The results of earlier failed stops are
    /// cleared.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides one of the targets, or if the goal's unit is masked. In
    /// that case nothing is changed. A masked extra target is no error, but its unit does not
    /// start.
    pub fn set_goal(
        &mut self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
        now: Timestamp,
    ) -> Result<(), GraphError> {
        self.check_goal(goal.as_ref(), &extra_targets)?;
        if (&self.requested.goal, &self.requested.extra_targets) != (&goal, &extra_targets) {
            (self.requested.goal, self.requested.extra_targets) = (goal, extra_targets);
            self.requests_changed(now);
        }
        Ok(())
    }

    /// Checks whether [`set_goal`](Self::set_goal) would accept a goal and extra targets.
    ///
    /// # Errors
    ///
    /// The error that `set_goal` would return.
    pub fn check_goal(
        &self,
        goal: Option<&Target>,
        extra_targets: &BTreeSet<Target>,
    ) -> Result<(), GraphError> {
        let of_goal =
            goal.and_then(|goal| self.units.nodes.graph.goal_error(goal, &self.requested.mask));
        let beside = || {
            extra_targets
                .iter()
                .find_map(|one| self.units.nodes.graph.goal_error(one, &BTreeSet::new()))
        };
        of_goal.or_else(beside).map_or(Ok(()), Err)
    }

    /// Sets the masked targets.
    ///
    /// # Errors
    ///
    /// Returns an error if the goal's unit would be masked. In that case nothing is changed.
    pub fn set_mask(&mut self, mask: BTreeSet<Target>, now: Timestamp) -> Result<(), GraphError> {
        if let Some(error) = self
            .requested
            .goal
            .as_ref()
            .and_then(|goal| self.units.nodes.graph.goal_error(goal, &mask))
        {
            return Err(error);
        }
        if self.requested.mask != mask {
            self.requested.mask = mask;
            self.requests_changed(now);
        }
        Ok(())
    }

    /// Adds one extra target. The effect is that of [`set_goal`](Self::set_goal), but the cost
    /// depends on the number of affected units, not on the size of the graph.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides the target. In that case nothing is changed.
    pub fn add_extra_target(&mut self, target: Target, now: Timestamp) -> Result<(), GraphError> {
        if let Some(error) = self.units.nodes.graph.goal_error(&target, &BTreeSet::new()) {
            return Err(error);
        }
        let at = self.units.nodes.provider(&target);
        if self.requested.extra_targets.insert(target) {
            self.demand_changed(at, now, |demand| demand.wanted += 1);
        }
        Ok(())
    }

    /// Removes one extra target. The cost is as for [`add_extra_target`](Self::add_extra_target).
    pub fn remove_extra_target(&mut self, target: &Target, now: Timestamp) {
        if self.requested.extra_targets.remove(target) {
            let at = self.units.nodes.provider(target);
            self.demand_changed(at, now, |demand| demand.wanted -= 1);
        }
    }

    /// Masks one target. The effect is that of [`set_mask`](Self::set_mask), but the cost depends
    /// on the number of affected units, not on the size of the graph.
    ///
    /// # Errors
    ///
    /// Returns an error if the goal's unit provides the target. In that case nothing is changed.
    pub fn mask(&mut self, target: Target, now: Timestamp) -> Result<(), GraphError> {
        let nodes = &self.units.nodes;
        let at = nodes.provider(&target);
        let goal = self.requested.goal.as_ref();
        let goal = goal.filter(|goal| at.is_some() && nodes.provider(goal) == at);
        if let Some(goal) = goal.cloned() {
            return Err(GraphError::GoalMasked { goal });
        }
        if self.requested.mask.insert(target) {
            self.demand_changed(at, now, |demand| demand.masks += 1);
        }
        Ok(())
    }

    /// Removes one target from the mask. The cost is as for [`mask`](Self::mask).
    pub fn unmask(&mut self, target: &Target, now: Timestamp) {
        if self.requested.mask.remove(target) {
            let at = self.units.nodes.provider(target);
            self.demand_changed(at, now, |demand| demand.masks -= 1);
        }
    }

    /// Sets the maximum number of units that may be starting at the same time. `None` means no
    /// limit. Starts that are in progress continue.
    pub fn set_max_starting(&mut self, most: Option<NonZeroU32>) {
        self.units.max_starting = most;
    }

    /// Replaces the graph. Running units with a change that
    /// [`needs_restart_for`](crate::graph::InitUnit::needs_restart_for) names are restarted, and
    /// removed units are stopped. All other units stay as they are; their running definition
    /// becomes the new one. An equal graph changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides the goal. In that case nothing is changed.
    pub fn reload(&mut self, graph: Graph, now: Timestamp) -> Result<(), GraphError> {
        let (goal, mask, max_starting) =
            (self.requested.goal.clone(), self.requested.mask.clone(), self.units.max_starting);
        let unlimited_starts = self.unlimited_starts.clone();
        let settings =
            Settings { goal, mask, max_starting, unlimited_starts, ..Settings::default() };
        self.reload_with(graph, &settings, now)
    }

    /// Replaces the graph, the goal, the masked targets and the start limits in one step. The extra
    /// targets stay the same.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit of the new graph provides the goal, or if that unit is masked.
    /// In that case nothing is changed.
    pub fn reload_with(
        &mut self,
        mut graph: Graph,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), GraphError> {
        let (goal, mask) = (&settings.goal, &settings.mask);
        if let Some(error) = goal.as_ref().and_then(|goal| graph.goal_error(goal, mask)) {
            return Err(error);
        }
        graph.share_unchanged(&self.units.nodes.graph);
        let same = (&self.requested.goal, &self.requested.mask) == (goal, mask)
            && graph.is_same_as(&self.units.nodes.graph);
        (self.requested.goal, self.requested.mask) = (goal.clone(), mask.clone());
        self.units.max_starting = settings.max_starting;
        self.unlimited_starts.clone_from(&settings.unlimited_starts);
        if same {
            self.units.take_graph(graph, &self.requested, &self.unlimited_starts);
            return Ok(());
        }
        for at in self.units.nodes.expiring_results() {
            self.units.expire_result(at, now);
        }
        self.apply_definitions(&graph, now);
        self.units.take_graph(graph, &self.requested, &self.unlimited_starts);
        self.requests_changed(now);
        Ok(())
    }

    /// Applies the changed definitions of a new graph.
    fn apply_definitions(&mut self, graph: &Graph, now: Timestamp) {
        for at in self.units.nodes.all() {
            let old = &self.units.nodes.node(at).unit;
            let Some(new) = graph.unit(&old.name).filter(|new| *new != old) else { continue };
            if old.runs_otherwise(new) {
                self.apply_definition_change(at, now);
            } else {
                self.units.nodes.node_mut(at).observed.clear_attempts();
            }
        }
    }

    /// Clears the results of earlier runs of the unit that provides a target. These are its failed
    /// or completed phase, and its counts of exits, failures and starts.
    ///
    /// If the unit had failed or completed and is needed, it starts again as soon as none of its
    /// processes is left. A unit in any other phase stays in it, and so does a unit with lost
    /// processes.
    ///
    /// Returns `false` if there was nothing to clear, or if no unit provides the target.
    pub fn reset_failed(&mut self, target: &Target, now: Timestamp) -> bool {
        let Some(at) = self.units.nodes.provider(target) else { return false };
        let node = self.units.nodes.node_mut(at);
        let phase = node.observed.phase;
        let is_at_rest = node.is_at_rest() || phase == Phase::Inactive;
        let observed = &mut node.observed;
        let something = observed.attempts > 0 || matches!(phase, Phase::Failed | Phase::Completed);
        if phase == Phase::Failed && observed.processes {
            self.units.retry_immediately(at, now);
        } else if is_at_rest {
            self.units.clear_result(at, now);
        } else {
            observed.clear_attempts();
            observed.starts = StartRateLimit::default();
            self.units.nodes.touch(at);
        }
        self.units.nodes.propagate();
        something
    }

    /// Restarts the unit that provides a target, if it has failed or completed, has no processes
    /// left, and no restart is scheduled. The start rate limit of the unit may still prevent the
    /// restart. Returns whether a restart was attempted.
    pub fn retry_now(&mut self, target: &Target, now: Timestamp) -> bool {
        let Some(at) = self.units.nodes.provider(target) else { return false };
        let nodes = &mut self.units.nodes;
        let node = nodes.node_mut(at);
        if !node.is_at_rest() || node.observed.retry_at.is_some() {
            return false;
        }
        node.observed.clear_attempts();
        (node.observed.gave_up, node.observed.retry_at) = (false, Some(now));
        nodes.touch(at);
        nodes.propagate();
        true
    }

    /// Restarts the unit that provides a target, if the unit is starting or active. Otherwise does
    /// nothing and returns `false`.
    pub fn restart(&mut self, target: &Target) -> bool {
        let Some(at) = self.units.nodes.provider(target) else { return false };
        let nodes = &mut self.units.nodes;
        let observed = &mut nodes.node_mut(at).observed;
        let runs = observed.phase == Phase::Starting || observed.phase.is_active();
        if runs {
            observed.restart_requested = true;
            nodes.touch(at);
            nodes.propagate();
        }
        runs
    }

    /// Requests a reload of the unit that provides a target. If a reload is in progress, the
    /// requested reload begins after it. A unit whose main process has exited can reload only by
    /// its reload commands, not by a signal.
    ///
    /// # Errors
    ///
    /// Returns the reason why the unit cannot reload.
    pub fn request_reload(&mut self, target: &Target) -> Result<(), NotReloadable> {
        let nodes = &mut self.units.nodes;
        let at = nodes.provider(target).ok_or(NotReloadable::NotProvided)?;
        let node = nodes.node_mut(at);
        if !node.observed.phase.is_active() {
            return Err(NotReloadable::NotActive);
        }
        let run = node.observed.definition.as_ref().map(|definition| &definition.run);
        let exited = node.observed.exited;
        let tells = |signal: Option<_>| signal.is_some() && !exited;
        if !run.is_some_and(|run| !run.reload.is_empty() || tells(run.reload_signal)) {
            return Err(NotReloadable::NoCommand);
        }
        node.observed.reload_requested = true;
        nodes.touch(at);
        nodes.propagate();
        Ok(())
    }

    /// Updates the whole graph after a change of the requested or masked targets.
    ///
    /// A failed or stopping unit loses its result if the unit was not needed before the change, or
    /// is not needed after it. A unit that becomes needed again therefore starts without its old
    /// result.
    fn requests_changed(&mut self, now: Timestamp) {
        let nodes = &mut self.units.nodes;
        let mut expiring_results = nodes.expiring_results();
        nodes.recompute_demand(&self.requested);
        expiring_results.extend(nodes.all().filter(|&at| nodes.node(at).result_expires()));
        expiring_results.into_iter().for_each(|at| self.units.expire_result(at, now));
        self.units.nodes.propagate();
    }

    /// Applies a change of the demand for the unit `at`, after the request or the mask of one
    /// target was added or removed. `at` is `None` if no unit provides that target. In that case
    /// only results are cleared, as in [`requests_changed`](Self::requests_changed).
    fn demand_changed(
        &mut self,
        at: Option<u32>,
        now: Timestamp,
        change: impl FnOnce(&mut Demand),
    ) {
        let nodes = &mut self.units.nodes;
        let mut expiring_results = nodes.expiring_results();
        if let Some(at) = at {
            change(&mut nodes.node_mut(at).demand);
            let changed = nodes.propagate_demand_from(at).into_iter();
            expiring_results.extend(changed.filter(|&at| nodes.node(at).result_expires()));
        }
        expiring_results.into_iter().for_each(|at| self.units.expire_result(at, now));
        self.units.nodes.propagate();
    }

    /// Clears the earlier failures of a unit with a changed definition, so that the unit can start
    /// again if it has failed or completed. A running unit is restarted, if necessary, when the
    /// nodes are rebuilt.
    fn apply_definition_change(&mut self, at: u32, now: Timestamp) {
        let node = self.units.nodes.node_mut(at);
        if node.is_at_rest() {
            self.units.clear_result(at, now);
        } else if node.observed.phase == Phase::Failed {
            self.units.retry_immediately(at, now);
        } else {
            node.observed.clear_attempts();
            self.units.nodes.touch(at);
        }
    }
}
