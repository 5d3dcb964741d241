//! The status of all units at one time, and previews of other files or another goal.
//!
//! A preview applies the change to a copy of the planner.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{Graph, InitState, Name, Settings, StatusReport, Target};

use super::command::SupervisorError;
use super::core::Core;
use crate::native::Tracking;
use crate::native::state::desired_targets::DesiredTargets;

/// Status of all units at one time.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InitSnapshot {
    /// Time of the snapshot. Like all timestamps in the snapshot, it was read from the supervisor's
    /// clock.
    pub now: Timestamp,
    /// Targets that the supervisor has to provide.
    pub desired: DesiredTargets,
    /// Method by which processes are tracked.
    pub tracking: Tracking,
    /// Units, ordered by name. They include units that still run but are no longer in the graph.
    pub units: Vec<UnitSnapshot>,
    /// Copy of the planner, to preview the effect of another graph or goal.
    pub planner: InitState,
}

/// Status of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitSnapshot {
    /// Name of the unit.
    pub unit: Name,
    /// Description of the unit from its file. Empty if the unit is no longer in the graph.
    pub description: String,
    /// Targets that the unit provides.
    pub provides: Vec<Target>,
    /// State of the unit, with its reason.
    pub report: StatusReport,
    /// Targets that are up only because the unit provides another target that is needed.
    pub coincidental: Vec<Target>,
    /// Targets that make the unit degraded.
    pub degraded_by: Vec<Target>,
    /// Process ID of the main process, if it runs.
    pub main_pid: Option<u32>,
    /// Latest `STATUS=` message that the unit has sent with `sd_notify` in its current run. `None`
    /// once the run is over.
    pub status: Option<String>,
    /// Latest reason why a process of the unit could not be started, or why the unit cannot be
    /// recovered.
    pub problem: Option<String>,
}

/// Returns the status of all units.
pub(super) fn snapshot(core: &Core) -> InitSnapshot {
    InitSnapshot {
        now: core.now(),
        desired: core.targets.desired().clone(),
        tracking: core.context.tracking(),
        units: core.planner.units().filter_map(|unit| unit_snapshot(core, unit)).collect(),
        planner: core.planner.clone(),
    }
}

fn unit_snapshot(core: &Core, name: &Name) -> Option<UnitSnapshot> {
    let report = core.planner.status(name)?;
    let unit = core.planner.graph().unit(name);
    let provides = unit.map_or_else(Vec::new, |unit| unit.provides.clone());
    let entry = core.units.get(name);
    let run_state = entry.map(|entry| &*entry.run_state);
    let problem = entry.and_then(|entry| entry.problem.as_ref());
    let handle = entry.filter(|entry| entry.handle.is_some());
    let coincidental = provides.iter().filter(|target| core.planner.is_coincidental(target));
    Some(UnitSnapshot {
        unit: name.clone(),
        description: unit.map(|unit| unit.description.clone()).unwrap_or_default(),
        coincidental: coincidental.cloned().collect(),
        provides,
        report,
        degraded_by: core.planner.degraded_by(name),
        main_pid: run_state.and_then(|run_state| run_state.main).map(|process| process.pid),
        status: handle.and_then(|entry| entry.run_state.status.clone()),
        problem: core.unrecoverable.get(name).or(problem).cloned(),
    })
}

/// Change to preview.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InitDryRun {
    /// Another graph with its settings, as for
    /// [`InitSupervisor::reload`](crate::native::InitSupervisor::reload).
    pub files: Option<(Graph, Settings)>,
    /// Another goal, as for [`InitSupervisor::set_goal`](crate::native::InitSupervisor::set_goal).
    /// It overrides the goal of the settings.
    pub goal: Option<Target>,
    /// Extra targets besides the goal. If this set is empty and [`goal`](Self::goal) is `None`, the
    /// current extra targets stay. Otherwise this set replaces them.
    pub extra_targets: BTreeSet<Target>,
}

impl InitDryRun {
    /// Creates a change; each part is optional.
    #[must_use]
    pub fn new(
        files: Option<(Graph, Settings)>,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Self {
        Self { files, goal, extra_targets }
    }
}

/// Planner state before and after the previewed change.
#[derive(Debug, Clone)]
#[non_exhaustive]
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

/// Applies a change to a copy of the planner.
pub(super) fn dry_run(
    core: &Core,
    request: InitDryRun,
) -> Result<InitDryRunResult, SupervisorError> {
    let now = core.now();
    let (mut after, mut desired) = (core.planner.clone(), core.targets.desired().clone());
    if let Some((graph, settings)) = request.files {
        desired = core.targets.rebased_desired(&settings);
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
    Ok(InitDryRunResult { now, desired, before: core.planner.clone(), after })
}
