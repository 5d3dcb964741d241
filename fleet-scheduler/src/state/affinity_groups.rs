//! Affinity groups: the ties that `MachineOf=` creates between units, and the groups that tied
//! waiting units form.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::slots::Lookup;
use super::units::{PeerRef, UnitKind};
use super::{PatternNo, State, UnitNo};

/// The state of a peer that the `MachineOf=` of a waiting unit names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// A participating unit (a wanted unit, or an unreadable one that has a machine) that does not
    /// wait. It creates no tie, so only the rule `MachineOf` decides.
    NotWaiting,
    /// A unit that waits as well.
    Waiting(UnitNo),
    /// No participating unit.
    Unsatisfiable,
}

/// The waiting units that are tied to one unit, split into groups.
#[derive(Debug, Default)]
pub(crate) struct Component {
    /// The groups. Each group lists its units in the order in which they are assigned.
    pub(crate) groups: Vec<Vec<UnitNo>>,
    /// The units with an unsatisfiable `MachineOf=`.
    pub(crate) unsatisfiable: Vec<UnitNo>,
}

impl State {
    /// Returns whether `MachineOf=` ties the unit to others.
    pub(crate) fn is_tied(&self, unit: UnitNo) -> bool {
        let slot = &self.units[unit];
        !slot.peers().is_empty() || !slot.followers().is_empty() || self.matches_peer_pattern(unit)
    }

    /// Returns whether a pattern of some `MachineOf=` matches the unit.
    fn matches_peer_pattern(&self, unit: UnitNo) -> bool {
        let Some(class) = self.units[unit].class.some() else { return false };
        let mut matched = self.classes[class].matched.iter();
        matched.any(|pattern| !self.patterns[*pattern].followers.is_empty())
    }

    /// Returns the state of a peer of a waiting unit.
    pub(crate) fn peer_state(&self, from: UnitNo, peer: PeerRef) -> PeerState {
        match peer {
            PeerRef::Named(other) => {
                let slot = &self.units[other];
                match slot.kind {
                    UnitKind::Single if slot.is_waiting() => PeerState::Waiting(other),
                    UnitKind::Single | UnitKind::Global => PeerState::NotWaiting,
                    UnitKind::Unreadable if slot.machine.some().is_some() => PeerState::NotWaiting,
                    _ => PeerState::Unsatisfiable,
                }
            }
            PeerRef::Matching(pattern) => self.pattern_state(from, pattern),
        }
    }

    fn pattern_state(&self, from: UnitNo, pattern: PatternNo) -> PeerState {
        if self.patterns[pattern].assigned > 0 {
            return PeerState::NotWaiting;
        }
        let mut state = PeerState::Unsatisfiable;
        for unit in self.members(pattern).filter(|unit| *unit != from) {
            let slot = &self.units[unit];
            match slot.kind {
                UnitKind::Single if slot.is_waiting() => return PeerState::Waiting(unit),
                UnitKind::Single | UnitKind::Global => state = PeerState::NotWaiting,
                _ => {}
            }
        }
        state
    }

    /// Returns the waiting units that a waiting unit names.
    pub(crate) fn waiting_peers(&self, unit: UnitNo) -> impl Iterator<Item = UnitNo> {
        let peers = self.units[unit].peers().iter();
        peers.filter_map(move |peer| match self.peer_state(unit, *peer) {
            PeerState::Waiting(other) => Some(other),
            PeerState::NotWaiting | PeerState::Unsatisfiable => None,
        })
    }

    /// Returns the waiting units that are tied to a waiting unit because they name it.
    fn waiting_followers(&self, unit: UnitNo) -> Vec<UnitNo> {
        let slot = &self.units[unit];
        if !slot.is_waiting() {
            return Vec::new();
        }
        let mut followers = slot.followers().to_vec();
        let class = slot.class.some();
        for pattern in class.map_or(&[][..], |class| &self.classes[class].matched) {
            self.add_pattern_followers(unit, *pattern, &mut followers);
        }
        followers.retain(|other| *other != unit && self.units[*other].is_waiting());
        followers
    }

    /// Adds the units that a pattern ties to a unit that it matches. The pattern ties its followers
    /// to the first waiting unit that it matches. If that unit is a follower, the pattern ties it
    /// to the second one.
    fn add_pattern_followers(&self, unit: UnitNo, pattern: PatternNo, all: &mut Vec<UnitNo>) {
        let slot = &self.patterns[pattern];
        if slot.assigned > 0 || slot.unplaced_followers.is_empty() {
            return;
        }
        let mut waiting =
            self.members(pattern).filter(|unit| self.units[*unit].is_waiting()).take(2);
        match (waiting.next(), waiting.next()) {
            (Some(first), _) if first == unit => all.extend(&slot.unplaced_followers),
            (Some(first), Some(second)) if second == unit => {
                all.extend(slot.unplaced_followers.get(&first));
            }
            _ => {}
        }
    }

    /// Returns all waiting units that are tied to a given waiting unit, split into groups.
    pub(crate) fn component(&self, unit: UnitNo) -> Component {
        let all = self.tied_units(unit);
        if let [alone] = all[..] {
            let mut peers = self.units[alone].peers().iter();
            let is_unsatisfiable = peers.any(|peer| match self.peer_state(alone, *peer) {
                PeerState::Unsatisfiable => true,
                PeerState::Waiting(other) => other == alone,
                PeerState::NotWaiting => false,
            });
            return if is_unsatisfiable {
                Component { groups: Vec::new(), unsatisfiable: all }
            } else {
                Component { groups: vec![all], unsatisfiable: Vec::new() }
            };
        }
        self.split_tied(all)
    }

    /// Returns this unit and all waiting units that it is tied to, directly or through other units.
    fn tied_units(&self, unit: UnitNo) -> Vec<UnitNo> {
        let mut all = vec![unit];
        let mut visited: Lookup<UnitNo, ()> = Lookup::default();
        visited.insert(unit, ());
        let mut next = 0;
        while let Some(unit) = all.get(next).copied() {
            next += 1;
            for other in self.waiting_peers(unit).chain(self.waiting_followers(unit)) {
                if visited.insert(other, ()) {
                    all.push(other);
                }
            }
        }
        all
    }

    /// Splits tied units into groups and unsatisfiable units.
    fn split_tied(&self, mut all: Vec<UnitNo>) -> Component {
        self.units.sort(&mut all);
        let numbered = all.iter().copied().zip(0..);
        let place: Lookup<UnitNo, usize> = numbered.collect();
        let named: Vec<Vec<usize>> = all
            .iter()
            .map(|unit| self.waiting_peers(*unit).filter_map(|n| place.get(&n).copied()).collect())
            .collect();
        let mut naming = vec![Vec::new(); all.len()];
        for (from, named) in named.iter().enumerate() {
            named.iter().for_each(|to| naming[*to].push(from));
        }
        let is_unsatisfiable = |unit: &UnitNo| {
            let mut peers = self.units[*unit].peers().iter();
            peers.any(|peer| self.peer_state(*unit, *peer) == PeerState::Unsatisfiable)
        };
        let unsatisfiable: Vec<bool> = all.iter().map(is_unsatisfiable).collect();
        let order = topological_order(&named, &naming, &unsatisfiable);
        split(&all, &order, &named, &naming)
    }

    /// Returns the shortest cycle of `MachineOf=` through a waiting unit. Returns `None` if there
    /// is no cycle of at most `most` units.
    pub(crate) fn shortest_cycle(&self, unit: UnitNo, most: usize) -> Option<Vec<UnitNo>> {
        let mut came_from: Lookup<UnitNo, UnitNo> = Lookup::default();
        let mut queue = std::collections::VecDeque::from([(unit, 1)]);
        while let Some((at, length)) = queue.pop_front() {
            for named in self.waiting_peers(at) {
                if named == unit {
                    return Some(path(&came_from, unit, at));
                }
                if length < most && !came_from.contains(&named) {
                    came_from.insert(named, at);
                    queue.push_back((named, length + 1));
                }
            }
        }
        None
    }
}

/// Returns the path that led from one unit to another.
fn path(came_from: &Lookup<UnitNo, UnitNo>, from: UnitNo, to: UnitNo) -> Vec<UnitNo> {
    let mut path = vec![to];
    let mut at = to;
    while at != from {
        let Some(before) = came_from.get(&at) else { break };
        at = *before;
        path.push(at);
    }
    path.reverse();
    path
}

/// Returns a topological order of units, as indexes: each unit follows the units that it names.
/// Independent units are in the order of their indexes.
///
/// The order omits the units marked in `unsatisfiable`, the units in a cycle, and all units that
/// name an omitted unit.
fn topological_order(
    named: &[Vec<usize>],
    naming: &[Vec<usize>],
    unsatisfiable: &[bool],
) -> Vec<usize> {
    let mut missing: Vec<usize> = named.iter().map(Vec::len).collect();
    let is_ready = |at: &usize| missing[*at] == 0 && !unsatisfiable[*at];
    let mut ready: BinaryHeap<_> = (0..named.len()).filter(is_ready).map(Reverse).collect();
    let mut order = Vec::with_capacity(named.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for other in &naming[at] {
            missing[*other] -= 1;
            if missing[*other] == 0 && !unsatisfiable[*other] {
                ready.push(Reverse(*other));
            }
        }
    }
    order
}

/// Splits the units of the order into connected groups.
fn split(
    all: &[UnitNo],
    order: &[usize],
    named: &[Vec<usize>],
    naming: &[Vec<usize>],
) -> Component {
    const OUT: usize = usize::MAX;
    const OPEN: usize = usize::MAX - 1;
    let mut group_of = vec![OUT; all.len()];
    order.iter().for_each(|at| group_of[*at] = OPEN);
    let mut count = 0;
    for start in order {
        if group_of[*start] != OPEN {
            continue;
        }
        group_of[*start] = count;
        let mut next = vec![*start];
        while let Some(at) = next.pop() {
            for other in named[at].iter().chain(&naming[at]) {
                if group_of[*other] == OPEN {
                    group_of[*other] = count;
                    next.push(*other);
                }
            }
        }
        count += 1;
    }
    let mut groups = vec![Vec::new(); count];
    order.iter().for_each(|at| groups[group_of[*at]].push(all[*at]));
    let unsatisfiable = all.iter().zip(&group_of).filter(|(_, group)| **group == OUT);
    Component { groups, unsatisfiable: unsatisfiable.map(|(unit, _)| *unit).collect() }
}
