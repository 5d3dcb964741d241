//! MachineOrders: the order in which the machines are tried for some units, kept so that the next one is
//! found without looking at all.
//!
//! A order has the machines that pass a filter. They stand in buckets of equal taste: the same
//! preferences are true of them, and the same values of the keys to spread over. So the score of a
//! bucket changes as a whole, and within a bucket the ranking decides. A machine that got worse is
//! put right when it comes to the top; one that got better is on a [`ChangeLog`]. Templates share a
//! order: each has its own count_instances of how its instances are spread over the values.

mod machine_order;
mod spread_key;

use std::collections::BTreeMap;

use fleet_core::{Preference, Spread};

use self::machine_order::MachineOrder;
pub(crate) use self::machine_order::preference_score;
use super::change_log::ChangeLog;
use super::filters::Filters;
use super::machines::Machines;
use super::patterns::Patterns;
use super::slots::{FilterNo, MachineNo, OrderNo, PatternNo, Slots};
use crate::policy::Ranking;

/// All orders, and the logs that they follow.
#[derive(Debug, Default)]
pub(crate) struct MachineOrders {
    pub(crate) slots: Slots<OrderNo, MachineOrder>,
    /// Machines whose rank may have become better, or of which something else has changed.
    pub(crate) ranks: ChangeLog,
    /// Machines that may take units which they refused.
    pub(crate) lifts: ChangeLog,
    /// How often anything has changed of what machines are.
    pub(crate) facts_version: u64,
    /// How often a order was brought up to date.
    pub(crate) refreshes: u64,
    /// The shared orders by filter and the template that is counted for ranking.
    shared: BTreeMap<(FilterNo, PatternNo), Vec<OrderNo>>,
    /// How many orders are of one class alone.
    private: usize,
}

/// What the order of machines depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankContext<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) filters: &'a Filters,
    pub(crate) patterns: &'a Patterns,
    pub(crate) ranking: Ranking,
}

impl MachineOrders {
    /// How many classes may have a order of their own.
    const MAX_PRIVATE: usize = 256;

    /// The shared order of units that ask for this, for one more user.
    pub(crate) fn acquire(
        &mut self,
        filter: FilterNo,
        prefer: &[Preference],
        spread: &[Spread],
        ranked: PatternNo,
    ) -> OrderNo {
        let alike = self.shared.entry((filter, ranked)).or_default();
        let slots = &mut self.slots;
        let found = alike.iter().find(|order| slots[**order].matches(prefer, spread));
        if let Some(order) = found {
            slots[*order].users += 1;
            return *order;
        }
        let order = slots.insert(MachineOrder::new(filter, prefer, spread, ranked));
        alike.push(order);
        order
    }

    /// A order for one class alone, if there are not too many.
    pub(crate) fn acquire_private(&mut self, shared: OrderNo) -> Option<OrderNo> {
        if self.private >= Self::MAX_PRIVATE {
            return None;
        }
        self.private += 1;
        let order = self.slots[shared].private_copy();
        Some(self.slots.insert(order))
    }

    /// A order has one user less.
    pub(crate) fn release(&mut self, number: OrderNo) {
        self.slots[number].users -= 1;
        if self.slots[number].users > 0 {
            return;
        }
        let order = self.slots.remove(number);
        self.private -= usize::from(order.is_private);
        let key = (order.filter, order.ranked);
        if let Some(alike) = self.shared.get_mut(&key) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.shared.remove(&key);
            }
        }
    }

    /// Brings a order up to date, for the instances of a template.
    pub(crate) fn refresh(
        &mut self,
        order: OrderNo,
        template: PatternNo,
        context: RankContext<'_>,
    ) {
        self.refreshes += 1;
        let logs = (&self.ranks, &self.lifts, self.facts_version);
        let order = &mut self.slots[order];
        order.refresh(logs, context);
        order.count_instances(template, context);
    }
}

impl RankContext<'_> {
    /// Whether a machine is present, takes units and passes a filter.
    pub(crate) fn takes(&self, filter: FilterNo, machine: MachineNo) -> bool {
        let facts = &self.machines.slots[machine].facts;
        facts.as_ref().is_some_and(|facts| {
            let refusal = || self.filters.refusal(filter, machine, &facts.metadata);
            !facts.cordoned && refusal().is_none()
        })
    }

    /// A number that is lower the earlier a machine comes in the ranking. `template` is that of the
    /// unit that comes, if its instances count.
    pub(crate) fn key(&self, template: PatternNo, machine: MachineNo) -> u128 {
        let slot = &self.machines.slots[machine];
        let load = slot.occupancy.load();
        let (first, second) = match self.ranking {
            Ranking::LeastLoaded => (0, load),
            Ranking::BinPacking => (0, u32::MAX - load),
            Ranking::Spread => {
                (template.some().map_or(0, |t| slot.occupancy.counts_of(t).matching), load)
            }
        };
        let words = [first, second, slot.label, machine.0];
        words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
    }
}
