//! Changes of a cluster's state, as data.

use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Requirements, Unit};
use fleet_unitfile::UnitName;

/// The part of a unit that an index needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSpec {
    /// The unit's name.
    pub name: UnitName,
    /// The unit's requirements on a machine. Any value is accepted; if it was not parsed, check it
    /// with [`Requirements::validate`] first.
    pub requirements: Arc<Requirements>,
    /// Whether the unit's desired state is loaded or launched. A template is never wanted.
    pub wanted: bool,
}

impl From<&Unit> for UnitSpec {
    fn from(unit: &Unit) -> Self {
        let (name, requirements) = (unit.name.clone(), unit.requirements.clone());
        Self { name, requirements, wanted: unit.is_wanted() }
    }
}

/// A change of a cluster's state; see [`Index::change`](crate::Index::change).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChange {
    /// Adds or replaces a unit.
    PutUnit(UnitSpec),
    /// Removes a unit. Its placement stays until it is removed separately.
    RemoveUnit(UnitName),
    /// Marks a unit's stored record as unreadable.
    PutUnreadable(UnitName),
    /// Adds or replaces a machine.
    PutMachine(Machine),
    /// Removes a machine.
    RemoveMachine(MachineId),
    /// Records the placement of a unit.
    Place {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
        /// The epoch of the placement.
        epoch: Epoch,
    },
    /// Removes the placement of a unit.
    Unplace(UnitName),
}
