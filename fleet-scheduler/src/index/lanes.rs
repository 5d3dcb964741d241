//! Lanes: the order in which the machines are tried for some units, kept so that the next one is
//! found without looking at all.
//!
//! A lane has the machines that pass a filter. They stand in buckets of equal taste: the same
//! preferences are true of them, and the same values of the keys to spread over. So the score of a
//! bucket changes as a whole, and within a bucket the ranking decides. A machine that got worse is
//! put right when it comes to the top; one that got better is on a [`Trail`]. Templates share a
//! lane: each has its own tally of how its instances are spread over the values.

mod lane;
mod spreading;

use std::collections::BTreeMap;

use fleet_core::{Preference, Spread};

use self::lane::Lane;
pub(crate) use self::lane::liked;
use super::filters::Filters;
use super::machines::Machines;
use super::patterns::Patterns;
use super::slots::{FilterNo, LaneNo, MachineNo, PatternNo, Slots};
use super::trail::Trail;
use crate::policy::Ranking;

/// All lanes, and the trails that they follow.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) slots: Slots<LaneNo, Lane>,
    /// Machines whose rank may have become better, or of which something else has changed.
    pub(crate) ranks: Trail,
    /// Machines that may take units which they refused.
    pub(crate) lifts: Trail,
    /// How often anything has changed of what machines are.
    pub(crate) facts: u64,
    /// How often a lane was brought up to date.
    pub(crate) uses: u64,
    /// The shared lanes by filter and the template that is counted for ranking.
    shared: BTreeMap<(FilterNo, PatternNo), Vec<LaneNo>>,
    /// How many lanes are of one class alone.
    private: usize,
}

/// What the order of machines depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) filters: &'a Filters,
    pub(crate) patterns: &'a Patterns,
    pub(crate) ranking: Ranking,
}

impl Lanes {
    /// How many classes may have a lane of their own.
    const MOST_PRIVATE: usize = 256;

    /// The shared lane of units that ask for this, for one more user.
    pub(crate) fn share(
        &mut self,
        filter: FilterNo,
        prefer: &[Preference],
        spread: &[Spread],
        ranked: PatternNo,
    ) -> LaneNo {
        let alike = self.shared.entry((filter, ranked)).or_default();
        let slots = &mut self.slots;
        let found = alike.iter().find(|lane| slots[**lane].serves(prefer, spread));
        if let Some(lane) = found {
            slots[*lane].users += 1;
            return *lane;
        }
        let lane = slots.insert(Lane::new(filter, prefer, spread, ranked));
        alike.push(lane);
        lane
    }

    /// A lane for one class alone, if there are not too many.
    pub(crate) fn own(&mut self, shared: LaneNo) -> Option<LaneNo> {
        if self.private >= Self::MOST_PRIVATE {
            return None;
        }
        self.private += 1;
        let lane = self.slots[shared].for_one_class();
        Some(self.slots.insert(lane))
    }

    /// A lane has one user less.
    pub(crate) fn leave(&mut self, number: LaneNo) {
        self.slots[number].users -= 1;
        if self.slots[number].users > 0 {
            return;
        }
        let lane = self.slots.remove(number);
        self.private -= usize::from(lane.is_private);
        let key = (lane.filter, lane.ranked);
        if let Some(alike) = self.shared.get_mut(&key) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.shared.remove(&key);
            }
        }
    }

    /// Brings a lane up to date, for the instances of a template.
    pub(crate) fn catch_up(&mut self, lane: LaneNo, template: PatternNo, ground: Ground<'_>) {
        self.uses += 1;
        let trails = (&self.ranks, &self.lifts, self.facts);
        let lane = &mut self.slots[lane];
        lane.catch_up(trails, ground);
        lane.tally(template, ground);
    }
}

impl Ground<'_> {
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
        let load = slot.desk.load();
        let (first, second) = match self.ranking {
            Ranking::LeastLoaded => (0, load),
            Ranking::BinPacking => (0, u32::MAX - load),
            Ranking::Spread => (template.some().map_or(0, |t| slot.desk.of(t).matching), load),
        };
        let words = [first, second, slot.label, machine.0];
        words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
    }
}
