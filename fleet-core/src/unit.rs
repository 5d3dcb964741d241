//! Units: a unit file under a name, and what is wanted of it.

use std::sync::Arc;

use fleet_unitfile::{UnitFile, UnitHash, UnitName};

use crate::{Generation, Requirements, TargetState};

/// A unit that the cluster knows.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its name, unique in the cluster.
    pub name: UnitName,
    /// Its unit file.
    pub file: UnitFile,
    /// What it demands of a machine, read from its `[X-Fleet]` section.
    pub requirements: Arc<Requirements>,
    /// The state that a person wants it to be in.
    pub desired: TargetState,
    /// How often a restart of it was requested.
    pub generation: Generation,
}

impl Unit {
    /// A unit that nobody asked to restart yet.
    #[must_use]
    pub fn new(
        name: UnitName,
        file: UnitFile,
        requirements: Requirements,
        desired: TargetState,
    ) -> Self {
        let requirements = Arc::new(requirements);
        Self { name, file, requirements, desired, generation: Generation::ZERO }
    }

    /// The hash that tells two unit files apart.
    #[must_use]
    pub fn hash(&self) -> UnitHash {
        self.file.hash()
    }

    /// Whether it runs on every eligible machine instead of being placed on one.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.requirements.global
    }

    /// Whether a machine should have it: it is wanted, and it is not a template.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.desired != TargetState::Inactive && !self.name.is_template()
    }
}
