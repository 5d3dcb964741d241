//! Groups: units that `MachineOf=` ties together and that have no machine yet.
//!
//! Who must be beside whom, decided in this order:
//!
//! 1. A unit *waits in vain* if it names a unit that is unknown or inactive, if its `MachineOf=`
//!    leads back to itself, or if it names a unit that waits in vain. It is in no group.
//! 2. Any other unit without a machine is in a group with those that it names and with those that
//!    name it, as far as they have no machine either, and so on. A unit that has a machine ties
//!    nobody together: each of its followers joins it, or not, by itself.
//! 3. Groups are placed in the order of the first name in each. Within a group the order is leaders
//!    first, then by name.
//! 4. A group goes as a whole to the first machine, least loaded first, that takes all of it.
//! 5. If no machine does, the units that no machine takes along are left out; a unit that is named
//!    is never held back by one that names it. What remains may have come apart into several
//!    groups; each is placed as before. If such a group still fits nowhere as a whole, it goes to
//!    the machine that takes the most of its units.
//! 6. Those who were left out are tried again until no more of them can join.
//!
//! So what is left over in the end can be placed nowhere, together with all that it must be beside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::board::Board;
use crate::roster::{Kind, Peer, UnitNo};

/// How many units a reason spells out at most. A unit in a longer circle, or one with more units
/// that it must be beside, is told of the first one that is missing.
pub(crate) const MOST_TOLD: usize = 64;

/// The groups that wait for a machine, each leaders first.
pub(crate) fn waiting(board: &Board<'_>) -> Vec<Vec<UnitNo>> {
    let waiting = board.roster().singles().filter(|unit| is_waiting(board, *unit));
    split(board, &leaders_first(board, &waiting.collect()))
}

/// Splits units, given leaders first, into groups that are tied together within them.
pub(crate) fn split(board: &Board<'_>, units: &[UnitNo]) -> Vec<Vec<UnitNo>> {
    let place: BTreeMap<UnitNo, usize> = units.iter().copied().zip(0..).collect();
    let mut taken = vec![false; units.len()];
    let mut groups = Vec::new();
    for start in place.values() {
        if taken[*start] {
            continue;
        }
        let mut group = reach(board, *start, units, &place, &mut taken);
        group.sort_unstable();
        groups.push(group.into_iter().map(|index| units[index]).collect());
    }
    groups
}

/// The places of all units tied to the one at `start`, itself included.
fn reach(
    board: &Board<'_>,
    start: usize,
    units: &[UnitNo],
    place: &BTreeMap<UnitNo, usize>,
    taken: &mut [bool],
) -> Vec<usize> {
    taken[start] = true;
    let mut group = vec![start];
    let mut next = 0;
    while let Some(index) = group.get(next).copied() {
        next += 1;
        for tied in neighbours(board, units[index]) {
            let Some(other) = place.get(&tied).copied() else {
                continue;
            };
            if !std::mem::replace(&mut taken[other], true) {
                group.push(other);
            }
        }
    }
    group
}

/// The units that a unit names and those that name it; global ones tie nobody.
fn neighbours(board: &Board<'_>, unit: UnitNo) -> impl Iterator<Item = UnitNo> {
    let entry = board.roster().unit(unit);
    let named = entry.peers.iter().filter_map(|peer| match peer {
        Peer::Known(peer) => Some(*peer),
        Peer::Inactive | Peer::Unknown => None,
    });
    named.chain(entry.followers.iter().copied())
}

/// The units in an order in which each comes after those that it names, by name where there is a
/// choice. Those that wait in vain are left out.
fn leaders_first(board: &Board<'_>, units: &BTreeSet<UnitNo>) -> Vec<UnitNo> {
    let mut missing: BTreeMap<UnitNo, usize> = BTreeMap::new();
    let mut ready = BTreeSet::new();
    for unit in units {
        match count_awaited(board, *unit) {
            Some(0) => drop(ready.insert(*unit)),
            Some(count) => drop(missing.insert(*unit, count)),
            None => {}
        }
    }
    let mut order = Vec::with_capacity(units.len());
    while let Some(unit) = ready.pop_first() {
        order.push(unit);
        for follower in &board.roster().unit(unit).followers {
            let Some(count) = missing.get_mut(follower) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                missing.remove(follower);
                ready.insert(*follower);
            }
        }
    }
    order
}

/// How many units without a machine a unit names; `None` if it names one that will never have one.
fn count_awaited(board: &Board<'_>, unit: UnitNo) -> Option<usize> {
    let mut count = 0;
    for peer in &board.roster().unit(unit).peers {
        match peer {
            Peer::Known(peer) => count += usize::from(is_waiting(board, *peer)),
            Peer::Inactive | Peer::Unknown => return None,
        }
    }
    Some(count)
}

fn is_waiting(board: &Board<'_>, unit: UnitNo) -> bool {
    board.roster().unit(unit).kind == Kind::Single && board.seat_of(unit).is_none()
}

/// The units without a machine that a unit names.
fn awaited(board: &Board<'_>, unit: UnitNo) -> impl Iterator<Item = UnitNo> {
    let peers = &board.roster().unit(unit).peers;
    let known = peers.iter().filter_map(|peer| match peer {
        Peer::Known(peer) => Some(*peer),
        Peer::Inactive | Peer::Unknown => None,
    });
    known.filter(|peer| is_waiting(board, *peer))
}

/// A unit with all those without a machine that it must be beside, leaders first. `None` if it
/// waits in vain, or if there are more than [`MOST_TOLD`].
pub(crate) fn company(board: &Board<'_>, unit: UnitNo) -> Option<Vec<UnitNo>> {
    let mut all = BTreeSet::from([unit]);
    let mut next = vec![unit];
    while let Some(unit) = next.pop() {
        next.extend(awaited(board, unit).filter(|peer| all.insert(*peer)));
        if all.len() > MOST_TOLD {
            return None;
        }
    }
    let order = leaders_first(board, &all);
    (order.len() == all.len()).then_some(order)
}

/// The shortest circle of `MachineOf=` that leads from a unit back to it; `None` if there is none
/// of at most [`MOST_TOLD`] units.
pub(crate) fn circle(board: &Board<'_>, unit: UnitNo) -> Option<Vec<UnitNo>> {
    let mut came_from: BTreeMap<UnitNo, UnitNo> = BTreeMap::new();
    let mut queue = VecDeque::from([(unit, 1)]);
    while let Some((at, length)) = queue.pop_front() {
        for peer in awaited(board, at) {
            if peer == unit {
                return Some(way(&came_from, unit, at));
            }
            if length < MOST_TOLD && !came_from.contains_key(&peer) {
                came_from.insert(peer, at);
                queue.push_back((peer, length + 1));
            }
        }
    }
    None
}

/// The way that led from one unit to another.
fn way(came_from: &BTreeMap<UnitNo, UnitNo>, from: UnitNo, to: UnitNo) -> Vec<UnitNo> {
    let mut way = vec![to];
    let mut at = to;
    while at != from {
        at = came_from[&at];
        way.push(at);
    }
    way.reverse();
    way
}

/// A placed unit with all units on its machine that follow it, leaders first.
pub(crate) fn train(board: &Board<'_>, unit: UnitNo) -> Vec<UnitNo> {
    let Some(machine) = board.seat_of(unit) else {
        return Vec::new();
    };
    let mut train = BTreeSet::from([unit]);
    let mut next = vec![unit];
    while let Some(unit) = next.pop() {
        let followers = board.roster().unit(unit).followers.iter().copied();
        next.extend(followers.filter(|f| board.seat_of(*f) == Some(machine) && train.insert(*f)));
    }
    in_following_order(board, unit, &train)
}

/// Sorts a train: its head, then by how many steps each is behind the head at most.
fn in_following_order(board: &Board<'_>, head: UnitNo, train: &BTreeSet<UnitNo>) -> Vec<UnitNo> {
    let mut left = train.clone();
    let mut order = vec![head];
    left.remove(&head);
    while !left.is_empty() {
        let awaits = |unit: &UnitNo| {
            let peers = &board.roster().unit(*unit).peers;
            peers.iter().any(|peer| matches!(peer, Peer::Known(peer) if left.contains(peer)))
        };
        let ready: Vec<UnitNo> = left.iter().copied().filter(|unit| !awaits(unit)).collect();
        // Units placed in a circle cannot be put down one by one: they stay, and so does the head.
        let ready = if ready.is_empty() { left.iter().copied().collect() } else { ready };
        for unit in ready {
            left.remove(&unit);
            order.push(unit);
        }
    }
    order
}
