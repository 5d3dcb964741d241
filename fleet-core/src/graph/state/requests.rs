//! The verbs by which people change what is wanted.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::InitState;
use super::demand::Demand;
use crate::Timestamp;
use crate::graph::{Graph, GraphError, Phase, Settings, StartRateLimit, Target};

/// Why a unit cannot read its configuration again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReloadable {
    /// Nobody provides the target.
    #[error("no unit provides it")]
    NotProvided,
    /// The unit that provides it is not up.
    #[error("its unit is not up")]
    NotActive,
    /// There is no command that would make it.
    #[error("its unit names no command to reload it")]
    NoCommand,
}

impl InitState {
    /// Chooses what the system is there for: a goal, and targets beside it for the time being. It
    /// is as if a virtual unit waited for all of them and were the goal.
    ///
    /// Units that are not needed any more are stopped. That some could not be stopped before is
    /// forgotten.
    ///
    /// # Errors
    ///
    /// What is wrong with one of the targets; then nothing has changed. A target beside the goal
    /// may be masked, and is then as if it could not be started.
    pub fn set_goal(
        &mut self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
        now: Timestamp,
    ) -> Result<(), GraphError> {
        let of_goal = goal.as_ref().and_then(|goal| self.graph.goal_error(goal, &self.mask));
        let beside =
            || extra_targets.iter().find_map(|one| self.graph.goal_error(one, &BTreeSet::new()));
        if let Some(error) = of_goal.or_else(beside) {
            return Err(error);
        }
        if (&self.goal, &self.extra_targets) != (&goal, &extra_targets) {
            (self.goal, self.extra_targets) = (goal, extra_targets);
            self.requests_changed(now);
        }
        Ok(())
    }

    /// Chooses which targets are masked.
    ///
    /// # Errors
    ///
    /// If the goal is; then nothing has changed.
    pub fn set_mask(&mut self, mask: BTreeSet<Target>, now: Timestamp) -> Result<(), GraphError> {
        if let Some(error) = self.goal.as_ref().and_then(|goal| self.graph.goal_error(goal, &mask))
        {
            return Err(error);
        }
        if self.mask != mask {
            self.mask = mask;
            self.requests_changed(now);
        }
        Ok(())
    }

    /// Wants one target more beside the goal. It is as if all were chosen anew with it, and costs
    /// what it changes, not what there is.
    ///
    /// # Errors
    ///
    /// If nobody provides it; then nothing has changed.
    pub fn add_extra_target(&mut self, target: Target, now: Timestamp) -> Result<(), GraphError> {
        if let Some(error) = self.graph.goal_error(&target, &BTreeSet::new()) {
            return Err(error);
        }
        let at = self.provider(&target);
        if self.extra_targets.insert(target) {
            self.demand_changed(at, now, |demand| demand.wanted += 1);
        }
        Ok(())
    }

    /// Wants one target less beside the goal, in the same way.
    pub fn remove_extra_target(&mut self, target: &Target, now: Timestamp) {
        if self.extra_targets.remove(target) {
            self.demand_changed(self.provider(target), now, |demand| demand.wanted -= 1);
        }
    }

    /// Masks one target more. It is as if all were chosen anew with it, and costs what it changes.
    ///
    /// # Errors
    ///
    /// If the unit of the goal provides it; then nothing has changed.
    pub fn mask(&mut self, target: Target, now: Timestamp) -> Result<(), GraphError> {
        let at = self.provider(&target);
        let goal = self.goal.as_ref().filter(|goal| at.is_some() && self.provider(goal) == at);
        if let Some(goal) = goal.cloned() {
            return Err(GraphError::GoalMasked { goal });
        }
        if self.mask.insert(target) {
            self.demand_changed(at, now, |demand| demand.masks += 1);
        }
        Ok(())
    }

    /// Masks one target less, in the same way.
    pub fn unmask(&mut self, target: &Target, now: Timestamp) {
        if self.mask.remove(target) {
            self.demand_changed(self.provider(target), now, |demand| demand.masks -= 1);
        }
    }

    /// Chooses how many units may be starting at once; nothing is as many as there are. Those that
    /// are starting already go on.
    pub fn set_max_starting(&mut self, most: Option<NonZeroU32>) {
        self.max_starting = most;
    }

    /// Takes another graph. Units that run otherwise now are started anew, units that are gone
    /// are stopped, and all else stays as it is. If it is the same graph nothing follows.
    ///
    /// # Errors
    ///
    /// If nobody provides the goal any more; then nothing has changed.
    pub fn reload(&mut self, graph: Graph, now: Timestamp) -> Result<(), GraphError> {
        let (goal, mask, max_starting) = (self.goal.clone(), self.mask.clone(), self.max_starting);
        let unlimited_starts = self.unlimited_starts.clone();
        let settings =
            Settings { goal, mask, max_starting, unlimited_starts, ..Settings::default() };
        self.reload_with(graph, &settings, now)
    }

    /// Takes another graph, goal and mask, and another number of units that may be starting, in one
    /// step. What is wanted beside the goal stays.
    ///
    /// # Errors
    ///
    /// What is wrong with the goal in this graph and with this mask; then nothing has changed.
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
        graph.share_unchanged(&self.graph);
        let same = (&self.goal, &self.mask) == (goal, mask) && graph.is_same_as(&self.graph);
        (self.goal, self.mask) = (goal.clone(), mask.clone());
        self.max_starting = settings.max_starting;
        self.unlimited_starts.clone_from(&settings.unlimited_starts);
        if same {
            self.take_graph(graph);
            return Ok(());
        }
        for at in self.queues.expiring_results.clone() {
            self.expire_result(at, now);
        }
        self.apply_definitions(&graph, now);
        self.take_graph(graph);
        self.requests_changed(now);
        Ok(())
    }

    /// Takes note of which units run otherwise in another graph, or are only described otherwise.
    fn apply_definitions(&mut self, graph: &Graph, now: Timestamp) {
        for at in self.all() {
            let old = &self.node(at).unit;
            let Some(new) = graph.unit(&old.name).filter(|new| *new != old) else { continue };
            if old.needs_restart_for(new) {
                self.apply_definition_change(at, now);
            } else {
                self.node_mut(at).observed.clear_attempts();
            }
        }
    }

    /// Forgets that the unit of a target failed, or ended, so that it is started at once if it is
    /// needed. Tells whether there was something to forget_result.
    pub fn reset_failed(&mut self, target: &Target, now: Timestamp) -> bool {
        let Some(at) = self.provider(target) else { return false };
        let phase = self.node(at).observed.phase;
        let is_at_rest = self.is_at_rest(at) || phase == Phase::Inactive;
        let observed = &mut self.node_mut(at).observed;
        let something = observed.attempts > 0 || matches!(phase, Phase::Failed | Phase::Completed);
        if phase == Phase::Failed && observed.processes {
            self.retry_immediately(at, now);
        } else if is_at_rest {
            self.forget_result(at, now);
        } else {
            observed.clear_attempts();
            observed.starts = StartRateLimit::default();
            self.touch(at);
        }
        self.propagate();
        something
    }

    /// Has the unit of a target tried again now if its last run is over, within its limit of
    /// starts. One that waits for its next attempt waits on. Tells whether it is tried.
    pub fn retry_now(&mut self, target: &Target, now: Timestamp) -> bool {
        let Some(at) = self.provider(target) else { return false };
        if !self.is_at_rest(at) || self.node(at).observed.retry_at.is_some() {
            return false;
        }
        let observed = &mut self.node_mut(at).observed;
        observed.clear_attempts();
        (observed.gave_up, observed.retry_at) = (false, Some(now));
        self.touch(at);
        self.propagate();
        true
    }

    /// Has the unit of a target started anew, if it is starting or up. Tells whether it is.
    pub fn restart(&mut self, target: &Target) -> bool {
        let Some(at) = self.provider(target) else { return false };
        let observed = &mut self.node_mut(at).observed;
        let runs = observed.phase == Phase::Starting || observed.phase.is_active();
        if runs {
            observed.restart_requested = true;
            self.touch(at);
            self.propagate();
        }
        runs
    }

    /// Has the unit of a target read its own configuration again, as deadline_after as it does not any more.
    /// One whose main process has ended well has its commands for that run, too.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub fn request_reload(&mut self, target: &Target) -> Result<(), NotReloadable> {
        let at = self.provider(target).ok_or(NotReloadable::NotProvided)?;
        let node = self.node_mut(at);
        if !node.observed.phase.is_active() {
            return Err(NotReloadable::NotActive);
        }
        let run = node.observed.definition.as_ref().map(|definition| &definition.run);
        let exited = node.observed.exited;
        let tells = |signal: Option<_>| signal.is_some() && !exited;
        if !run.is_some_and(|run| !run.reload.is_empty() || tells(run.reload_signal)) {
            return Err(NotReloadable::NoCommand);
        }
        node.observed.reload_wanted = true;
        self.touch(at);
        self.propagate();
        Ok(())
    }

    /// Takes note that much is wanted otherwise. What lapses by that was not needed before, or is
    /// not any more; that it is needed again keeps nothing.
    fn requests_changed(&mut self, now: Timestamp) {
        let mut expiring_results: Vec<u32> = self.queues.expiring_results.iter().copied().collect();
        self.recompute_demand();
        expiring_results.extend(self.all().filter(|&at| self.node(at).result_expires()));
        expiring_results.into_iter().for_each(|at| self.expire_result(at, now));
        self.propagate();
    }

    /// Takes note that one unit is wanted or masked otherwise; nothing follows if nobody provides
    /// what was chosen.
    fn demand_changed(
        &mut self,
        at: Option<u32>,
        now: Timestamp,
        change: impl FnOnce(&mut Demand),
    ) {
        let mut expiring_results: Vec<u32> = self.queues.expiring_results.iter().copied().collect();
        if let Some(at) = at {
            change(&mut self.node_mut(at).demand);
            let changed = self.propagate_demand_from(at).into_iter();
            expiring_results.extend(changed.filter(|&at| self.node(at).result_expires()));
        }
        expiring_results.into_iter().for_each(|at| self.expire_result(at, now));
        self.propagate();
    }

    /// A unit runs something else from now on. One that does now is found to when it is laid out.
    fn apply_definition_change(&mut self, at: u32, now: Timestamp) {
        if self.is_at_rest(at) {
            self.forget_result(at, now);
        } else if self.node(at).observed.phase == Phase::Failed {
            self.retry_immediately(at, now);
        } else {
            self.node_mut(at).observed.clear_attempts();
            self.touch(at);
        }
    }

    fn is_at_rest(&self, at: u32) -> bool {
        let observed = &self.node(at).observed;
        matches!(observed.phase, Phase::Failed | Phase::Completed) && !observed.processes
    }
}
