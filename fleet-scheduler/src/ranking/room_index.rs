//! Machines sorted by rank, in blocks that know how much room their machines have at most. A search
//! for a reservation passes over whole blocks of full machines.

use fleet_core::{Resource, Resources};

use super::heap::machine_of;
use super::{rank, room};
use crate::state::{MachineNo, PatternNo, State};

/// Number of machines at which a block is split in two.
const MAX_BLOCK: usize = 128;

/// The sorted machines of one machine order, by score bucket.
#[derive(Debug, Default)]
pub(crate) struct RoomIndex {
    buckets: Vec<Vec<Block>>,
    /// The bucket and the recorded key of each machine, by the machine's number.
    places: Vec<Option<(usize, u128)>>,
}

/// Some machines with consecutive keys.
#[derive(Debug)]
struct Block {
    /// Sorted. A key may be better than the machine's current one, never worse.
    keys: Vec<u128>,
    /// For each resource, at least what each of these machines has left.
    room: Resources,
}

impl RoomIndex {
    /// Adds a machine, or corrects its position and its room.
    pub(super) fn put(&mut self, machine: MachineNo, bucket: usize, key: u128, room: Resources) {
        self.remove(machine);
        if self.buckets.len() <= bucket {
            self.buckets.resize_with(bucket + 1, Vec::new);
        }
        if self.places.len() <= machine.at() {
            self.places.resize(machine.at() + 1, None);
        }
        self.places[machine.at()] = Some((bucket, key));
        let blocks = &mut self.buckets[bucket];
        let at = block_of(blocks, key).min(blocks.len().saturating_sub(1));
        let Some(block) = blocks.get_mut(at) else {
            blocks.push(Block { keys: vec![key], room });
            return;
        };
        block.keys.insert(block.keys.partition_point(|other| *other < key), key);
        block.room = larger(block.room, room);
        if block.keys.len() >= MAX_BLOCK {
            let keys = block.keys.split_off(MAX_BLOCK / 2);
            let room = block.room;
            blocks.insert(at + 1, Block { keys, room });
        }
    }

    pub(super) fn remove(&mut self, machine: MachineNo) {
        let place = self.places.get_mut(machine.at()).and_then(Option::take);
        let Some((bucket, key)) = place else { return };
        let blocks = &mut self.buckets[bucket];
        let at = block_of(blocks, key);
        blocks[at].keys.retain(|other| *other != key);
        if blocks[at].keys.is_empty() {
            blocks.remove(at);
        }
    }

    /// Returns the first key of a bucket, below `limit`, whose machine has room for a reservation
    /// and for which `takes` returns true.
    pub(super) fn first(
        &mut self,
        bucket: usize,
        limit: u128,
        reserve: Resources,
        (state, ranked): (&State, PatternNo),
        mut takes: impl FnMut(MachineNo) -> bool,
    ) -> Option<u128> {
        let mut at = 0;
        while let Some(block) = self.buckets.get(bucket).and_then(|blocks| blocks.get(at)) {
            if block.keys.first().is_none_or(|first| *first >= limit) {
                return None;
            }
            if !reserve.fits_in(block.room) {
                at += 1;
                continue;
            }
            let stale = |key: &&u128| rank(state, ranked, machine_of(**key)) != **key;
            if let Some(key) = block.keys.iter().find(stale) {
                let machine = machine_of(*key);
                let room = room(state, machine);
                self.put(machine, bucket, rank(state, ranked, machine), room);
                continue;
            }
            let found = block.keys.iter().copied().find(|key| takes(machine_of(*key)));
            if let Some(key) = found {
                return Some(key).filter(|key| *key < limit);
            }
            let rooms = block.keys.iter().map(|key| room(state, machine_of(*key)));
            let room = rooms.fold(Resources::ZERO, larger);
            self.buckets[bucket][at].room = room;
            at += 1;
        }
        None
    }
}

/// Returns the position of the block that holds a key or, if it were there, could.
fn block_of(blocks: &[Block], key: u128) -> usize {
    blocks.partition_point(|block| block.keys.last().is_some_and(|last| *last < key))
}

/// Returns the larger amount of each resource.
fn larger(one: Resources, other: Resources) -> Resources {
    let [cpu, memory, disk] = Resource::ALL.map(|resource| one[resource].max(other[resource]));
    Resources { cpu, memory, disk }
}
