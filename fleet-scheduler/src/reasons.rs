//! Why a unit has no machine: what is true of the board when all is placed that can be.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Reason, Rule, Tally};
use fleet_unitfile::UnitName;

use crate::board::Board;
use crate::groups;
use crate::place::join;
use crate::roster::{Kind, MachineNo, Peer, UnitNo};
use crate::rules::Denial;

/// The reason of every unit that should have a machine and has none.
pub(crate) fn reasons(board: &mut Board<'_>) -> BTreeMap<UnitName, Reason> {
    let waiting: Vec<UnitNo> = {
        let singles = board.roster().singles();
        singles.filter(|unit| board.seat_of(*unit).is_none()).collect()
    };
    let told = waiting.into_iter().map(|unit| {
        let name = board.roster().unit(unit).name.clone();
        (name, reason(board, unit))
    });
    told.collect()
}

/// The reason of one unit that has no machine and fits on none. What is wrong with its peers comes
/// first, for that is so on any machine.
pub(crate) fn reason(board: &mut Board<'_>, unit: UnitNo) -> Reason {
    let of_peers = missing_peer(board, unit)
        .or_else(|| circle(board, unit))
        .or_else(|| peers_apart(board, unit));
    if let Some(reason) = of_peers {
        return reason;
    }
    let Ok(machines @ 1..) = u32::try_from(board.roster().machines().len()) else {
        return Reason::NoMachines;
    };
    let company = groups::company(board, unit).unwrap_or_else(|| vec![unit]);
    let tallies = count(board, &company);
    if company.len() == 1 {
        return Reason::NoMachineFits { machines, tallies, nearest: None };
    }
    let mut group: Vec<UnitNo> = company;
    group.sort_unstable();
    let group = group.into_iter().map(|unit| board.roster().unit(unit).name.clone()).collect();
    Reason::NoMachineFitsGroup { group, machines, tallies, nearest: None }
}

/// The first peer, in the order written, that is unknown or inactive.
fn missing_peer(board: &Board<'_>, unit: UnitNo) -> Option<Reason> {
    let entry = board.roster().unit(unit);
    entry.peers.iter().zip(&entry.requirements.machine_of).find_map(|(peer, name)| match peer {
        Peer::Known(_) => None,
        Peer::Inactive => Some(Reason::PeerInactive { peer: name.clone() }),
        Peer::Unknown => Some(Reason::PeerUnknown { peer: name.clone() }),
    })
}

fn circle(board: &Board<'_>, unit: UnitNo) -> Option<Reason> {
    let circle = groups::circle(board, unit)?;
    let units = circle.into_iter().map(|unit| board.roster().unit(unit).name.clone()).collect();
    Some(Reason::Cycle { units })
}

/// The first two peers, in the order written, that are on different machines.
fn peers_apart(board: &Board<'_>, unit: UnitNo) -> Option<Reason> {
    let mut seated = board.roster().unit(unit).peers.iter().filter_map(|peer| match peer {
        Peer::Known(peer) if board.roster().unit(*peer).kind != Kind::Global => {
            Some((*peer, board.seat_of(*peer)?))
        }
        _ => None,
    });
    let one = seated.next()?;
    let other = seated.find(|(_, machine)| *machine != one.1)?;
    let named = |(unit, machine): (UnitNo, MachineNo)| -> (UnitName, MachineId) {
        let roster = board.roster();
        (roster.unit(unit).name.clone(), roster.machine(machine).id.clone())
    };
    Some(Reason::PeersApart { one: named(one), other: named(other) })
}

/// Counts the machines by the rule by which each denies a unit, or whichever of its company first.
fn count(board: &mut Board<'_>, company: &[UnitNo]) -> Vec<Tally> {
    let mut tallies: BTreeMap<Rule, Tally> = BTreeMap::new();
    for machine in board.roster().machines() {
        let Some((unit, denial)) = trial(board, company, machine) else {
            continue;
        };
        let tally = tallies.entry(denial.rule()).or_insert_with(|| Tally {
            machines: 0,
            example: board.roster().machine(machine).id.clone(),
            unit: (company.len() > 1).then(|| board.roster().unit(unit).name.clone()),
            refusal: denial.refusal(board.roster(), unit, machine),
        });
        tally.machines += 1;
    }
    tallies.into_values().collect()
}

/// Who of a unit's company a machine denies first, and why, if it does not take them all. The board
/// is afterwards as it was.
pub(crate) fn trial(
    board: &mut Board<'_>,
    company: &[UnitNo],
    machine: MachineNo,
) -> Option<(UnitNo, Denial)> {
    let mark = board.mark();
    let mut denied = None;
    for (index, unit) in company.iter().enumerate() {
        if let Err(denial) = join(board, *unit, machine, &company[..index]) {
            denied = Some((*unit, denial));
            break;
        }
    }
    board.undo_to(mark);
    denied
}
