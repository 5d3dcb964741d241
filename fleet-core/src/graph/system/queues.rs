//! Who is to be looked at again, and for whom something is owed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::node::Place;
use crate::Timestamp;

/// Units to be looked at again, each after those that it depends on.
#[derive(Debug, Clone, Default)]
pub(super) struct Dirty(BinaryHeap<Reverse<(u32, u32)>>);

impl Dirty {
    /// Puts a unit in by its rank.
    pub(super) fn push(&mut self, rank: u32, at: u32) {
        self.0.push(Reverse((rank, at)));
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.0.pop().map(|Reverse((_, at))| at)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Units for which something is owed, in the order in which it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues {
    pub(super) resets: BTreeSet<u32>,
    /// Those whose end is forgotten as soon as anything else is wanted.
    pub(super) lapsed: BTreeSet<u32>,
    pub(super) stops: BTreeSet<u32>,
    /// The starts that need no room.
    pub(super) free_starts: BTreeSet<u32>,
    /// The most urgent first: who has the most units above it, then who has the smaller name.
    pub(super) starts: BTreeSet<(Reverse<u32>, u32)>,
    pub(super) reloads: BTreeSet<u32>,
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
}

impl Queues {
    /// Moves a unit from where it stood to where it should stand.
    pub(super) fn move_to(&mut self, at: u32, before: Place, after: Place) {
        keep(&mut self.resets, at, before.reset, after.reset);
        keep(&mut self.lapsed, at, before.lapsed, after.lapsed);
        keep(&mut self.stops, at, before.stop, after.stop);
        keep(&mut self.free_starts, at, before.free_start, after.free_start);
        keep(&mut self.reloads, at, before.reload, after.reload);
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

fn keep(queue: &mut BTreeSet<u32>, at: u32, before: bool, after: bool) {
    if after && !before {
        queue.insert(at);
    } else if before && !after {
        queue.remove(&at);
    }
}
