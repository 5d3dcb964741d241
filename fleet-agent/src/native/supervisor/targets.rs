//! The targets that the planner has to provide, with their stored form: the goal, the extra targets
//! and the masks. Each change is stored before it takes effect.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fleet_core::Timestamp;
use fleet_core::graph::{Graph, InitState, Name, Observation, Settings, Target};

use super::command::{SupervisorError, io_error};
use crate::native::state::desired_targets::{DesiredTargets, TargetSelection};

/// Desired targets of a planner, with the file that stores them.
pub(super) struct Targets {
    selection: TargetSelection,
    file: PathBuf,
}

impl Targets {
    pub(super) fn new(selection: TargetSelection, file: PathBuf) -> Self {
        Self { selection, file }
    }

    /// Returns the desired targets.
    pub(super) fn desired(&self) -> &DesiredTargets {
        &self.selection.desired
    }

    /// Returns the targets that would be desired with these settings.
    pub(super) fn rebased_desired(&self, settings: &Settings) -> DesiredTargets {
        self.selection.rebase(settings).desired
    }

    /// Sets the goal and the extra targets, and stores them.
    pub(super) fn set_goal(
        &mut self,
        planner: &mut InitState,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
        now: Timestamp,
    ) -> Result<(), SupervisorError> {
        let valid = planner.check_goal(goal.as_ref(), &extra_targets);
        valid.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        (selection.desired.goal, selection.desired.extra_targets) =
            (goal.clone(), extra_targets.clone());
        // A choice that cannot be stored is not carried out.
        self.store(selection)?;
        let names: Vec<&str> = extra_targets.iter().map(Target::as_str).collect();
        let goal_name = goal.as_ref().map_or("none", Target::as_str);
        tracing::info!(goal = goal_name, extra_targets = names.join(", "), "the goal was set");
        let done = planner.set_goal(goal, extra_targets, now);
        done.map_err(SupervisorError::InvalidTargets)
    }

    /// Masks a target. Returns `false` if its unit was already masked.
    pub(super) fn mask(
        &mut self,
        planner: &mut InitState,
        target: &Target,
        now: Timestamp,
    ) -> Result<bool, SupervisorError> {
        if !self.masks_of(planner.graph(), target).is_empty() {
            return Ok(false);
        }
        let masked = planner.mask(target.clone(), now);
        masked.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        selection.desired.mask.insert(target.clone());
        if let Err(error) = self.store(selection) {
            planner.unmask(target, now);
            return Err(error);
        }
        tracing::info!(%target, "the target was masked");
        Ok(true)
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    pub(super) fn unmask(
        &mut self,
        planner: &mut InitState,
        target: &Target,
        now: Timestamp,
    ) -> Result<bool, SupervisorError> {
        let masks = self.masks_of(planner.graph(), target);
        let configured = &self.selection.configured.mask;
        if let Some(target) = masks.intersection(configured).next().cloned() {
            return Err(SupervisorError::MaskedBySettings { target });
        }
        if masks.is_empty() {
            return Ok(false);
        }
        let mut selection = self.selection.clone();
        selection.desired.mask.retain(|it| !masks.contains(it));
        self.store(selection)?;
        masks.iter().for_each(|it| planner.unmask(it, now));
        tracing::info!(%target, "the target was unmasked");
        Ok(true)
    }

    /// Returns the masked targets of the unit that provides a target.
    fn masks_of(&self, graph: &Graph, target: &Target) -> BTreeSet<Target> {
        let provider =
            |target: &Target| -> Option<&Name> { graph.provider(target).map(|unit| &unit.name) };
        let unit = provider(target);
        let is_of_unit = |it: &&Target| *it == target || (unit.is_some() && provider(it) == unit);
        self.selection.desired.mask.iter().filter(is_of_unit).cloned().collect()
    }

    /// Replaces the graph and the settings of the planner. Overrides of an operator stay in effect.
    pub(super) fn replace_graph(
        &mut self,
        planner: &mut InitState,
        graph: Graph,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), SupervisorError> {
        let selection = self.selection.rebase(settings);
        let earlier = self.selection.clone();
        if selection != earlier {
            self.store(selection.clone())?;
        }
        let settings = selection.desired.apply_to(settings);
        if let Err(error) = planner.reload_with(graph, &settings, now) {
            if selection != earlier {
                self.store(earlier)?;
            }
            return Err(SupervisorError::InvalidTargets(error));
        }
        Ok(())
    }

    /// Masks the targets of loaded units that are stopped although other units need them. If the
    /// masks cannot be stored, they apply nevertheless.
    pub(super) fn mask_stopped(
        &mut self,
        planner: &mut InitState,
        more: Vec<Target>,
        now: Timestamp,
    ) {
        let mut is_new = false;
        for target in more {
            is_new |= self.selection.desired.mask.insert(target.clone());
            // Without a goal every mask is valid.
            drop(planner.mask(target, now));
        }
        if is_new {
            self.write_stopped();
        }
    }

    /// Removes the masks of loaded units that may start again.
    pub(super) fn unmask_started(
        &mut self,
        planner: &mut InitState,
        less: &BTreeSet<Target>,
        now: Timestamp,
    ) {
        let mask = &mut self.selection.desired.mask;
        let masked: Vec<&Target> = less.iter().filter(|target| mask.remove(*target)).collect();
        masked.iter().for_each(|target| planner.unmask(target, now));
        if !masked.is_empty() {
            self.write_stopped();
        }
    }

    /// Removes the mask of a loaded unit that no longer exists. The planner loses the mask with the
    /// next graph.
    pub(super) fn forget_mask(&mut self, target: &Target) {
        if self.selection.desired.mask.remove(target) {
            self.write_stopped();
        }
    }

    fn write_stopped(&self) {
        if let Err(error) = self.write() {
            tracing::warn!(
                %error,
                file = %self.file.display(),
                "cannot save which units were stopped by request: after this program restarts, \
                 those that other units require might start again"
            );
        }
    }

    /// Stores the desired targets.
    pub(super) fn write(&self) -> Result<(), SupervisorError> {
        let stored = self.selection.write(&self.file);
        Ok(stored.map_err(io_error("store the desired targets"))?)
    }

    /// Stores other desired targets. If that fails, the earlier ones stay.
    fn store(&mut self, selection: TargetSelection) -> Result<(), SupervisorError> {
        let stored = selection.write(&self.file);
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
