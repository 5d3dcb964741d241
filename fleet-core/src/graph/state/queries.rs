//! Queries: the status of units and the reasons for it.

use std::sync::Arc;

use super::InitState;
use super::neighbour::NeighbourView;
use super::node::Node;
use crate::Timestamp;
use crate::graph::{
    ActionKind, BlockedBy, DerivedState, EdgeKind, FailureCause, Graph, InitUnit, Name, Phase,
    Retry, StatusReport, StopOutcome, StopReason, Target, UnitAction, WaitReason,
};

impl InitState {
    /// Returns the graph of the units.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the goal.
    #[must_use]
    pub fn goal(&self) -> Option<&Target> {
        self.goal.as_ref()
    }

    /// Returns the goal and the extra targets.
    pub fn requested_targets(&self) -> impl Iterator<Item = &Target> {
        self.goal.iter().chain(&self.extra_targets)
    }

    /// Returns the status of a unit, or `None` if the unit is not in the graph and has no
    /// processes.
    #[must_use]
    pub fn status(&self, unit: &Name) -> Option<StatusReport> {
        let at = self.find(unit).filter(|&at| is_visible(self.node(at)))?;
        let node = self.node(at);
        Some(StatusReport {
            state: self.derive_state(node),
            needed: node.needed,
            degraded: self.degraded.is_degraded(at),
            since: node.observed.since,
            incarnation: node.observed.incarnation,
            attempts: node.observed.attempts,
            failures: node.observed.failures,
            reload_failed: node.observed.reload_failed,
        })
    }

    /// Returns the definition by which a unit runs, and by which it will be stopped. Returns `None`
    /// if the unit has no run.
    #[must_use]
    pub fn running(&self, unit: &Name) -> Option<&Arc<InitUnit>> {
        self.find(unit).and_then(|at| self.node(at).observed.definition.as_ref())
    }

    /// Returns the units that the next plan restarts because their last run has ended.
    #[must_use]
    pub fn due_restarts(&self, now: Timestamp) -> Vec<Name> {
        let due = self.queues.timers.iter().take_while(|&&(timer, _)| timer <= now);
        let nodes = due.map(|&(_, at)| self.node(at));
        let restarts = nodes.filter(|node| {
            let is_over = matches!(node.observed.phase, Phase::Failed | Phase::Completed);
            is_over && !node.exceeds_start_limit(now)
        });
        restarts.map(|node| node.unit.name.clone()).collect()
    }

    /// Returns whether a unit is inactive and stays inactive, because it is masked or not needed.
    /// Returns `None` for a unit without a [`status`](Self::status). This is cheaper than `status`,
    /// which also computes the reasons for waiting.
    #[must_use]
    pub fn stays_inactive(&self, unit: &Name) -> Option<bool> {
        let node = self.find(unit).map(|at| self.node(at)).filter(|node| is_visible(node))?;
        Some(node.observed.phase == Phase::Inactive && (node.masked || !node.needed))
    }

    /// Returns whether a unit is inactive.
    #[must_use]
    pub fn is_inactive(&self, unit: &Name) -> bool {
        self.find(unit).is_some_and(|at| self.node(at).observed.phase == Phase::Inactive)
    }

    /// Returns whether a reload is requested that has not begun.
    #[must_use]
    pub fn has_pending_reload(&self, unit: &Name) -> bool {
        self.find(unit).is_some_and(|at| self.node(at).observed.reload_requested)
    }

    /// Returns the names of all units in the graph, and of units outside it that still run.
    pub fn units(&self) -> impl Iterator<Item = &Name> {
        self.nodes.iter().filter(|node| is_visible(node)).map(|node| &node.unit.name)
    }

    /// Returns the names of the units that may have changed their status since the last call,
    /// including units that no longer exist. A unit that stays degraded or waiting is not included
    /// if only the reasons change. But the units that cause such a change are included.
    pub fn take_changed(&mut self) -> Vec<Name> {
        self.changed.take().into_iter().map(|at| self.node(at).unit.name.clone()).collect()
    }

    /// Returns whether a target is active only by coincidence: its unit is needed, but only for
    /// other targets that the unit provides.
    #[must_use]
    pub fn is_coincidental(&self, target: &Target) -> bool {
        let Some(at) = self.provider(target).filter(|&at| self.node(at).needed) else {
            return false;
        };
        let names = |node: &Node| {
            node.unit.edges.iter().any(|(kind, name)| kind.requires() && name == target)
        };
        let mut dependents = self.adjacency.dependents(at).iter().map(|link| self.node(link.node));
        !self.requested_targets().any(|goal| goal == target)
            && !dependents.any(|node| node.needed && names(node))
    }

    /// Returns the targets that make a unit degraded, sorted by name. The list is empty if the unit
    /// is not degraded.
    #[must_use]
    pub fn degraded_by(&self, unit: &Name) -> Vec<Target> {
        let Some(at) = self.find(unit).filter(|&at| self.degraded.is_degraded(at)) else {
            return Vec::new();
        };
        self.collect_targets(self.node(at), |kind, provider| {
            let keeps = provider
                .map_or(kind.requires(), |provider| self.degraded.is_reason(provider, kind));
            keeps.then_some(())
        })
        .into_iter()
        .map(|(target, ())| target)
        .collect()
    }

    fn derive_state(&self, node: &Node) -> DerivedState {
        let observed = &node.observed;
        match observed.phase {
            Phase::Inactive if node.masked => DerivedState::Masked,
            Phase::Inactive if !node.needed => DerivedState::Disabled,
            Phase::Inactive => DerivedState::Waiting(self.wait_reason(node)),
            Phase::Starting => DerivedState::Starting,
            Phase::Active(activity) => DerivedState::Active(activity),
            Phase::Stopping => {
                DerivedState::Stopping(observed.outcome.as_ref().and_then(stop_reason))
            }
            Phase::Failed => DerivedState::Failed {
                cause: observed.cause.unwrap_or(FailureCause::Exit(crate::graph::Exit::Unknown)),
                retry: retry(node),
                stuck: observed.processes,
            },
            Phase::Completed => DerivedState::Completed(retry(node)),
        }
    }

    fn wait_reason(&self, node: &Node) -> WaitReason {
        if node.view.blocked {
            return WaitReason::Blocked(self.collect_targets(node, |kind, provider| {
                blocked_by(kind, provider.map(|at| self.node(at).view))
            }));
        }
        let waiting_for = self.collect_targets(node, |kind, provider| {
            provider.is_some_and(|at| self.node(at).view.effect(kind).unready).then_some(())
        });
        if !waiting_for.is_empty() {
            return WaitReason::Dependencies(
                waiting_for.into_iter().map(|(target, ())| target).collect(),
            );
        }
        if node.observed.processes {
            return WaitReason::LeftoverProcesses;
        }
        let full = self.max_starting.is_some_and(|most| self.starting >= most.get());
        if full { WaitReason::Slot } else { WaitReason::NextPlan }
    }

    /// Returns the targets that a unit depends on and for which `select` returns a value, each with
    /// its value, sorted by name. `select` gets the edge kind and the node of the target's
    /// provider, if there is one.
    fn collect_targets<T>(
        &self,
        node: &Node,
        select: impl Fn(EdgeKind, Option<u32>) -> Option<T>,
    ) -> Vec<(Target, T)> {
        let mut found: Vec<(Target, T)> = Vec::new();
        let mut edges: Vec<&(EdgeKind, Target)> = node.unit.edges.iter().collect();
        edges.sort_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
        for (kind, target) in edges {
            let provider = self.provider(target);
            let known = found.last().is_some_and(|(last, _)| last == target);
            if let Some(selected) = select(*kind, provider).filter(|_| !known) {
                found.push((target.clone(), selected));
            }
        }
        found
    }
}

/// Returns whether the unit has a status.
fn is_visible(node: &Node) -> bool {
    !node.orphan || node.observed.phase.is_busy() || node.observed.processes
}

fn blocked_by(kind: EdgeKind, provider: Option<NeighbourView>) -> Option<BlockedBy> {
    let Some(view) = provider else {
        return (kind <= EdgeKind::DependsMs).then_some(BlockedBy::Missing);
    };
    if !view.effect(kind).blocks_start {
        return None;
    }
    let table = [
        (view.masked, BlockedBy::Masked),
        (view.failed, BlockedBy::Failed),
        (view.ended, BlockedBy::Completed),
    ];
    let found = table.into_iter().find(|(found, _)| *found);
    Some(found.map_or(BlockedBy::Blocked, |(_, blocked_by)| blocked_by))
}

fn stop_reason(outcome: &StopOutcome) -> Option<StopReason> {
    match outcome {
        StopOutcome::Inactive(reason) => Some(reason.clone()),
        StopOutcome::Failed(cause) => Some(StopReason::Failed(*cause)),
        StopOutcome::Completed(_) => Some(StopReason::Completed),
        StopOutcome::Skipped => Some(StopReason::Skipped),
        StopOutcome::SelfInitiated => None,
    }
}

/// Returns whether and when a unit is restarted. A scheduled restart is ignored if the unit is not
/// needed.
fn retry(node: &Node) -> Retry {
    match (node.observed.retry_at.filter(|_| node.needed), node.observed.gave_up) {
        (Some(at), _) => Retry::At(at),
        (None, true) => Retry::GaveUp,
        (None, false) => Retry::Never,
    }
}

impl UnitAction {
    /// Returns whether the action starts a new incarnation.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.kind == ActionKind::Start
    }
}
