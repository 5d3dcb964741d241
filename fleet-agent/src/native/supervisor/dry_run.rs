//! What would follow from other files or another goal: tried on a copy.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{Graph, InitState, Settings, Target};

use super::desired_targets::DesiredTargets;
use super::error::SupervisorError;
use super::event_loop::Supervisor;
use super::handle::InitSupervisor;

/// What is to be tried.
#[derive(Debug, Clone, Default)]
pub struct InitDryRun {
    /// Another graph with its settings, as by [`InitSupervisor::reload`].
    pub files: Option<(Graph, Settings)>,
    /// Another goal, as by [`InitSupervisor::set_goal`]; it wins over that of the settings.
    pub goal: Option<Target>,
    /// What is wanted beside the goal instead. With neither this nor a goal, that stays as it is.
    pub extra_targets: BTreeSet<Target>,
}

/// How the units are, and how they would be right after what was tried.
#[derive(Debug, Clone)]
pub struct InitDryRunResult {
    /// The moment.
    pub now: Timestamp,
    /// What would be wanted.
    pub desired: DesiredTargets,
    /// What decides as it is.
    pub before: InitState,
    /// What would decide, before it has.
    pub after: InitState,
}

impl InitSupervisor {
    /// Tries other files or another goal on a copy of what decides. Nothing changes.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] where trying it in earnest would be refused.
    pub async fn dry_run(&self, request: InitDryRun) -> Result<InitDryRunResult, SupervisorError> {
        self.call(move |supervisor| supervisor.dry_run(request)).await?
    }
}

impl Supervisor {
    fn dry_run(&self, request: InitDryRun) -> Result<InitDryRunResult, SupervisorError> {
        let now = self.context.now();
        let (mut after, mut desired) = (self.system.clone(), self.selection.desired.clone());
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
        Ok(InitDryRunResult { now, desired, before: self.system.clone(), after })
    }
}
