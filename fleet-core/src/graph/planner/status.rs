//! The status of a unit: its state with the reason, and what makes it degraded.

use super::need::RequestedTargets;
use super::node::{NeighbourView, Node};
use super::nodes::Nodes;
use super::phase::{
    BlockedBy, DerivedState, FailureCause, Phase, Retry, StatusReport, StopOutcome, StopReason,
    WaitReason,
};
use crate::graph::model::{EdgeKind, Exit, Name, Target};

impl Nodes {
    /// Returns the status of a unit, or `None` if the unit is not in the graph and has no
    /// processes. `is_full` is whether `max_starting` units are starting.
    pub(super) fn status(&self, unit: &Name, is_full: bool) -> Option<StatusReport> {
        let at = self.find(unit).filter(|&at| is_visible(self.node(at)))?;
        let node = self.node(at);
        Some(StatusReport {
            state: self.derive_state(node, is_full),
            needed: node.needed,
            degraded: self.degraded.is_degraded(at),
            since: node.observed.since,
            incarnation: node.observed.incarnation,
            attempts: node.observed.attempts,
            failures: node.observed.failures,
            reload_failed: node.observed.reload_failed,
        })
    }

    /// Returns whether a target is active only by coincidence: its unit is needed, but only for
    /// other targets that the unit provides.
    pub(super) fn is_coincidental(&self, target: &Target, requested: &RequestedTargets) -> bool {
        let Some(at) = self.provider(target).filter(|&at| self.node(at).needed) else {
            return false;
        };
        let names = |node: &Node| {
            node.unit.edges.iter().any(|(kind, name)| kind.requires() && name == target)
        };
        let mut dependents = self.adjacency.dependents(at).iter().map(|link| self.node(link.node));
        !requested.targets().any(|goal| goal == target)
            && !dependents.any(|node| node.needed && names(node))
    }

    /// Returns the targets that make a unit degraded, sorted by name. The list is empty if the unit
    /// is not degraded.
    pub(super) fn degraded_by(&self, unit: &Name) -> Vec<Target> {
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

    fn derive_state(&self, node: &Node, is_full: bool) -> DerivedState {
        let observed = &node.observed;
        match observed.phase {
            Phase::Inactive if node.masked => DerivedState::Masked,
            Phase::Inactive if !node.needed => DerivedState::Disabled,
            Phase::Inactive => DerivedState::Waiting(self.wait_reason(node, is_full)),
            Phase::Starting => DerivedState::Starting,
            Phase::Active(activity) => DerivedState::Active(activity),
            Phase::Stopping => {
                DerivedState::Stopping(observed.outcome.as_ref().and_then(stop_reason))
            }
            Phase::Failed => DerivedState::Failed {
                cause: observed.cause.unwrap_or(FailureCause::Exit(Exit::Unknown)),
                retry: retry(node),
                stuck: observed.processes,
            },
            Phase::Completed => DerivedState::Completed(retry(node)),
        }
    }

    fn wait_reason(&self, node: &Node, is_full: bool) -> WaitReason {
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
        if is_full { WaitReason::Slot } else { WaitReason::NextPlan }
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
pub(super) fn is_visible(node: &Node) -> bool {
    !node.orphan || node.observed.phase.is_busy() || node.observed.processes
}

fn blocked_by(kind: EdgeKind, provider: Option<NeighbourView>) -> Option<BlockedBy> {
    let Some(view) = provider else {
        return (kind <= EdgeKind::Requisite).then_some(BlockedBy::Missing);
    };
    if !view.effect(kind).blocks_start {
        return None;
    }
    let table = [
        (view.masked, BlockedBy::Masked),
        (view.failed, BlockedBy::Failed),
        (view.ended, BlockedBy::Completed),
        (kind == EdgeKind::Requisite && !view.blocked, BlockedBy::Inactive),
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
