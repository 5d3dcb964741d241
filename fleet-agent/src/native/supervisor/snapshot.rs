//! The status of all units at one time, and previews of other files or another goal.
//!
//! A preview applies the change to a copy of the planner.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{
    DerivedState, Graph, InitState, Name, Retry, Settings, StatusReport, Target,
};
use fleet_unitfile::UnitName;

use super::Supervisor;
use super::error::SupervisorError;
use super::managed_units::name_of;
use crate::native::Tracking;
use crate::native::state::desired_targets::DesiredTargets;
use crate::{ServiceError, UnitDetails};

/// Status of all units at one time.
#[derive(Debug, Clone)]
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

impl Supervisor {
    /// Returns the status of all units.
    pub(super) fn snapshot(&self) -> InitSnapshot {
        let units = self.planner.units().filter_map(|unit| self.status(unit)).collect();
        InitSnapshot {
            now: self.context.now(),
            desired: self.selection.desired.clone(),
            tracking: self.context.tracking(),
            units,
            planner: self.planner.clone(),
        }
    }

    /// Returns details of a loaded unit.
    pub(super) fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let name = name_of(unit);
        if let Some(details) = self.timers.details(unit) {
            return Ok(details);
        }
        if !self.managed.is_loaded(&name) {
            return Err(ServiceError::NotLoaded { unit: unit.clone() });
        }
        let retry = match self.planner.status(&name).map(|state| state.state) {
            Some(
                DerivedState::Failed { retry: Retry::At(at), .. }
                | DerivedState::Completed(Retry::At(at)),
            ) => Some(at.since(self.context.now())),
            _ => None,
        };
        let degraded_by = self.planner.degraded_by(&name);
        Ok(UnitDetails {
            retry_in: retry,
            degraded_by: degraded_by.iter().map(ToString::to_string).collect(),
            tracking: Some(self.context.tracking().to_string()),
            ..UnitDetails::default()
        })
    }

    fn status(&self, name: &Name) -> Option<UnitSnapshot> {
        let report = self.planner.status(name)?;
        let unit = self.planner.graph().unit(name);
        let provides = unit.map_or_else(Vec::new, |unit| unit.provides.clone());
        let entry = self.units.get(name);
        let run_state = entry.map(|entry| &*entry.run_state);
        let problem = entry.and_then(|entry| entry.problem.as_ref());
        let handle = entry.filter(|entry| entry.handle.is_some());
        let coincidental = provides.iter().filter(|target| self.planner.is_coincidental(target));
        Some(UnitSnapshot {
            unit: name.clone(),
            description: unit.map(|unit| unit.description.clone()).unwrap_or_default(),
            coincidental: coincidental.cloned().collect(),
            provides,
            report,
            degraded_by: self.planner.degraded_by(name),
            main_pid: run_state.and_then(|run_state| run_state.main).map(|process| process.pid),
            status: handle.and_then(|entry| entry.run_state.status.clone()),
            problem: self.unrecoverable.get(name).or(problem).cloned(),
        })
    }
}

/// Change to preview.
#[derive(Debug, Clone, Default)]
pub struct InitDryRun {
    /// Another graph with its settings, as for
    /// [`InitSupervisor::reload`](crate::native::InitSupervisor::reload).
    pub files: Option<(Graph, Settings)>,
    /// Another goal, as for [`InitSupervisor::set_goal`](crate::native::InitSupervisor::set_goal). It
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
