//! From the board to steps: where the board differs from the snapshot, in the order to be applied.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Snapshot};
use fleet_unitfile::UnitName;

use crate::board::{Board, Change, Why};
use crate::roster::{Peer, UnitNo};
use crate::rules::{self, Denial};
use crate::step::{Action, Cause, NotWanted, Step};

/// The steps that lead from the snapshot to the board.
///
/// First come all removals, by name, then the moves and then the placements, each in the order in
/// which they were decided; but no unit comes before one that it must be beside.
pub(crate) fn steps(snapshot: &Snapshot, board: &Board<'_>) -> Vec<Step> {
    let history = History::read(board);
    let mut removals = unwanted(snapshot);
    removals.extend(evicted(snapshot, board, &history));
    let removals = removals.into_iter().map(|(unit, (from, cause))| Step {
        unit: unit.clone(),
        action: Action::Remove { from: from.clone() },
        cause,
    });
    removals.chain(arrivals(snapshot, board, &history)).collect()
}

/// What the log of the board says of each unit.
struct History {
    /// The units that came to a machine, in the order in which they last did.
    came: Vec<UnitNo>,
    /// Why each unit left the first time.
    left: Vec<Option<Why>>,
}

impl History {
    fn read(board: &Board<'_>) -> Self {
        let mut left = vec![None; board.roster().units().count()];
        let mut last = vec![None; left.len()];
        for (index, change) in board.log().iter().enumerate() {
            match change {
                Change::Came { unit, .. } => last[unit.at()] = Some(index),
                Change::Left { unit, why, .. } => drop(left[unit.at()].get_or_insert(*why)),
            }
        }
        let mut came: Vec<UnitNo> = board.roster().singles().collect();
        came.retain(|unit| board.seat_of(*unit).is_some());
        came.sort_by_key(|unit| last[unit.at()]);
        Self { came, left }
    }
}

type Removals<'a> = BTreeMap<&'a UnitName, (&'a MachineId, Cause)>;

/// The placed units that nobody wants placed.
fn unwanted(snapshot: &Snapshot) -> Removals<'_> {
    let removals = snapshot.placements().filter_map(|(unit, placement)| {
        let why = not_wanted(snapshot, unit)?;
        Some((unit, (&placement.machine, Cause::NotWanted(why))))
    });
    removals.collect()
}

/// Why a placed unit should not be, if it should not. One that cannot be read may still be wanted.
fn not_wanted(snapshot: &Snapshot, name: &UnitName) -> Option<NotWanted> {
    let Some(unit) = snapshot.unit(name.as_str()) else {
        let unreadable = snapshot.fault(name.as_str()).is_some();
        return (!unreadable).then_some(NotWanted::Destroyed);
    };
    if name.is_template() {
        Some(NotWanted::Template)
    } else if !unit.is_wanted() {
        Some(NotWanted::Inactive)
    } else {
        unit.is_global().then_some(NotWanted::Global)
    }
}

/// The wanted units that had a machine and have none now.
fn evicted<'a>(
    snapshot: &'a Snapshot,
    board: &Board<'a>,
    history: &History,
) -> impl Iterator<Item = (&'a UnitName, (&'a MachineId, Cause))> {
    board.roster().singles().filter(|unit| board.seat_of(*unit).is_none()).filter_map(|unit| {
        let name = board.roster().unit(unit).name;
        let placement = snapshot.placement(name.as_str())?;
        board.roster().unit(unit).placed?;
        Some((name, (&placement.machine, cause(board, history, unit))))
    })
}

/// The moves and placements, in the order to be applied.
fn arrivals(
    snapshot: &Snapshot,
    board: &Board<'_>,
    history: &History,
) -> impl Iterator<Item = Step> {
    let mut moves = Vec::new();
    let mut placements = Vec::new();
    let mut is_late = vec![false; history.left.len()];
    for unit in &history.came {
        let Some(action) = action(snapshot, board, *unit) else {
            continue;
        };
        let mut peers = board.roster().unit(*unit).peers.iter();
        let waits = peers.any(|peer| matches!(peer, Peer::Known(peer) if is_late[peer.at()]));
        let late = waits || matches!(action, Action::Place { .. });
        is_late[unit.at()] = late;
        let step = Step {
            unit: board.roster().unit(*unit).name.clone(),
            action,
            cause: cause(board, history, *unit),
        };
        if late {
            placements.push(step);
        } else {
            moves.push(step);
        }
    }
    moves.into_iter().chain(placements)
}

/// How a unit came to where it is; `None` if it was there before.
fn action(snapshot: &Snapshot, board: &Board<'_>, unit: UnitNo) -> Option<Action> {
    let entry = board.roster().unit(unit);
    let machine = board.roster().machine(board.seat_of(unit)?).id.clone();
    if entry.placed.is_none() {
        return Some(Action::Place { machine });
    }
    let from = snapshot.placement(entry.name.as_str())?.machine.clone();
    (from != machine).then_some(Action::Move { from, to: machine })
}

/// Why a unit is not where it was.
fn cause(board: &Board<'_>, history: &History, unit: UnitNo) -> Cause {
    let roster = board.roster();
    let Some(placed) = roster.unit(unit).placed else {
        return Cause::Wanted;
    };
    let Some(machine) = placed.machine else {
        return Cause::MachineGone;
    };
    let name = |unit| roster.unit(unit).name.clone();
    let refused = |denial: Denial| Cause::Refused(denial.refusal(roster, unit, machine));
    match history.left[unit.at()] {
        Some(Why::Denied(Denial::MachineOf { at })) if board.seat_of(unit).is_some() => {
            match roster.unit(unit).peers[at] {
                Peer::Known(peer) => Cause::FollowsPeer(name(peer)),
                Peer::Inactive | Peer::Unknown => refused(Denial::MachineOf { at }),
            }
        }
        Some(Why::Denied(denial)) => refused(denial),
        Some(Why::ReplacedBy(by)) => Cause::ReplacedBy(name(by)),
        Some(Why::Follows(leader)) => Cause::FollowsPeer(name(leader)),
        // It was never seated, or it would have left with one of the reasons above.
        Some(Why::Refitted) | None => {
            rules::lasting_denial(roster, unit, machine).map_or(Cause::Wanted, refused)
        }
    }
}
