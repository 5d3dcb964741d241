//! `MachineID=`: the unit runs on the machine that it names, by its whole ID.

use fleet_core::{Machine, Refusal, Requirements};

use super::Denial;
use crate::roster::{MachineNo, Pin, Roster, UnitNo};

/// Whether the unit must be on another machine.
pub(super) fn denial(roster: &Roster<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    let allowed = match roster.unit(unit).pin {
        Pin::Any => true,
        Pin::Only(only) => only == machine,
        Pin::Absent => false,
    };
    (!allowed).then_some(Denial::MachineId)
}

/// Why the machine is not the one that is asked for, if it is not.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let wanted = requirements.machine_id.as_ref()?;
    (*wanted != machine.id).then(|| Refusal::MachineId { wanted: wanted.clone() })
}
