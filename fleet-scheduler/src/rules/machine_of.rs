//! `MachineOf=`: every unit that is named is on the machine, too.

use super::Denial;
use crate::board::Board;
use crate::roster::{MachineNo, Peer, UnitNo};

/// The first peer that is not on the machine.
pub(crate) fn denial(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    let peers = &board.roster().unit(unit).peers;
    let at = peers.iter().position(|peer| !is_there(board, *peer, machine))?;
    Some(Denial::MachineOf { at })
}

/// The units on a machine that have lost a peer there, in order, with the denial of each.
pub(crate) fn left_behind(board: &Board<'_>, machine: MachineNo) -> Vec<(UnitNo, Denial)> {
    let lost = |unit| denial(board, unit, machine).map(|denial| (unit, denial));
    board.on(machine).filter_map(lost).collect()
}

fn is_there(board: &Board<'_>, peer: Peer, machine: MachineNo) -> bool {
    matches!(peer, Peer::Known(peer) if board.is_on(peer, machine))
}
