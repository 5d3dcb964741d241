//! Who may stay: puts the placed units on the board and takes off again those whose machine no
//! longer passes every rule, and no others.
//!
//! Where two placed units conflict, because the content of one has changed, the one that was placed
//! earlier stays: the lower epoch, then the earlier name. A unit that replaces another is no ground
//! to take either off here, for a replaced unit only leaves when it has somewhere to go.

use std::collections::BTreeSet;

use fleet_core::Epoch;

use crate::board::{Board, Change, Why};
use crate::globals::refit;
use crate::roster::{Kind, MachineNo, UnitNo};
use crate::rules::{self, Denial, conflicts, machine_of};

/// Fills an empty board with the units that may stay where they are, and with the global units.
pub(crate) fn settle(board: &mut Board<'_>) {
    seat_placed(board);
    let start = board.mark();
    for machine in board.roster().machines() {
        refit(board, machine);
        take_off_left_behind(board, machine);
        if part_rivals(board, machine) {
            take_off_left_behind(board, machine);
        }
    }
    let changes = board.since(start).iter();
    let evicted = changes.filter_map(|change| eviction(board, change)).collect();
    take_back(board, evicted);
}

/// Seats every placed unit whose machine is present and denies it for no lasting reason.
fn seat_placed(board: &mut Board<'_>) {
    let roster = board.roster();
    for unit in roster.units() {
        let Some(machine) = roster.unit(unit).placed.and_then(|placed| placed.machine) else {
            continue;
        };
        if rules::lasting_denial(roster, unit, machine).is_none() {
            board.seat(unit, machine);
        }
    }
}

/// Takes off the units that lack a peer, and those that lack one for that, and so on.
fn take_off_left_behind(board: &mut Board<'_>, machine: MachineNo) {
    loop {
        let lost = machine_of::left_behind(board, machine);
        if lost.is_empty() {
            return;
        }
        for (unit, denial) in lost {
            board.unseat(unit, machine, Why::Denied(denial));
        }
        refit(board, machine);
    }
}

/// Takes off the later one of every two placed units that conflict; whether there were any.
fn part_rivals(board: &mut Board<'_>, machine: MachineNo) -> bool {
    if !board.has_keepers(machine) {
        return false;
    }
    let mut units: Vec<UnitNo> =
        board.on(machine).filter(|unit| !is_global(board, *unit)).collect();
    units.sort_by_key(|unit| seniority(board, *unit));
    let mut parted = false;
    for unit in units {
        if let Some(denial) = senior_rival(board, unit, machine) {
            board.unseat(unit, machine, Why::Denied(denial));
            parted = true;
        }
    }
    if parted {
        refit(board, machine);
    }
    parted
}

/// Who stays when two conflict: the lower one. What cannot be read cannot be moved.
fn seniority(board: &Board<'_>, unit: UnitNo) -> (bool, Epoch, UnitNo) {
    let entry = board.roster().unit(unit);
    let epoch = entry.placed.map_or(Epoch::ZERO, |placed| placed.epoch);
    (entry.kind != Kind::Unreadable, epoch, unit)
}

/// The denial by a unit that conflicts with this one and stays, if there is one.
fn senior_rival(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    if board.roster().unit(unit).kind == Kind::Unreadable {
        return None;
    }
    let own = seniority(board, unit);
    let is_senior = |other: &UnitNo| !is_global(board, *other) && seniority(board, *other) < own;
    let with = conflicts::rivals(board, unit, machine).filter(is_senior).min()?;
    conflicts::between(board.roster(), unit, with)
}

/// Takes back those who had to go for the sake of one that has gone itself since.
fn take_back(board: &mut Board<'_>, mut evicted: BTreeSet<(Epoch, UnitNo)>) {
    loop {
        let before = evicted.len();
        evicted.retain(|(_, unit)| {
            let free = place_to_return_to(board, *unit);
            if let Some(machine) = free {
                board.seat(*unit, machine);
                refit(board, machine);
                take_off_left_behind(board, machine);
            }
            free.is_none()
        });
        if evicted.len() == before {
            return;
        }
    }
}

/// The machine that the unit was placed on, if nobody placed there keeps it away any longer.
fn place_to_return_to(board: &Board<'_>, unit: UnitNo) -> Option<MachineNo> {
    let machine = board.roster().unit(unit).placed?.machine?;
    let alone = conflicts::rivals(board, unit, machine).all(|other| is_global(board, other));
    (alone && machine_of::denial(board, unit, machine).is_none()).then_some(machine)
}

/// The unit of an eviction, with the epoch of the placement that it had.
fn eviction(board: &Board<'_>, change: &Change) -> Option<(Epoch, UnitNo)> {
    let Change::Left { unit, why: Why::Denied(_), .. } = change else {
        return None;
    };
    let placed = board.roster().unit(*unit).placed?;
    Some((placed.epoch, *unit))
}

fn is_global(board: &Board<'_>, unit: UnitNo) -> bool {
    board.roster().unit(unit).kind == Kind::Global
}
