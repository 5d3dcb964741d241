//! A binary heap of machines that records the position of each machine, so that any machine can be
//! moved or removed.
//!
//! A key ends with the machine's number, so the heap stores only keys. The positions are stored
//! outside the heap because several heaps share them: each machine is in at most one of these
//! heaps.

use crate::state::{Lookup, MachineNo};

/// The position of a machine that is in no heap.
const ABSENT: u32 = u32::MAX;

/// Keys of machines, the lowest on top.
#[derive(Debug, Default)]
pub(crate) struct Heap(Vec<u128>);

/// The position of each machine in its heap.
#[derive(Debug)]
pub(crate) enum HeapPositions {
    /// By the machine's number, for heaps with many machines.
    Dense(Vec<u32>),
    /// Only for machines that are in a heap.
    Sparse(Lookup<MachineNo, u32>),
}

/// Returns the machine of a key.
#[expect(clippy::cast_possible_truncation, reason = "the lowest 32 bits are the machine")]
pub(crate) fn machine_of(key: u128) -> MachineNo {
    MachineNo(key as u32)
}

impl Default for HeapPositions {
    fn default() -> Self {
        Self::new(0)
    }
}

impl HeapPositions {
    /// Creates positions for that many machines, all absent.
    pub(crate) fn new(count: usize) -> Self {
        Self::Dense(vec![ABSENT; count])
    }

    /// Creates positions that use memory only for machines in a heap.
    pub(crate) fn sparse() -> Self {
        Self::Sparse(Lookup::default())
    }

    pub(crate) fn contains(&self, machine: MachineNo) -> bool {
        self.get(machine).is_some()
    }

    fn get(&self, machine: MachineNo) -> Option<usize> {
        let position = match self {
            Self::Dense(positions) => *positions.get(machine.at())?,
            Self::Sparse(positions) => *positions.get(&machine)?,
        };
        (position != ABSENT).then_some(position as usize)
    }

    fn set(&mut self, key: u128, position: usize) {
        let (machine, position) = (machine_of(key), u32::try_from(position).unwrap_or(ABSENT));
        match self {
            Self::Dense(positions) => {
                if positions.len() <= machine.at() {
                    positions.resize(machine.at() + 1, ABSENT);
                }
                positions[machine.at()] = position;
            }
            Self::Sparse(positions) => {
                positions.insert(machine, position);
            }
        }
    }

    fn clear(&mut self, key: u128) {
        let machine = machine_of(key);
        match self {
            Self::Dense(positions) => positions[machine.at()] = ABSENT,
            Self::Sparse(positions) => positions.remove(&machine),
        }
    }
}

impl Heap {
    pub(crate) fn top(&self) -> Option<u128> {
        self.0.first().copied()
    }

    pub(crate) fn keys(&self) -> &[u128] {
        &self.0
    }

    /// Returns the lowest key that `is_left_out` does not exclude. The search is efficient if few
    /// keys are excluded.
    pub(crate) fn first_except(&self, is_left_out: impl Fn(u128) -> bool) -> Option<u128> {
        let mut open = vec![0];
        let mut first = None;
        while let Some(at) = open.pop() {
            let Some(key) = self.0.get(at).copied() else { continue };
            // All keys below this one are higher.
            if first.is_some_and(|first| key > first) {
                continue;
            }
            if is_left_out(key) {
                open.extend([2 * at + 1, 2 * at + 2]);
            } else {
                first = Some(key);
            }
        }
        first
    }

    pub(crate) fn insert(&mut self, key: u128, positions: &mut HeapPositions) {
        self.0.push(key);
        self.sift_up(self.0.len() - 1, positions);
    }

    /// Changes the key of a machine in this heap.
    pub(crate) fn update(&mut self, key: u128, positions: &mut HeapPositions) {
        let Some(at) = positions.get(machine_of(key)) else { return };
        let old = std::mem::replace(&mut self.0[at], key);
        if key < old {
            self.sift_up(at, positions);
        } else if key > old {
            self.sift_down(at, positions);
        }
    }

    /// Removes a machine from this heap.
    pub(crate) fn remove(&mut self, machine: MachineNo, positions: &mut HeapPositions) {
        let Some(at) = positions.get(machine) else { return };
        let gone = self.0.swap_remove(at);
        positions.clear(gone);
        if let Some(moved) = self.0.get(at).copied() {
            positions.set(moved, at);
            if moved < gone {
                self.sift_up(at, positions);
            } else {
                self.sift_down(at, positions);
            }
        }
    }

    fn sift_up(&mut self, mut at: usize, positions: &mut HeapPositions) {
        let key = self.0[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.0[parent] <= key {
                break;
            }
            self.0[at] = self.0[parent];
            positions.set(self.0[at], at);
            at = parent;
        }
        self.0[at] = key;
        positions.set(key, at);
    }

    /// Moves a key down to its place. The key first goes to the bottom without being compared, and
    /// then up again. This is faster, because a key usually belongs near the bottom.
    fn sift_down(&mut self, mut at: usize, positions: &mut HeapPositions) {
        let (key, length) = (self.0[at], self.0.len());
        loop {
            let child = 2 * at + 1;
            if child >= length {
                break;
            }
            let right = child + 1 < length && self.0[child + 1] < self.0[child];
            let child = child + usize::from(right);
            self.0[at] = self.0[child];
            positions.set(self.0[at], at);
            at = child;
        }
        self.0[at] = key;
        self.sift_up(at, positions);
    }
}
