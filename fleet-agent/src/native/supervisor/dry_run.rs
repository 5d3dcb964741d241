//! Previews the effect of other files or another goal, by applying the change to a copy of the
//! planner.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{Graph, InitState, Settings, Target};

use super::Supervisor;
use super::desired_targets::DesiredTargets;
use super::error::SupervisorError;

/// Change to preview.
#[derive(Debug, Clone, Default)]
pub struct InitDryRun {
    /// Another graph with its settings, as for [`InitSupervisor::reload`](crate::InitSupervisor::reload).
    pub files: Option<(Graph, Settings)>,
    /// Another goal, as for [`InitSupervisor::set_goal`](crate::InitSupervisor::set_goal). It
    /// overrides the goal of the settings.
    pub goal: Option<Target>,
    /// Extra targets besides the goal. If this set is empty and [`goal`](Self::goal) is `None`, the
    /// current extra targets stay. Otherwise this set replaces them.
    pub extra_targets: BTreeSet<Target>,
}

/// Planner state before and after the previewed change.
#[derive(Debug, Clone)]
pub struct InitDryRunResult {
    /// Time of the preview.
    pub now: Timestamp,
    /// Targets that would be desired.
    pub desired: DesiredTargets,
    /// Current state of the planner.
    pub before: InitState,
    /// State of the planner right after the change, before any action.
    pub after: InitState,
}

impl Supervisor {
    pub(super) fn dry_run(&self, request: InitDryRun) -> Result<InitDryRunResult, SupervisorError> {
        let now = self.context.now();
        let (mut after, mut desired) = (self.planner.clone(), self.selection.desired.clone());
        if let Some((graph, settings)) = request.files {
            desired = self.selection.rebase(&settings).desired;
            desired.goal = request.goal.clone().or(desired.goal);
            let done = after.reload_with(graph, &desired.apply_to(&settings), now);
            done.map_err(SupervisorError::InvalidTargets)?;
        }
        if request.goal.is_some() || !request.extra_targets.is_empty() {
            desired.goal = request.goal.or(desired.goal);
            desired.extra_targets = request.extra_targets;
            let done = after.set_goal(desired.goal.clone(), desired.extra_targets.clone(), now);
            done.map_err(SupervisorError::InvalidTargets)?;
        }
        Ok(InitDryRunResult { now, desired, before: self.planner.clone(), after })
    }
}
