//! Queues of units to evaluate and of units with pending actions.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::node::QueueMembership;
use crate::Timestamp;
use crate::graph::build::number;

/// A set of numbers below a bound, from which the smallest number is removed first. A set of ranks
/// therefore yields each unit after the unit's dependencies.
///
/// The numbers are stored as bits. A second level of bits marks the words that are not empty, so
/// that the smallest number is found fast.
#[derive(Debug, Clone, Default)]
pub(super) struct RankSet {
    words: Vec<u64>,
    filled: Vec<u64>,
    /// All words of `filled` before this one are empty.
    first: usize,
    count: u32,
}

impl RankSet {
    /// Creates an empty set for numbers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        let words = bound.div_ceil(64);
        Self { words: vec![0; words], filled: vec![0; words.div_ceil(64)], first: 0, count: 0 }
    }

    pub(super) fn insert(&mut self, rank: u32) {
        let word = rank as usize / 64;
        let (before, bit) = (self.words[word], 1 << (rank % 64));
        if before & bit == 0 {
            self.words[word] |= bit;
            self.filled[word / 64] |= 1 << (word % 64);
            self.first = self.first.min(word / 64);
            self.count += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        while self.filled[self.first] == 0 {
            self.first += 1;
        }
        let at = self.first * 64 + self.filled[self.first].trailing_zeros() as usize;
        let rank = number(at) * 64 + self.words[at].trailing_zeros();
        self.words[at] &= self.words[at] - 1;
        if self.words[at] == 0 {
            self.filled[self.first] &= self.filled[self.first] - 1;
        }
        Some(rank)
    }
}

/// A set of units.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkedUnits {
    marks: Vec<bool>,
    units: Vec<u32>,
}

impl MarkedUnits {
    /// Creates an empty set for units below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        Self { marks: vec![false; bound], units: Vec::new() }
    }

    pub(super) fn insert(&mut self, at: u32) {
        if !std::mem::replace(&mut self.marks[at as usize], true) {
            self.units.push(at);
        }
    }

    /// Removes and returns all units in order.
    pub(super) fn take(&mut self) -> Vec<u32> {
        let mut units = std::mem::take(&mut self.units);
        units.sort_unstable();
        units.iter().for_each(|&at| self.marks[at as usize] = false);
        units
    }
}

/// Units with pending actions, in the order in which the actions are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues {
    pub(super) resets: BTreeSet<u32>,
    /// Units whose result expires when the requested targets change.
    pub(super) expiring_results: BTreeSet<u32>,
    pub(super) stops: BTreeSet<u32>,
    /// Startable units that are exempt from `max_starting`.
    pub(super) unlimited_starts: BTreeSet<u32>,
    /// Startable units: greatest height first, then by name.
    pub(super) starts: BTreeSet<(Reverse<u32>, u32)>,
    pub(super) reloads: BTreeSet<u32>,
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
}

impl Queues {
    /// Moves a unit from its previous queues to its current ones.
    pub(super) fn update(&mut self, at: u32, before: QueueMembership, after: QueueMembership) {
        sync(&mut self.resets, at, before.reset, after.reset);
        sync(&mut self.expiring_results, at, before.expiring_results, after.expiring_results);
        sync(&mut self.stops, at, before.stop, after.stop);
        sync(&mut self.unlimited_starts, at, before.unlimited_start, after.unlimited_start);
        sync(&mut self.reloads, at, before.reload, after.reload);
        if before.start != after.start {
            before.start.map(|height| self.starts.remove(&(height, at)));
            after.start.map(|height| self.starts.insert((height, at)));
        }
        if before.timer != after.timer {
            before.timer.map(|timer| self.timers.remove(&(timer, at)));
            after.timer.map(|timer| self.timers.insert((timer, at)));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|&(timer, _)| timer)
    }
}

fn sync(queue: &mut BTreeSet<u32>, at: u32, before: bool, after: bool) {
    if after && !before {
        queue.insert(at);
    } else if before && !after {
        queue.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::RankSet;

    const BOUND: u32 = 3 * 64 * 64 + 5;

    proptest! {
        /// Each step inserts a number (`Some`) or removes the smallest (`None`). Two of the three
        /// ranges are so short that many numbers share a word of the bit set.
        #[test]
        fn rank_set_pops_in_ascending_order(
            steps in prop::collection::vec(
                prop::option::of(prop_oneof![0..BOUND, 0..130u32, BOUND - 130..BOUND]),
                0..400,
            )
        ) {
            let (mut ranked, mut naive) = (RankSet::new(BOUND as usize), BTreeSet::new());
            for step in steps {
                match step {
                    Some(rank) => {
                        ranked.insert(rank);
                        naive.insert(rank);
                    }
                    None => prop_assert_eq!(ranked.pop(), naive.pop_first()),
                }
            }
            while let Some(rank) = naive.pop_first() {
                prop_assert_eq!(ranked.pop(), Some(rank));
            }
            prop_assert_eq!(ranked.pop(), None);
        }
    }
}
