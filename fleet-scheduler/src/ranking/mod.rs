//! Machine orders: the order in which units try machines, maintained so that the next machine is
//! found quickly.
//!
//! A machine order contains the machines that pass a filter, in buckets. All machines of a bucket
//! have the same preference score and the same values of the spread keys. Their scores are
//! therefore always equal. Within a bucket, machines are sorted by rank, which the policy's
//! [`Ranking`] determines.
//!
//! If the rank of a machine gets worse, its position is corrected when the machine reaches the top
//! of its bucket. If the rank may have become better, the machine is recorded in a [`ChangeLog`],
//! which a machine order reads before its next use.
//!
//! Units that reserve resources may find many full machines ahead of those with room. Once a search
//! has met many, the order keeps a [`RoomIndex`](room_index::RoomIndex), which passes over them.
//!
//! Several templates can share a machine order. The order then counts the instances of each
//! template separately, per spread value.

mod heap;
mod machine_order;
mod room_index;

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use fleet_core::requirements::Spread;
use fleet_core::{Requirements, Resources};
use rustc_hash::FxBuildHasher;

use crate::policy::Ranking;
use crate::state::{FilterNo, MachineNo, OrderNo, PatternNo, Slots, State, index_slots};
pub(crate) use heap::{Heap, HeapPositions, machine_of};
use machine_order::MachineOrder;
pub(crate) use machine_order::preference_score;

/// All machine orders, and the logs that they follow.
#[derive(Debug, Default)]
pub(crate) struct MachineOrders {
    slots: Slots<OrderNo, MachineOrder>,
    /// Machines with a rank that may have become better, or with other changes.
    pub(crate) ranks: ChangeLog,
    /// Machines that may accept units that they refused before.
    pub(crate) loosened_machines: ChangeLog,
    /// Number of changes of the machines' facts.
    pub(crate) facts_version: u64,
    /// Number of times that an order was brought up to date.
    pub(crate) refreshes: u64,
    /// The shared orders by filter, by the template counted for ranking, and by the hash of their
    /// preferences.
    shared: BTreeMap<(FilterNo, PatternNo, u64), Vec<OrderNo>>,
    /// Number of orders that belong to a single class.
    private: usize,
}

index_slots!(MachineOrders, OrderNo, MachineOrder);

impl MachineOrders {
    /// Maximum number of classes with a private order.
    const MAX_PRIVATE: usize = 256;

    /// Returns the shared order for these preferences after adding a user.
    pub(crate) fn acquire(
        &mut self,
        filter: FilterNo,
        wants: &Requirements,
        spread: &[Spread],
        ranked: PatternNo,
    ) -> OrderNo {
        let taste = FxBuildHasher.hash_one((&wants.prefer, &wants.failed_on, spread));
        let alike = self.shared.entry((filter, ranked, taste)).or_default();
        let slots = &mut self.slots;
        let found = alike.iter().find(|order| slots[**order].matches(wants, spread));
        if let Some(order) = found {
            slots[*order].users += 1;
            return *order;
        }
        let order = slots.insert(MachineOrder::new((filter, ranked, taste), wants, spread));
        alike.push(order);
        order
    }

    /// Creates an order for a single class, if there are not too many.
    pub(crate) fn acquire_private(&mut self, shared: OrderNo) -> Option<OrderNo> {
        if self.private >= Self::MAX_PRIVATE {
            return None;
        }
        self.private += 1;
        let order = self.slots[shared].private_copy();
        Some(self.slots.insert(order))
    }

    /// Removes a user of an order.
    pub(crate) fn release(&mut self, number: OrderNo) {
        self.slots[number].users -= 1;
        if self.slots[number].users > 0 {
            return;
        }
        let order = self.slots.remove(number);
        self.private -= usize::from(order.is_private);
        let key = (order.filter, order.ranked, order.taste);
        if let Some(alike) = self.shared.get_mut(&key) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.shared.remove(&key);
            }
        }
    }

    /// Brings an order up to date for the instances of a template.
    pub(crate) fn refresh(&mut self, order: OrderNo, template: PatternNo, state: &State) {
        self.refreshes += 1;
        let logs = (&self.ranks, &self.loosened_machines, self.facts_version);
        let order = &mut self.slots[order];
        order.refresh(logs, state);
        order.count_instances(template, state);
    }
}

/// Returns the resources that a machine offers and that no unit there reserves.
fn room(state: &State, machine: MachineNo) -> Resources {
    let slot = &state.machines[machine];
    slot.machine().offers.saturating_sub(slot.occupancy.used().saturating())
}

/// Returns the rank of a machine as a number; the lowest number comes first. `template` is the
/// template of the new unit, if the number of its instances affects the rank.
pub(crate) fn rank(state: &State, template: PatternNo, machine: MachineNo) -> u128 {
    let slot = &state.machines[machine];
    let load = slot.occupancy.load();
    let (first, second) = match state.policy.ranking {
        Ranking::LeastLoaded => (0, load),
        Ranking::BinPacking => (0, u32::MAX - load),
        Ranking::Spread => {
            (template.some().map_or(0, |t| slot.occupancy.counts_of(t).matching), load)
        }
    };
    let words = [first, second, slot.label, machine.0];
    words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
}

/// Machines that have changed, with the oldest change first. If the log gets too long, its older
/// half is discarded.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    /// Number of discarded entries.
    discarded: u64,
    machines: Vec<MachineNo>,
}

impl ChangeLog {
    /// Returns the position after the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.discarded + self.machines.len() as u64
    }

    /// Returns the number of entries that are kept.
    pub(crate) fn len(&self) -> usize {
        self.machines.len()
    }

    /// Records a change of a machine, where `machines` is the number of all machines. If the log
    /// already has more than twice that number plus 1024 entries, first discards the older half.
    pub(crate) fn push(&mut self, machine: MachineNo, machines: usize) {
        if self.machines.len() > 2 * machines + 1024 {
            let older = self.machines.len() / 2;
            self.machines.drain(..older);
            self.discarded += older as u64;
        }
        self.machines.push(machine);
    }

    /// Removes the entries after a position. No reader may have read them.
    ///
    /// If a long trial made the log discard entries from before the position, nothing remains. The
    /// position is still the end of the log, so that a reader at the position sees no change, and a
    /// reader at an earlier one has to start over.
    pub(crate) fn truncate_to(&mut self, point: u64) {
        let kept = usize::try_from(point.saturating_sub(self.discarded));
        self.machines.truncate(kept.unwrap_or(usize::MAX));
        self.discarded = self.discarded.min(point);
    }

    /// Discards everything, which forces all readers to start over.
    pub(crate) fn discard_all(&mut self) {
        self.discarded = self.end() + 1;
        self.machines.clear();
    }

    /// Returns the machines that changed after a position, or `None` if that part of the log has
    /// been discarded.
    pub(crate) fn since(&self, point: u64) -> Option<&[MachineNo]> {
        let at = usize::try_from(point.checked_sub(self.discarded)?).ok()?;
        self.machines.get(at.min(self.machines.len())..)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Operation {
        Push,
        PushMany,
        Mark,
        /// Returns to one of the marks, like a failed trial.
        Return(usize),
    }

    fn at(position: u64) -> usize {
        usize::try_from(position).unwrap()
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let one = prop_oneof![
            3 => Just(Operation::Push),
            1 => Just(Operation::PushMany),
            2 => Just(Operation::Mark),
            2 => any::<usize>().prop_map(Operation::Return),
        ];
        proptest::collection::vec(one, 0..40)
    }

    proptest! {
        /// A log behaves like one that never discards anything, apart from the positions for which
        /// it has no answer. A trial longer than the log once left the end of the log after the
        /// position to which it returned, and the planner retried a waiting group forever.
        #[test]
        fn log_equals_one_that_discards_nothing(operations in operations()) {
            let (mut log, mut whole, mut next) = (ChangeLog::default(), Vec::new(), 0);
            let mut marks = vec![0_u64];
            let mut push = |log: &mut ChangeLog, whole: &mut Vec<MachineNo>| {
                next += 1;
                whole.push(MachineNo(next));
                log.push(MachineNo(next), 3);
            };
            for operation in operations {
                match operation {
                    Operation::Push => push(&mut log, &mut whole),
                    Operation::PushMany => (0..700).for_each(|_| push(&mut log, &mut whole)),
                    Operation::Mark => marks.push(log.end()),
                    Operation::Return(to) => {
                        let mark = marks[to % marks.len()];
                        log.truncate_to(mark);
                        whole.truncate(at(mark));
                        marks.retain(|other| *other <= mark);
                    }
                }
                prop_assert_eq!(log.end(), whole.len() as u64);
                prop_assert_eq!(log.since(log.end()), Some(&[][..]));
                for mark in &marks {
                    if let Some(changed) = log.since(*mark) {
                        prop_assert_eq!(changed, &whole[at(*mark)..]);
                    }
                }
            }
        }
    }
}
