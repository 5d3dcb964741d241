//! The order in which machines are tried: the one with the fewest units first, then by ID.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::board::Board;
use crate::roster::{Kind, MachineNo, Peer, Pin, UnitNo};

/// How many units each machine has, and the machines in that order.
#[derive(Debug)]
pub(crate) struct Loads {
    counts: Vec<u32>,
    ranked: BTreeSet<(u32, MachineNo)>,
}

impl Loads {
    /// Machines that have no units.
    pub(crate) fn new(machines: impl Iterator<Item = MachineNo>) -> Self {
        let ranked: BTreeSet<_> = machines.map(|machine| (0, machine)).collect();
        Self { counts: vec![0; ranked.len()], ranked }
    }

    /// How many units a machine has.
    pub(crate) fn of(&self, machine: MachineNo) -> u32 {
        self.counts[machine.at()]
    }

    pub(crate) fn raise(&mut self, machine: MachineNo) {
        self.set(machine, self.of(machine) + 1);
    }

    pub(crate) fn lower(&mut self, machine: MachineNo) {
        self.set(machine, self.of(machine) - 1);
    }

    fn set(&mut self, machine: MachineNo, load: u32) {
        self.ranked.remove(&(self.of(machine), machine));
        self.ranked.insert((load, machine));
        self.counts[machine.at()] = load;
    }

    /// The first machine behind `last` in the order, or the very first.
    fn after(&self, last: Option<(u32, MachineNo)>) -> Option<(u32, MachineNo)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = last.map_or(Unbounded, Excluded);
        self.ranked.range((from, Unbounded)).next().copied()
    }
}

/// The machines worth trying for a unit, best first.
///
/// Machines that its `MachineID=`, its metadata or a placed peer rule out are left out where that
/// costs nothing to know. Between two calls of [`next`](Self::next) the board may be changed, if
/// the change is undone again.
#[derive(Debug)]
pub(crate) enum Candidates {
    /// At most this one.
    One(Option<MachineNo>),
    /// Some of them.
    Some(BinaryHeap<Reverse<(u32, MachineNo)>>),
    /// All of them, from behind this one on.
    All(Option<(u32, MachineNo)>),
}

impl Candidates {
    /// The machines worth trying for `unit`, as loaded as they are now.
    pub(crate) fn of(board: &Board<'_>, unit: UnitNo) -> Self {
        let entry = board.roster().unit(unit);
        match entry.pin {
            Pin::Only(machine) => return Self::One(Some(machine)),
            Pin::Absent => return Self::One(None),
            Pin::Any => {}
        }
        if let Some(machine) = entry.peers.iter().find_map(|peer| seat_of_peer(board, *peer)) {
            return Self::One(Some(machine));
        }
        let Some(machines) = board.roster().with_metadata(unit) else {
            return Self::All(None);
        };
        let ranked = machines.iter().map(|machine| Reverse((board.loads().of(*machine), *machine)));
        Self::Some(ranked.collect())
    }

    /// The next machine to try.
    pub(crate) fn next(&mut self, board: &Board<'_>) -> Option<MachineNo> {
        match self {
            Self::One(machine) => machine.take(),
            Self::Some(heap) => heap.pop().map(|Reverse((_, machine))| machine),
            Self::All(last) => {
                let next = board.loads().after(*last)?;
                *last = Some(next);
                Some(next.1)
            }
        }
    }
}

/// The only machine that a peer allows, if it is a unit that is somewhere and on one machine only.
fn seat_of_peer(board: &Board<'_>, peer: Peer) -> Option<MachineNo> {
    let Peer::Known(peer) = peer else { return None };
    if board.roster().unit(peer).kind == Kind::Global { None } else { board.seat_of(peer) }
}
