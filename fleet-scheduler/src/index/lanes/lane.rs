//! One lane, kept in order as machines get better and worse.

use std::collections::BTreeMap;

use fleet_core::{Machine, Preference, Spread};

use super::Ground;
use super::spreading::Spreading;
use crate::index::heap::{Heap, Places, machine_of};
use crate::index::lookup::Lookup;
use crate::index::machines::Machines;
use crate::index::slots::{FilterNo, MachineNo, PatternNo};
use crate::index::trail::Trail;

/// One order of machines.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(super) users: u32,
    pub(super) filter: FilterNo,
    prefer: Vec<Preference>,
    spread: Vec<Spreading>,
    /// The template whose instances are counted for ranking.
    pub(super) ranked: PatternNo,
    /// Of each template that uses the lane, how many instances there are by key and value.
    tallies: Lookup<PatternNo, Vec<Vec<i64>>>,
    /// Whether machines that refuse are left out until somebody leaves.
    pub(super) is_private: bool,
    buckets: Vec<Bucket>,
    by_taste: BTreeMap<(i64, Vec<u32>), u32>,
    /// The bucket of each machine that is in one.
    bucket_of: Vec<u32>,
    places: Places,
    ranks_seen: u64,
    lifts_seen: u64,
    facts_seen: u64,
    is_built: bool,
}

/// Machines of equal taste.
#[derive(Debug, Default)]
struct Bucket {
    liked: i64,
    values: Vec<u32>,
    heap: Heap,
}

impl Lane {
    /// A lane of units that ask for this; it is put together when it is used.
    pub(super) fn new(
        filter: FilterNo,
        prefer: &[Preference],
        spread: &[Spread],
        ranked: PatternNo,
    ) -> Self {
        let spread = spread.iter().map(|it| Spreading::over(&it.key, i64::from(it.weight)));
        let (prefer, spread) = (prefer.to_vec(), spread.collect());
        Self { users: 1, filter, prefer, spread, ranked, ..Self::default() }
    }

    /// Whether it is the lane of units that have these preferences.
    pub(super) fn serves(&self, prefer: &[Preference], spread: &[Spread]) -> bool {
        let mine = self.spread.iter().map(|spread| (&spread.key, spread.weight));
        self.prefer == prefer
            && mine.eq(spread.iter().map(|spread| (&spread.key, i64::from(spread.weight))))
    }

    /// A lane of the same units without those machines that refuse them.
    pub(super) fn for_one_class(&self) -> Self {
        let spread = self.spread.iter().map(|it| Spreading::over(&it.key, it.weight));
        Self {
            users: 1,
            filter: self.filter,
            prefer: self.prefer.clone(),
            spread: spread.collect(),
            ranked: self.ranked,
            is_private: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether it tells machines apart by how instances are spread.
    pub(crate) fn spreads(&self) -> bool {
        !self.spread.is_empty()
    }

    /// How many machines there are in it.
    pub(crate) fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.heap.keys().len()).sum()
    }

    /// An instance of a template has come to a machine, or left it.
    pub(crate) fn count(&mut self, template: PatternNo, machine: MachineNo, change: i64) {
        let Some(tally) = self.tallies.get_mut(&template) else { return };
        for (spread, counts) in self.spread.iter().zip(tally) {
            // Of a machine that has come or changed since, the value is not known; but then all is
            // counted anew when the lane is next used.
            let value = spread.value_of.get(machine.at());
            if let Some(count) = value.and_then(|value| counts.get_mut(*value as usize)) {
                *count += change;
            }
        }
    }

    /// The template does not use the lane any more.
    pub(crate) fn forget(&mut self, template: PatternNo) {
        self.tallies.remove(&template);
    }

    /// Counts the instances of a template, unless that is done.
    pub(super) fn tally(&mut self, template: PatternNo, ground: Ground<'_>) {
        if self.spread.is_empty() || self.tallies.contains(&template) {
            return;
        }
        let mut tally: Vec<Vec<i64>> = self.spread.iter().map(|s| vec![0; s.values]).collect();
        if ground.patterns.slots[template].seated > 0 {
            for machine in ground.machines.present() {
                let there = ground.machines.slots[machine].desk.of(template).matching;
                for (spread, counts) in self.spread.iter().zip(&mut tally) {
                    counts[spread.value_of[machine.at()] as usize] += i64::from(there);
                }
            }
        }
        self.tallies.insert(template, tally);
    }

    /// Brings it up to date with all that made machines better.
    pub(super) fn catch_up(&mut self, trails: (&Trail, &Trail, u64), ground: Ground<'_>) {
        let (ranks, lifts, facts) = trails;
        let has_taste = !(self.prefer.is_empty() && self.spread.is_empty());
        let ranked = ranks.since(self.ranks_seen);
        let lifted = lifts.since(self.lifts_seen);
        let room = self.len() + 64;
        let cheap = |trail: &Option<&[MachineNo]>| trail.is_some_and(|all| all.len() <= room);
        let stale = has_taste && facts != self.facts_seen;
        if !self.is_built || stale || !cheap(&ranked) || self.is_private && !cheap(&lifted) {
            self.build(ground);
        } else {
            ranked.into_iter().flatten().for_each(|machine| self.look_again(*machine, ground));
            if self.is_private {
                let lifted = lifted.into_iter().flatten();
                lifted.for_each(|machine| self.put_in(*machine, ground));
            }
        }
        self.ranks_seen = ranks.end();
        if self.is_private {
            self.lifts_seen = lifts.end();
        }
        self.facts_seen = facts;
    }

    /// Puts it together from nothing.
    fn build(&mut self, ground: Ground<'_>) {
        self.is_built = true;
        self.buckets.clear();
        self.by_taste.clear();
        self.bucket_of = Vec::new();
        self.tallies.clear();
        for spread in &mut self.spread {
            spread.build(ground.machines);
        }
        if let Some(few) = ground.filters.few(self.filter, ground.machines) {
            self.places = Places::of_few();
            few.into_iter().for_each(|machine| self.put_in(machine, ground));
            return;
        }
        self.places = Places::new(ground.machines.slots.len());
        for machine in ground.machines.present() {
            self.put_in(machine, ground);
        }
    }

    /// The filter of its units.
    pub(crate) fn filter(&self) -> FilterNo {
        self.filter
    }

    /// Something may have changed about a machine.
    fn look_again(&mut self, machine: MachineNo, ground: Ground<'_>) {
        if !self.places.is_in(machine) {
            if !self.is_private {
                self.put_in(machine, ground);
            }
        } else if ground.takes(self.filter, machine) {
            let key = ground.key(self.ranked, machine);
            let bucket = self.bucket_of(machine);
            self.buckets[bucket].heap.update(key, &mut self.places);
        } else {
            self.take_out(machine);
        }
    }

    /// Puts a machine in if it passes the filter and is not there.
    pub(crate) fn put_in(&mut self, machine: MachineNo, ground: Ground<'_>) {
        if self.places.is_in(machine) || !ground.takes(self.filter, machine) {
            return;
        }
        let bucket = self.bucket_for(machine, ground.machines);
        if self.bucket_of.len() <= machine.at() && bucket > 0 {
            self.bucket_of.resize(machine.at() + 1, 0);
        }
        if let Some(of) = self.bucket_of.get_mut(machine.at()) {
            *of = bucket;
        }
        let key = ground.key(self.ranked, machine);
        self.buckets[bucket as usize].heap.insert(key, &mut self.places);
    }

    pub(crate) fn take_out(&mut self, machine: MachineNo) {
        let bucket = self.bucket_of(machine);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            bucket.heap.remove(machine, &mut self.places);
        }
    }

    fn bucket_of(&self, machine: MachineNo) -> usize {
        self.bucket_of.get(machine.at()).map_or(0, |bucket| *bucket as usize)
    }

    /// The bucket that a machine belongs to.
    fn bucket_for(&mut self, machine: MachineNo, machines: &Machines) -> u32 {
        let liked = liked(&self.prefer, machines.slots[machine].machine());
        let values = self.spread.iter().map(|spread| spread.value_of[machine.at()]);
        let taste = (liked, values.collect::<Vec<u32>>());
        if let Some(bucket) = self.by_taste.get(&taste) {
            return *bucket;
        }
        let bucket = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
        self.buckets.push(Bucket { liked, values: taste.1.clone(), heap: Heap::default() });
        self.by_taste.insert(taste, bucket);
        bucket
    }

    /// The first machine in the order of the instances of a template.
    pub(crate) fn first(&mut self, template: PatternNo, ground: Ground<'_>) -> Option<MachineNo> {
        let mut best: Option<(i64, u128)> = None;
        for at in 0..self.buckets.len() {
            let score = self.score(at, template);
            if best.is_some_and(|(most, _)| score < most) {
                continue;
            }
            let Some(key) = self.settled_top(at, ground) else { continue };
            if best.is_none_or(|(most, lowest)| score > most || key < lowest) {
                best = Some((score, key));
            }
        }
        best.map(|(_, key)| machine_of(key))
    }

    /// All machines in the order of the instances of a template.
    pub(crate) fn all(&self, template: PatternNo, ground: Ground<'_>) -> Vec<MachineNo> {
        let mut keys = Vec::with_capacity(self.len());
        for (at, bucket) in self.buckets.iter().enumerate() {
            let score = std::cmp::Reverse(self.score(at, template));
            let machines = bucket.heap.keys().iter().map(|key| machine_of(*key));
            keys.extend(machines.map(|m| (score, ground.key(self.ranked, m))));
        }
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| machine_of(key)).collect()
    }

    /// The score and the rank of a machine for an instance of a template, whether the machine is in
    /// the lane or not; lower ones first.
    pub(crate) fn order_of(
        &self,
        machine: MachineNo,
        template: PatternNo,
        ground: Ground<'_>,
    ) -> (i64, u128) {
        let liked = liked(&self.prefer, ground.machines.slots[machine].machine());
        let values = self.spread.iter().map(|spread| spread.value_of[machine.at()]);
        (self.crowding(template, values) - liked, ground.key(self.ranked, machine))
    }

    fn score(&self, bucket: usize, template: PatternNo) -> i64 {
        let bucket = &self.buckets[bucket];
        bucket.liked - self.crowding(template, bucket.values.iter().copied())
    }

    /// How much speaks against machines of these values for the sake of spreading.
    fn crowding(&self, template: PatternNo, values: impl Iterator<Item = u32>) -> i64 {
        if self.spread.is_empty() {
            return 0;
        }
        let tally = self.tallies.get(&template).into_iter().flatten();
        let weighed = self.spread.iter().zip(tally).zip(values);
        weighed.map(|((spread, counts), value)| spread.weight * counts[value as usize]).sum()
    }

    /// The true key of the first machine of a bucket, after those that got worse have sunk.
    fn settled_top(&mut self, bucket: usize, ground: Ground<'_>) -> Option<u128> {
        let heap = &mut self.buckets[bucket].heap;
        loop {
            let top = heap.top()?;
            let key = ground.key(self.ranked, machine_of(top));
            if key == top {
                return Some(key);
            }
            heap.update(key, &mut self.places);
        }
    }
}

/// The weights of the preferences that are true of a machine.
pub(crate) fn liked(prefer: &[Preference], machine: &Machine) -> i64 {
    let liked = prefer.iter().filter(|preference| preference.expression.eval(&machine.metadata));
    liked.map(|preference| i64::from(preference.weight)).sum()
}
