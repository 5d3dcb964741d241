//! Requests: targets, masks, resets, and the replacement of the graph.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::InitState;
use super::degraded::DegradedFlags;
use super::event::{ObservedUnit, StartRateLimit};
use super::need::{Components, Demand};
use super::node::{Counts, MissingTargets, NeighbourView, Node};
use super::phase::Phase;
use super::queues::{MarkedUnits, Queues, RankSet};
use crate::Timestamp;
use crate::graph::build::adjacency::{Adjacency, Edge, number};
use crate::graph::build::{Graph, GraphError, Settings};
use crate::graph::model::{EdgeKind, InitUnit, Name, Target};

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
        if (&self.goal, &self.extra_targets) != (&goal, &extra_targets) {
            (self.goal, self.extra_targets) = (goal, extra_targets);
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
        let of_goal = goal.and_then(|goal| self.graph.goal_error(goal, &self.mask));
        let beside =
            || extra_targets.iter().find_map(|one| self.graph.goal_error(one, &BTreeSet::new()));
        of_goal.or_else(beside).map_or(Ok(()), Err)
    }

    /// Sets the masked targets.
    ///
    /// # Errors
    ///
    /// Returns an error if the goal's unit would be masked. In that case nothing is changed.
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

    /// Adds one extra target. The effect is that of [`set_goal`](Self::set_goal), but the cost
    /// depends on the number of affected units, not on the size of the graph.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides the target. In that case nothing is changed.
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

    /// Removes one extra target. The cost is as for [`add_extra_target`](Self::add_extra_target).
    pub fn remove_extra_target(&mut self, target: &Target, now: Timestamp) {
        if self.extra_targets.remove(target) {
            self.demand_changed(self.provider(target), now, |demand| demand.wanted -= 1);
        }
    }

    /// Masks one target. The effect is that of [`set_mask`](Self::set_mask), but the cost depends
    /// on the number of affected units, not on the size of the graph.
    ///
    /// # Errors
    ///
    /// Returns an error if the goal's unit provides the target. In that case nothing is changed.
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

    /// Removes one target from the mask. The cost is as for [`mask`](Self::mask).
    pub fn unmask(&mut self, target: &Target, now: Timestamp) {
        if self.mask.remove(target) {
            self.demand_changed(self.provider(target), now, |demand| demand.masks -= 1);
        }
    }

    /// Sets the maximum number of units that may be starting at the same time. `None` means no
    /// limit. Starts that are in progress continue.
    pub fn set_max_starting(&mut self, most: Option<NonZeroU32>) {
        self.max_starting = most;
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
        let (goal, mask, max_starting) = (self.goal.clone(), self.mask.clone(), self.max_starting);
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

    /// Applies the changed definitions of a new graph.
    fn apply_definitions(&mut self, graph: &Graph, now: Timestamp) {
        for at in self.all() {
            let old = &self.node(at).unit;
            let Some(new) = graph.unit(&old.name).filter(|new| *new != old) else { continue };
            if old.runs_otherwise(new) {
                self.apply_definition_change(at, now);
            } else {
                self.node_mut(at).observed.clear_attempts();
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
        let Some(at) = self.provider(target) else { return false };
        let phase = self.node(at).observed.phase;
        let is_at_rest = self.is_at_rest(at) || phase == Phase::Inactive;
        let observed = &mut self.node_mut(at).observed;
        let something = observed.attempts > 0 || matches!(phase, Phase::Failed | Phase::Completed);
        if phase == Phase::Failed && observed.processes {
            self.retry_immediately(at, now);
        } else if is_at_rest {
            self.clear_result(at, now);
        } else {
            observed.clear_attempts();
            observed.starts = StartRateLimit::default();
            self.touch(at);
        }
        self.propagate();
        something
    }

    /// Restarts the unit that provides a target, if it has failed or completed, has no processes
    /// left, and no restart is scheduled. The start rate limit of the unit may still prevent the
    /// restart. Returns whether a restart was attempted.
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

    /// Restarts the unit that provides a target, if the unit is starting or active. Otherwise does
    /// nothing and returns `false`.
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

    /// Requests a reload of the unit that provides a target. If a reload is in progress, the
    /// requested reload begins after it. A unit whose main process has exited can reload only by
    /// its reload commands, not by a signal.
    ///
    /// # Errors
    ///
    /// Returns the reason why the unit cannot reload.
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
        node.observed.reload_requested = true;
        self.touch(at);
        self.propagate();
        Ok(())
    }

    /// Updates the whole graph after a change of the requested or masked targets.
    ///
    /// A failed or stopping unit loses its result if the unit was not needed before the change, or
    /// is not needed after it. A unit that becomes needed again therefore starts without its old
    /// result.
    fn requests_changed(&mut self, now: Timestamp) {
        let mut expiring_results: Vec<u32> = self.queues.expiring_results.iter().copied().collect();
        self.recompute_demand();
        expiring_results.extend(self.all().filter(|&at| self.node(at).result_expires()));
        expiring_results.into_iter().for_each(|at| self.expire_result(at, now));
        self.propagate();
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
        let mut expiring_results: Vec<u32> = self.queues.expiring_results.iter().copied().collect();
        if let Some(at) = at {
            change(&mut self.node_mut(at).demand);
            let changed = self.propagate_demand_from(at).into_iter();
            expiring_results.extend(changed.filter(|&at| self.node(at).result_expires()));
        }
        expiring_results.into_iter().for_each(|at| self.expire_result(at, now));
        self.propagate();
    }

    /// Clears the earlier failures of a unit with a changed definition, so that the unit can start
    /// again if it has failed or completed. A running unit is restarted, if necessary, when the
    /// nodes are rebuilt.
    fn apply_definition_change(&mut self, at: u32, now: Timestamp) {
        if self.is_at_rest(at) {
            self.clear_result(at, now);
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

impl InitState {
    /// Rebuilds all nodes from the graph and the observed units. A unit that runs but is not in the
    /// graph keeps a node until its processes are gone.
    pub(super) fn rebuild(&mut self, mut observed: BTreeMap<Name, ObservedUnit>) {
        let units = self.graph.units.iter();
        let known = |unit: &Arc<InitUnit>, observed: &mut BTreeMap<Name, ObservedUnit>| {
            let of_unit = observed.remove(&unit.name).unwrap_or_default();
            Node::new(Arc::clone(unit), false, of_unit)
        };
        self.nodes = units.map(|unit| known(unit, &mut observed)).collect();
        self.nodes.extend(observed.into_values().filter_map(orphan));
        self.nodes.sort_by(|a, b| a.unit.name.cmp(&b.unit.name));
        for node in &mut self.nodes {
            node.unlimited_start = self.unlimited_starts.contains(&node.unit.name);
        }
        self.starting = number(self.nodes.iter().filter(|node| is_starting(node)).count());
        self.mark_missing();
        self.adjacency = self.merged_adjacency();
        self.components = Arc::new(Components::of(&self.adjacency));
        self.reset_counts();
        self.recompute_demand();
        self.all().for_each(|at| self.touch(at));
        self.propagate();
    }

    fn mark_missing(&mut self) {
        let graph = Arc::clone(&self.graph);
        for (&at, missing) in &graph.missing {
            let kinds = || missing.iter().map(|&(kind, _)| kind);
            let node = self.node_of(at);
            self.node_mut(node).missing = MissingTargets {
                depends_on: kinds().any(|kind| kind == EdgeKind::DependsOn),
                hard: kinds().any(|kind| kind <= EdgeKind::DependsMs),
                any: kinds().any(EdgeKind::requires),
            };
        }
    }

    /// Returns the edges of the graph, together with the edges of running units outside the graph.
    /// These additional edges preserve the order in which units stop. If they would close a cycle,
    /// first those that lead from the graph to such units are left out, then all of them.
    fn merged_adjacency(&self) -> Arc<Adjacency> {
        if self.nodes.len() == self.graph.units.len() {
            return Arc::clone(&self.graph.adjacency);
        }
        let node_numbers: Vec<u32> = self.all().filter(|&at| !self.node(at).orphan).collect();
        let node = |at: u32| node_numbers[at as usize];
        let adjacency = &self.graph.adjacency;
        let links = |at| adjacency.dependencies(at).iter().map(move |link| (at, link));
        let edges = (0..number(node_numbers.len())).flat_map(links);
        let edges: Vec<Edge> =
            edges.map(|(at, link)| (node(at), link.kind, node(link.node))).collect();
        // Edges of an earlier graph may close a cycle with current ones.
        for left in [self.orphan_edges(true), self.orphan_edges(false)] {
            let adjacency =
                Adjacency::new(self.nodes.len(), edges.iter().copied().chain(left).collect());
            if adjacency.is_acyclic() {
                return Arc::new(adjacency);
            }
        }
        Arc::new(Adjacency::new(self.nodes.len(), edges))
    }

    /// Returns the edges from each orphan (a running unit outside the graph) to the units that it
    /// waits for. If `on_them` is set, also returns the edges from running units of the graph to
    /// orphans. All these edges have the kind `After`, because they only order stops.
    fn orphan_edges(&self, on_them: bool) -> Vec<Edge> {
        let orphans = || self.all().filter(|&at| self.node(at).orphan);
        let provided = |at| self.node(at).unit.provides.iter().map(move |target| (target, at));
        let by_target: BTreeMap<&Target, u32> = orphans().flat_map(provided).collect();
        let mut edges = Vec::new();
        for at in self.all().filter(|&at| on_them || self.node(at).orphan) {
            let node = self.node(at);
            let Some(definition) = node.observed.definition.as_ref() else { continue };
            for (_, target) in definition.edges.iter().filter(|(kind, _)| kind.orders()) {
                let provider = self.provider(target).filter(|_| node.orphan);
                let to = by_target.get(target).copied().into_iter().chain(provider);
                edges.extend(to.filter(|&to| to != at).map(|to| (at, EdgeKind::After, to)));
            }
        }
        edges
    }

    /// Empties the queues, and sets the counts of each unit as if all units were inactive and not
    /// needed. A default `NeighbourView` describes such a unit.
    fn reset_counts(&mut self) {
        let adjacency = Arc::clone(&self.adjacency);
        self.dirty = RankSet::new(adjacency.len());
        self.queues = Queues::default();
        self.changed = MarkedUnits::new(adjacency.len());
        self.degraded =
            DegradedFlags::new(&adjacency, self.nodes.iter().map(|node| node.missing.any));
        let (nothing, blank) = Default::default();
        for at in self.all() {
            let mut counts = Counts::default();
            for link in adjacency.dependencies(at) {
                let view: NeighbourView = blank;
                counts.replace(nothing, view.effect(link.kind));
            }
            self.node_mut(at).counts = counts;
        }
    }

    /// Returns the node of the unit that provides a target.
    pub(super) fn provider(&self, target: &Target) -> Option<u32> {
        self.graph.providers.get(target).map(|&at| self.node_of(at))
    }

    /// Returns the node of a unit of the graph.
    fn node_of(&self, at: u32) -> u32 {
        if self.nodes.len() == self.graph.units.len() {
            return at;
        }
        self.find(&self.graph.units[at as usize].name).unwrap_or(at)
    }

    /// Replaces the graph and keeps the observed units.
    pub(super) fn take_graph(&mut self, graph: Graph) {
        self.graph = Arc::new(graph);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        self.rebuild(nodes.map(|node| (node.unit.name.clone(), node.observed)).collect());
    }
}

/// Returns the node of a unit outside the graph, or `None` if the unit has no processes.
fn orphan(observed: ObservedUnit) -> Option<Node> {
    let definition = observed.definition.clone()?;
    let left = observed.phase.is_busy() || observed.processes;
    left.then(|| Node::new(definition, true, observed))
}

fn is_starting(node: &Node) -> bool {
    node.observed.phase == Phase::Starting && !node.unlimited_start
}
