//! Ties: who must be beside whom, and the groups that this makes of the units that wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lookup::Lookup;
use super::units::{Kind, PeerRef};
use super::{Index, PatternNo, UnitNo};

/// What a `MachineOf=` of a waiting unit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It names a unit that takes part and does not wait. Only the rule has to do with it.
    Loose,
    /// It names a unit that waits, too.
    To(UnitNo),
    /// It names nobody who takes part.
    Vain,
}

/// The waiting units that are tied to one, as groups.
#[derive(Debug, Default)]
pub(crate) struct Component {
    /// The groups; the units of each in the order in which they are put on a machine.
    pub(crate) groups: Vec<Vec<UnitNo>>,
    /// Those that wait in vain.
    pub(crate) vain: Vec<UnitNo>,
}

impl Index {
    /// Whether anything ties a unit to others.
    pub(crate) fn is_tied(&self, unit: UnitNo) -> bool {
        let slot = &self.units.slots[unit];
        !slot.peers().is_empty() || !slot.followers().is_empty() || self.is_meant(unit)
    }

    /// Whether a pattern of a `MachineOf=` matches a unit.
    fn is_meant(&self, unit: UnitNo) -> bool {
        let Some(class) = self.units.slots[unit].class.some() else { return false };
        let mut matched = self.classes.slots[class].matched.iter();
        matched.any(|pattern| !self.patterns.slots[*pattern].namers.is_empty())
    }

    /// What one of a waiting unit's peers comes to.
    pub(crate) fn tie(&self, from: UnitNo, peer: PeerRef) -> Tie {
        match peer {
            PeerRef::Named(other) => {
                let slot = &self.units.slots[other];
                match slot.kind {
                    Kind::Single if slot.is_waiting() => Tie::To(other),
                    Kind::Single | Kind::Global => Tie::Loose,
                    Kind::Unreadable if slot.seat.some().is_some() => Tie::Loose,
                    _ => Tie::Vain,
                }
            }
            PeerRef::Matching(pattern) => self.tie_by_pattern(from, pattern),
        }
    }

    fn tie_by_pattern(&self, from: UnitNo, pattern: PatternNo) -> Tie {
        if self.patterns.slots[pattern].seated > 0 {
            return Tie::Loose;
        }
        let mut tie = Tie::Vain;
        for unit in self.members(pattern).filter(|unit| *unit != from) {
            let slot = &self.units.slots[unit];
            match slot.kind {
                Kind::Single if slot.is_waiting() => return Tie::To(unit),
                Kind::Single | Kind::Global => tie = Tie::Loose,
                _ => {}
            }
        }
        tie
    }

    /// The names that a pattern matches, in order.
    pub(crate) fn matching(&self, pattern: PatternNo) -> impl Iterator<Item = UnitNo> {
        let slot = &self.patterns.slots[pattern];
        let alike = self.units.beginning(slot.literal());
        alike.filter(|(name, _)| slot.covers(name)).map(|(_, unit)| unit)
    }

    /// Those of these that take part or could, of a pattern that some `MachineOf=` has.
    pub(crate) fn members(&self, pattern: PatternNo) -> impl Iterator<Item = UnitNo> {
        let members = self.patterns.slots[pattern].members.iter();
        members.flat_map(|members| members.values().copied())
    }

    /// The waiting units that a waiting unit names.
    pub(crate) fn named_by(&self, unit: UnitNo) -> impl Iterator<Item = UnitNo> {
        let peers = self.units.slots[unit].peers().iter();
        peers.filter_map(move |peer| match self.tie(unit, *peer) {
            Tie::To(other) => Some(other),
            Tie::Loose | Tie::Vain => None,
        })
    }

    /// Units that name this one, or might: those whose pattern matches it are all among them.
    pub(crate) fn may_name(&self, unit: UnitNo) -> impl Iterator<Item = UnitNo> {
        let slot = &self.units.slots[unit];
        let class = slot.class.some();
        let matched = class.map_or(&[][..], |class| &self.classes.slots[class].matched);
        let by_pattern = matched.iter().flat_map(|p| &self.patterns.slots[*p].namers);
        slot.followers().iter().chain(by_pattern).copied().filter(move |other| *other != unit)
    }

    /// The waiting units that are tied to one that waits.
    pub(crate) fn component(&self, unit: UnitNo) -> Component {
        let all = self.tied_to(unit);
        if let [alone] = all[..] {
            let mut peers = self.units.slots[alone].peers().iter();
            let is_vain = peers.any(|peer| match self.tie(alone, *peer) {
                Tie::Vain => true,
                Tie::To(other) => other == alone,
                Tie::Loose => false,
            });
            return if is_vain {
                Component { groups: Vec::new(), vain: all }
            } else {
                Component { groups: vec![all], vain: Vec::new() }
            };
        }
        self.sort_out(all)
    }

    /// All waiting units that one is tied to, directly or through others, itself included.
    fn tied_to(&self, unit: UnitNo) -> Vec<UnitNo> {
        let mut all = vec![unit];
        let mut seen: Lookup<UnitNo, ()> = Lookup::default();
        seen.insert(unit, ());
        let mut next = 0;
        while let Some(unit) = all.get(next).copied() {
            next += 1;
            let naming = self.may_name(unit).filter(|other| {
                self.units.slots[*other].is_waiting()
                    && self.named_by(*other).any(|named| named == unit)
            });
            for other in self.named_by(unit).chain(naming) {
                if seen.insert(other, ()) {
                    all.push(other);
                }
            }
        }
        all
    }

    /// Sorts units that are tied together into groups, and those that wait in vain.
    fn sort_out(&self, mut all: Vec<UnitNo>) -> Component {
        self.units.sort(&mut all);
        let numbered = all.iter().copied().zip(0..);
        let place: Lookup<UnitNo, usize> = numbered.collect();
        let named: Vec<Vec<usize>> = all
            .iter()
            .map(|unit| self.named_by(*unit).filter_map(|n| place.get(&n).copied()).collect())
            .collect();
        let mut naming = vec![Vec::new(); all.len()];
        for (from, named) in named.iter().enumerate() {
            named.iter().for_each(|to| naming[*to].push(from));
        }
        let is_vain = |unit: &UnitNo| {
            let mut peers = self.units.slots[*unit].peers().iter();
            peers.any(|peer| self.tie(*unit, *peer) == Tie::Vain)
        };
        let vain: Vec<bool> = all.iter().map(is_vain).collect();
        let order = in_order(&named, &naming, &vain);
        split(&all, &order, &named, &naming)
    }

    /// The shortest circle of `MachineOf=` that leads from a waiting unit back to it; `None` if
    /// there is none of at most that many units.
    pub(crate) fn circle(&self, unit: UnitNo, most: usize) -> Option<Vec<UnitNo>> {
        let mut came_from: Lookup<UnitNo, UnitNo> = Lookup::default();
        let mut queue = std::collections::VecDeque::from([(unit, 1)]);
        while let Some((at, length)) = queue.pop_front() {
            for named in self.named_by(at) {
                if named == unit {
                    return Some(way(&came_from, unit, at));
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

/// The way that led from one unit to another.
fn way(came_from: &Lookup<UnitNo, UnitNo>, from: UnitNo, to: UnitNo) -> Vec<UnitNo> {
    let mut way = vec![to];
    let mut at = to;
    while at != from {
        let Some(before) = came_from.get(&at) else { break };
        at = *before;
        way.push(at);
    }
    way.reverse();
    way
}

/// Each after those that it names, then by number. Those that are vain, or that name one that is
/// not in the order, are left out.
fn in_order(named: &[Vec<usize>], naming: &[Vec<usize>], vain: &[bool]) -> Vec<usize> {
    let mut missing: Vec<usize> = named.iter().map(Vec::len).collect();
    let is_ready = |at: &usize| missing[*at] == 0 && !vain[*at];
    let mut ready: BinaryHeap<_> = (0..named.len()).filter(is_ready).map(Reverse).collect();
    let mut order = Vec::with_capacity(named.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for other in &naming[at] {
            missing[*other] -= 1;
            if missing[*other] == 0 && !vain[*other] {
                ready.push(Reverse(*other));
            }
        }
    }
    order
}

/// Splits those in the order into groups that are tied together without the others.
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
    let vain = all.iter().zip(&group_of).filter(|(_, group)| **group == OUT);
    Component { groups, vain: vain.map(|(unit, _)| *unit).collect() }
}
