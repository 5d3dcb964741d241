//! Which global units a machine takes: one after the other by name, as long as the machine has the
//! metadata and nobody who is there already conflicts. Placed units are always there first.

use crate::board::{Board, Why};
use crate::roster::MachineNo;
use crate::rules;

/// Fits the global units of a machine in again.
///
/// Needed when a unit has left. When one has come it is not: it came only because no global unit
/// there conflicted with it, and those that were refused before are refused still.
pub(crate) fn refit(board: &mut Board<'_>, machine: MachineNo) {
    let globals = board.roster().globals();
    for unit in globals {
        if board.is_on(*unit, machine) {
            board.unseat(*unit, machine, Why::Refitted);
        }
    }
    for unit in globals {
        if rules::denial(board, *unit, machine).is_none() {
            board.seat(*unit, machine);
        }
    }
}
