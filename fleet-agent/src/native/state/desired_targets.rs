//! The targets that a supervisor has to provide, and their storage.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use fleet_core::graph::{Settings, Target};
use serde::{Deserialize, Serialize};

use crate::files::write_atomic;

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
pub(crate) struct TargetSelection {
    pub(crate) desired: DesiredTargets,
    pub(crate) configured: DesiredTargets,
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
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let (goal, mask) = (settings.goal.clone(), settings.mask.clone());
        Self { goal, extra_targets: BTreeSet::new(), mask }
    }

    /// Returns the settings with this goal and these masks.
    pub(crate) fn apply_to(&self, settings: &Settings) -> Settings {
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
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        Self {
            desired: DesiredTargets::from_settings(settings),
            configured: DesiredTargets::from_settings(settings),
        }
    }

    /// Applies the operator's overrides to other settings: another goal, and each target that the
    /// operator has masked.
    pub(crate) fn rebase(&self, settings: &Settings) -> Self {
        let (Self { desired, configured: before }, configured) =
            (self, DesiredTargets::from_settings(settings));
        let goal = if desired.goal == before.goal { &configured.goal } else { &desired.goal };
        let mask = configured.mask.iter().chain(desired.mask.difference(&before.mask));
        let mask = mask.cloned().collect();
        let (goal, extra_targets) = (goal.clone(), desired.extra_targets.clone());
        Self { desired: DesiredTargets { goal, extra_targets, mask }, configured }
    }

    /// Reads the stored selection; `None` if none was written.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let stored: StoredTargets = serde_json::from_slice(&text)?;
        let (desired, configured) = (stored.desired.try_into()?, stored.configured.try_into()?);
        Ok(Some(Self { desired, configured }))
    }

    /// Stores the selection for the next supervisor of the directory.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let stored =
            StoredTargets { desired: self.desired.names(), configured: self.configured.names() };
        write_atomic(path, &serde_json::to_vec(&stored)?, false)
    }
}
