//! Masks of an operator, in addition to those of the settings.

use std::collections::BTreeSet;

use fleet_core::graph::{Name, Target};

use super::error::SupervisorError;
use super::handle::InitSupervisor;

impl InitSupervisor {
    /// Masks a target: its unit stops, and does not start. Like the goal, the mask stays in effect
    /// until the machine boots again. Returns `false` if the unit was already masked.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::InvalidTargets`] if the unit provides the goal.
    /// - [`SupervisorError::Service`] if the mask cannot be stored.
    pub async fn mask(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| {
            if !supervisor.masks_of(&target).is_empty() {
                return Ok(false);
            }
            let now = supervisor.context.now();
            let masked = supervisor.planner.mask(target.clone(), now);
            masked.map_err(SupervisorError::InvalidTargets)?;
            let mut selection = supervisor.selection.clone();
            selection.desired.mask.insert(target.clone());
            if let Err(error) = supervisor.store_selection(selection) {
                supervisor.planner.unmask(&target, now);
                return Err(error);
            }
            tracing::info!(target = %target, "the target was masked");
            Ok(true)
        })
        .await?
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::MaskedBySettings`] if the settings mask the unit.
    /// - [`SupervisorError::Service`] if the change cannot be stored.
    pub async fn unmask(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| {
            let masks = supervisor.masks_of(&target);
            let configured = &supervisor.selection.configured.mask;
            if let Some(target) = masks.intersection(configured).next().cloned() {
                return Err(SupervisorError::MaskedBySettings { target });
            }
            if masks.is_empty() {
                return Ok(false);
            }
            let mut selection = supervisor.selection.clone();
            selection.desired.mask.retain(|it| !masks.contains(it));
            supervisor.store_selection(selection)?;
            let now = supervisor.context.now();
            masks.iter().for_each(|it| supervisor.planner.unmask(it, now));
            tracing::info!(target = %target, "the target was unmasked");
            Ok(true)
        })
        .await?
    }
}

impl super::event_loop::Supervisor {
    /// Returns the masked targets of the unit that provides a target.
    fn masks_of(&self, target: &Target) -> BTreeSet<Target> {
        let provider = |target: &Target| -> Option<&Name> {
            self.planner.graph().provider(target).map(|unit| &unit.name)
        };
        let unit = provider(target);
        let is_of_unit = |it: &&Target| *it == target || (unit.is_some() && provider(it) == unit);
        self.selection.desired.mask.iter().filter(is_of_unit).cloned().collect()
    }
}
