//! The goal, the extra targets and the masks of a supervisor: their storage, their changes, and the
//! replacement of the graph.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use fleet_core::graph::{Graph, InitState, Name, Observation, Settings, Target};
use serde::{Deserialize, Serialize};

use super::Supervisor;
use super::error::{SupervisorError, io_error};
use crate::atomic_file::write_atomic;

impl Supervisor {
    /// Sets the goal and the extra targets, and stores them.
    pub(super) fn set_goal(
        &mut self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        if self.shutting_down {
            return Err(SupervisorError::ShuttingDown);
        }
        let valid = self.planner.check_goal(goal.as_ref(), &extra_targets);
        valid.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        (selection.desired.goal, selection.desired.extra_targets) =
            (goal.clone(), extra_targets.clone());
        // A choice that cannot be stored is not carried out.
        self.store_selection(selection)?;
        let names: Vec<&str> = extra_targets.iter().map(Target::as_str).collect();
        let goal_name = goal.as_ref().map_or("none", Target::as_str);
        tracing::info!(goal = goal_name, extra_targets = names.join(", "), "the goal was set");
        let done = self.planner.set_goal(goal, extra_targets, self.context.now());
        done.map_err(SupervisorError::InvalidTargets)
    }

    /// Removes the goal and the extra targets until the supervisor ends, without storing that.
    pub(super) fn clear_goal(&mut self) {
        // An empty goal is always valid.
        drop(self.planner.set_goal(None, BTreeSet::new(), self.context.now()));
    }

    /// Masks a target. Returns `false` if its unit was already masked.
    pub(super) fn mask_target(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        if !self.masks_of(target).is_empty() {
            return Ok(false);
        }
        let now = self.context.now();
        let masked = self.planner.mask(target.clone(), now);
        masked.map_err(SupervisorError::InvalidTargets)?;
        let mut selection = self.selection.clone();
        selection.desired.mask.insert(target.clone());
        if let Err(error) = self.store_selection(selection) {
            self.planner.unmask(target, now);
            return Err(error);
        }
        tracing::info!(%target, "the target was masked");
        Ok(true)
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    pub(super) fn unmask_target(&mut self, target: &Target) -> Result<bool, SupervisorError> {
        let masks = self.masks_of(target);
        let configured = &self.selection.configured.mask;
        if let Some(target) = masks.intersection(configured).next().cloned() {
            return Err(SupervisorError::MaskedBySettings { target });
        }
        if masks.is_empty() {
            return Ok(false);
        }
        let mut selection = self.selection.clone();
        selection.desired.mask.retain(|it| !masks.contains(it));
        self.store_selection(selection)?;
        let now = self.context.now();
        masks.iter().for_each(|it| self.planner.unmask(it, now));
        tracing::info!(%target, "the target was unmasked");
        Ok(true)
    }

    /// Returns the masked targets of the unit that provides a target.
    fn masks_of(&self, target: &Target) -> BTreeSet<Target> {
        let provider = |target: &Target| -> Option<&Name> {
            self.planner.graph().provider(target).map(|unit| &unit.name)
        };
        let unit = provider(target);
        let is_of_unit = |it: &&Target| *it == target || (unit.is_some() && provider(it) == unit);
        self.selection.desired.mask.iter().filter(is_of_unit).cloned().collect()
    }

    /// Replaces the graph and the settings. Overrides of an operator stay in effect.
    pub(super) fn replace_graph(
        &mut self,
        graph: Graph,
        settings: &Settings,
    ) -> Result<(), SupervisorError> {
        self.retry_unrecoverable(settings.max_starting);
        let selection = self.selection.rebase(settings);
        let earlier = self.selection.clone();
        if selection != earlier {
            self.store_selection(selection.clone())?;
        }
        let (settings, now) = (selection.desired.apply_to(settings), self.context.now());
        if let Err(error) = self.planner.reload_with(graph, &settings, now) {
            if selection != earlier {
                self.store_selection(earlier)?;
            }
            return Err(SupervisorError::InvalidTargets(error));
        }
        tracing::info!("the units were reloaded");
        self.take_over_definitions();
        if self.shutting_down {
            // The reload must not start units again during a shutdown.
            self.clear_goal();
        }
        Ok(())
    }

    /// Passes definitions that a reload has changed to the runs of their units.
    pub(super) fn take_over_definitions(&mut self) {
        let units: Vec<Name> = self.units.keys().cloned().collect();
        units.iter().for_each(|unit| self.take_over_definition(unit));
    }

    /// Clears the failed or completed state of the unit that provides a target. Returns whether
    /// there was one.
    pub(super) fn reset_failed(&mut self, target: &Target) -> bool {
        let graph = self.planner.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut removed = self.unrecoverable.keys().filter(|unit| graph.unit(unit).is_none());
        // No unit in the graph provides a target of a removed unit.
        if let Some(unit) = removed.find(is_meant).cloned() {
            self.forget_unrecoverable(&unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            self.forget_unrecoverable(&unit);
            self.units.get_mut(&unit).into_iter().for_each(|entry| entry.is_auto_restart = false);
        }
        self.planner.reset_failed(target, self.context.now())
    }

    /// Stores the desired targets.
    pub(super) fn write_targets(&self) -> Result<(), SupervisorError> {
        let stored = self.selection.write(&self.targets_file);
        Ok(stored.map_err(io_error("store the desired targets"))?)
    }

    /// Stores other desired targets. If that fails, the earlier ones stay.
    fn store_selection(&mut self, selection: TargetSelection) -> Result<(), SupervisorError> {
        let stored = selection.write(&self.targets_file);
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

/// Targets that a supervisor has to provide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredTargets {
    /// Goal; without one no unit is needed.
    pub goal: Option<Target>,
    /// Temporary extra targets besides the goal.
    pub extra_targets: BTreeSet<Target>,
    /// Masked targets: their units are not started, even if other units need them.
    pub mask: BTreeSet<Target>,
}

/// Desired targets, together with the targets that the current settings name. Where the two differ,
/// an operator has overridden the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetSelection {
    pub(super) desired: DesiredTargets,
    pub(super) configured: DesiredTargets,
}

/// Stored form of a [`TargetSelection`], in JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredTargets {
    #[serde(flatten)]
    desired: TargetNames,
    configured: TargetNames,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct TargetNames {
    goal: Option<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    extra_targets: BTreeSet<String>,
    mask: BTreeSet<String>,
}

impl DesiredTargets {
    /// Returns the targets that the settings name.
    pub(super) fn from_settings(settings: &Settings) -> Self {
        let (goal, mask) = (settings.goal.clone(), settings.mask.clone());
        Self { goal, extra_targets: BTreeSet::new(), mask }
    }

    /// Returns the settings with this goal and these masks.
    pub(super) fn apply_to(&self, settings: &Settings) -> Settings {
        let (goal, mask) = (self.goal.clone(), self.mask.clone());
        Settings { goal, mask, ..settings.clone() }
    }

    fn names(&self) -> TargetNames {
        let all = |targets: &BTreeSet<Target>| targets.iter().map(ToString::to_string).collect();
        TargetNames {
            goal: self.goal.as_ref().map(ToString::to_string),
            extra_targets: all(&self.extra_targets),
            mask: all(&self.mask),
        }
    }
}

impl TryFrom<TargetNames> for DesiredTargets {
    type Error = io::Error;

    fn try_from(names: TargetNames) -> io::Result<Self> {
        let target = |text: String| Target::new(&text).map_err(io::Error::other);
        let all = |texts: BTreeSet<String>| -> io::Result<BTreeSet<Target>> {
            texts.into_iter().map(target).collect()
        };
        Ok(Self {
            goal: names.goal.map(target).transpose()?,
            extra_targets: all(names.extra_targets)?,
            mask: all(names.mask)?,
        })
    }
}

impl TargetSelection {
    /// Returns the selection without any override.
    pub(super) fn from_settings(settings: &Settings) -> Self {
        Self {
            desired: DesiredTargets::from_settings(settings),
            configured: DesiredTargets::from_settings(settings),
        }
    }

    /// Applies the operator's overrides to other settings: another goal, and each target that the
    /// operator has masked.
    pub(super) fn rebase(&self, settings: &Settings) -> Self {
        let (Self { desired, configured: before }, configured) =
            (self, DesiredTargets::from_settings(settings));
        let goal = if desired.goal == before.goal { &configured.goal } else { &desired.goal };
        let mask = configured.mask.iter().chain(desired.mask.difference(&before.mask));
        let mask = mask.cloned().collect();
        let (goal, extra_targets) = (goal.clone(), desired.extra_targets.clone());
        Self { desired: DesiredTargets { goal, extra_targets, mask }, configured }
    }

    /// Reads the stored selection; `None` if none was written.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let stored: StoredTargets = serde_json::from_slice(&text)?;
        let (desired, configured) = (stored.desired.try_into()?, stored.configured.try_into()?);
        Ok(Some(Self { desired, configured }))
    }

    /// Stores the selection for the next supervisor of the directory.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let stored =
            StoredTargets { desired: self.desired.names(), configured: self.configured.names() };
        write_atomic(path, &serde_json::to_vec(&stored)?, false)
    }
}
