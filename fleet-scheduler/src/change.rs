//! Changes of a cluster, as data.

use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Requirements, Unit};
use fleet_unitfile::UnitName;

/// What an index needs to know of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSpec {
    /// The unit's name.
    pub name: UnitName,
    /// What it demands of a machine.
    pub requirements: Arc<Requirements>,
    /// Whether its desired state is other than inactive. Templates are never wanted.
    pub wanted: bool,
}

impl From<&Unit> for UnitSpec {
    fn from(unit: &Unit) -> Self {
        let (name, requirements) = (unit.name.clone(), unit.requirements.clone());
        Self { name, requirements, wanted: unit.is_wanted() }
    }
}

/// Something that happened to a cluster; see [`Index::change`](crate::Index::change).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChange {
    /// A unit came, or is another now.
    PutUnit(UnitSpec),
    /// A unit is forgotten. Its placement has a life of its own.
    RemoveUnit(UnitName),
    /// The record of a unit cannot be read.
    PutUnreadable(UnitName),
    /// A machine came, or is another now.
    PutMachine(Machine),
    /// A machine went.
    RemoveMachine(MachineId),
    /// A unit was placed.
    Place {
        /// The unit.
        unit: UnitName,
        /// Its machine.
        machine: MachineId,
        /// When the placement was made.
        epoch: Epoch,
    },
    /// A unit's placement was taken away.
    Unplace(UnitName),
}
