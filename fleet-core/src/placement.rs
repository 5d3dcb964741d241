//! Placements: which machine runs a unit.

use crate::{Epoch, MachineId};

/// The engine's decision that a machine runs a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine that runs the unit.
    pub machine: MachineId,
    /// When the decision was made; see [`Epoch`].
    pub epoch: Epoch,
}
