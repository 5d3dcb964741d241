//! Units: a named unit file with its desired state; and placements, which assign units to machines.

use std::sync::Arc;

use fleet_unitfile::{UnitFile, UnitHash, UnitName};

use crate::{Epoch, Generation, MachineId, Requirements, TargetState};

/// A unit of the cluster.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of units that a new field has to become a part of.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The name, unique in the cluster.
    pub name: UnitName,
    /// The unit file.
    pub file: UnitFile,
    /// Requirements for a machine, parsed from the `[X-Fleet]` section.
    pub requirements: Arc<Requirements>,
    /// The state requested by the user.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
}

impl Unit {
    /// Makes a unit without any requested restart.
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

    /// Returns the hash of the unit file.
    #[must_use]
    pub fn hash(&self) -> UnitHash {
        self.file.hash()
    }

    /// Returns `true` if the unit runs on every eligible machine instead of being placed on one.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.requirements.global
    }

    /// Returns `true` if the unit belongs on a machine, because it is neither inactive nor a
    /// template.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.desired != TargetState::Inactive && !self.name.is_template()
    }
}

/// The engine's decision to run a unit on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine.
    pub machine: MachineId,
    /// Epoch of the decision; see [`Epoch`].
    pub epoch: Epoch,
}
