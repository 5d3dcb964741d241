//! Placements: the assignment of units to machines.

use crate::{Epoch, MachineId};

/// The engine's decision to run a unit on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine.
    pub machine: MachineId,
    /// Epoch of the decision; see [`Epoch`].
    pub epoch: Epoch,
}
