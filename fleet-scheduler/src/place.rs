//! Finds a machine for every unit that has none, and for placed units that another one replaces.

use crate::board::{Board, Change, Mark, Why};
use crate::globals::refit;
use crate::groups;
use crate::rank::Candidates;
use crate::roster::{Kind, MachineNo, UnitNo};
use crate::rules::{self, Denial, machine_of, replaces};

/// Places what can be placed. Afterwards nothing that has no machine could have one.
pub(crate) fn place(board: &mut Board<'_>) {
    loop {
        let start = board.mark();
        let mut in_part = false;
        for group in groups::waiting(board) {
            in_part |= place_group(board, &group) == Placed::InPart;
        }
        // Not before: a unit that was just placed may have made one of the two leave already.
        part_replaced(board);
        // Whoever came only made things harder for others. Only where someone left, or where a
        // leader came without all followers, may there be a machine now that there was not before.
        if !in_part && !has_anyone_left(board, start) {
            return;
        }
    }
}

/// How much of a group was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placed {
    Whole,
    InPart,
    Not,
}

/// Places one group as the [`groups`] module says.
fn place_group(board: &mut Board<'_>, group: &[UnitNo]) -> Placed {
    let mut best: Option<(usize, MachineNo)> = None;
    let mut welcome = vec![false; group.len()];
    let mut candidates = candidates(board, group);
    while let Some(machine) = candidates.next(board) {
        let mark = board.mark();
        let taken = join_each(board, group, machine);
        if taken.len() == group.len() {
            return Placed::Whole;
        }
        board.undo_to(mark);
        if taken.len() > best.map_or(0, |(most, _)| most) {
            best = Some((taken.len(), machine));
        }
        taken.iter().for_each(|index| welcome[*index] = true);
    }
    let Some((_, machine)) = best else {
        return Placed::Not;
    };
    if welcome.iter().all(|welcome| *welcome) {
        join_each(board, group, machine);
    } else {
        let taken = group.iter().zip(&welcome).filter(|(_, welcome)| **welcome);
        place_rest(board, &taken.map(|(unit, _)| *unit).collect::<Vec<_>>());
    }
    Placed::InPart
}

/// Places what remains of a group when those whom no machine takes along are left out.
fn place_rest(board: &mut Board<'_>, units: &[UnitNo]) {
    for group in groups::split(board, units) {
        place_group(board, &group);
    }
}

/// The machines to try for a group. Each unit of a group knows best for itself; for several, all
/// machines are tried.
fn candidates(board: &Board<'_>, group: &[UnitNo]) -> Candidates {
    match group {
        [unit] => Candidates::of(board, *unit),
        _ => Candidates::All(None),
    }
}

/// Seats those of a group on a machine that it takes, leaders first; their places in the group.
fn join_each(board: &mut Board<'_>, group: &[UnitNo], machine: MachineNo) -> Vec<usize> {
    let mut taken = Vec::with_capacity(group.len());
    let mut beside = Vec::with_capacity(group.len());
    for (index, unit) in group.iter().enumerate() {
        if join(board, *unit, machine, &beside).is_ok() {
            taken.push(index);
            beside.push(*unit);
        }
    }
    taken
}

/// Seats a unit on a machine and moves away what it replaces there. `beside` are units that have
/// just come and must not be moved again. On error the board is as it was.
pub(crate) fn join(
    board: &mut Board<'_>,
    unit: UnitNo,
    machine: MachineNo,
    beside: &[UnitNo],
) -> Result<(), Denial> {
    if let Some(denial) = rules::denial(board, unit, machine) {
        return Err(denial);
    }
    let replaced = replaces::replaced(board, unit, machine);
    let Some(first) = replaced.first().copied() else {
        board.seat(unit, machine);
        return Ok(());
    };
    let mark = board.mark();
    let refuse = |with| Denial::Replaces { with, theirs: false };
    for other in replaced {
        let gone = board.seat_of(other) != Some(machine); // behind one that went before
        if !gone && !move_away(board, other, machine, unit, beside) {
            board.undo_to(mark);
            return Err(refuse(other));
        }
    }
    board.seat(unit, machine);
    if leaves_all_well(board, machine) { Ok(()) } else { Err(undone(board, mark, refuse(first))) }
}

fn undone(board: &mut Board<'_>, mark: Mark, denial: Denial) -> Denial {
    board.undo_to(mark);
    denial
}

/// Fits in the global units of a machine that a unit has left; whether that took no peer from
/// anybody there. A global unit may come where the unit was, and another one go for it.
fn leaves_all_well(board: &mut Board<'_>, machine: MachineNo) -> bool {
    refit(board, machine);
    machine_of::left_behind(board, machine).is_empty()
}

/// Moves a unit, with those that follow it, to another machine where every rule holds and nobody is
/// replaced in turn. On failure the board is as it was.
fn move_away(
    board: &mut Board<'_>,
    unit: UnitNo,
    from: MachineNo,
    by: UnitNo,
    beside: &[UnitNo],
) -> bool {
    let train = groups::train(board, unit);
    if !may_leave(board, &train, beside) {
        return false;
    }
    let mark = board.mark();
    for member in &train {
        let why = if *member == unit { Why::ReplacedBy(by) } else { Why::Follows(unit) };
        board.unseat(*member, from, why);
    }
    let mut candidates = Candidates::of(board, unit);
    while let Some(machine) = candidates.next(board) {
        if machine != from && seat_all(board, &train, machine) {
            return true;
        }
    }
    board.undo_to(mark);
    false
}

/// Whether no unit of a train is held where it is: by being unreadable, or by having just come.
fn may_leave(board: &Board<'_>, train: &[UnitNo], beside: &[UnitNo]) -> bool {
    let is_single = |unit: &UnitNo| board.roster().unit(*unit).kind == Kind::Single;
    train.iter().all(|unit| is_single(unit) && !beside.contains(unit))
}

/// Seats all of a train on a machine that takes them and where they replace nobody, or none.
fn seat_all(board: &mut Board<'_>, train: &[UnitNo], machine: MachineNo) -> bool {
    let mark = board.mark();
    for unit in train {
        let denied = rules::denial(board, *unit, machine).is_some();
        if denied || !replaces::replaced(board, *unit, machine).is_empty() {
            board.undo_to(mark);
            return false;
        }
        board.seat(*unit, machine);
    }
    true
}

/// Moves away the placed units that are beside one that replaces them, where they can go somewhere.
///
/// Who is to leave itself makes nobody leave before, for it may be gone by the time.
fn part_replaced(board: &mut Board<'_>) {
    let roster = board.roster();
    let replacers = || roster.singles().filter(|unit| !roster.unit(*unit).replaces.is_empty());
    for wait in [true, false] {
        for unit in replacers() {
            let Some(machine) = board.seat_of(unit) else {
                continue;
            };
            let leaves = replaces::denial(board, unit, machine).is_some();
            if !(wait && leaves) {
                make_room(board, unit, machine);
            }
        }
    }
}

/// Moves away whom a placed unit replaces on its machine, each if it can go.
fn make_room(board: &mut Board<'_>, unit: UnitNo, machine: MachineNo) {
    for other in replaces::replaced(board, unit, machine) {
        let mark = board.mark();
        let here = board.seat_of(other) == Some(machine);
        let moved = here && move_away(board, other, machine, unit, &[]);
        if moved && !leaves_all_well(board, machine) {
            board.undo_to(mark);
        }
    }
}

fn has_anyone_left(board: &Board<'_>, start: Mark) -> bool {
    let mut changes = board.since(start).iter();
    changes.any(|change| matches!(change, Change::Left { .. }))
}
