//! One machine order, kept up to date as machines get better and worse.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fleet_core::requirements::{Preference, Spread};
use fleet_core::{Machine, MachineId, Requirements, Resources};

use super::heap::{Heap, HeapPositions, machine_of};
use super::room_index::RoomIndex;
use super::{ChangeLog, rank, room};
use crate::state::{FilterNo, Lookup, MachineNo, Machines, PatternNo, State};

/// One order of machines.
#[derive(Debug, Default)]
pub(crate) struct MachineOrder {
    pub(super) users: u32,
    pub(super) filter: FilterNo,
    /// The hash of the preferences.
    pub(super) taste: u64,
    prefer: Vec<Preference>,
    failed_on: BTreeMap<MachineId, u32>,
    spread: Vec<SpreadKey>,
    /// The template that the ranking counts instances of, if it counts any.
    pub(super) ranked: PatternNo,
    /// The number of instances of each template that uses the order, by spread key and by value of
    /// the key.
    instance_counts: Lookup<PatternNo, Vec<Vec<i64>>>,
    /// Whether the order belongs to one class. Each machine that refuses the class is then left out
    /// until it changes or a unit leaves it.
    pub(super) is_private: bool,
    buckets: Vec<ScoreBucket>,
    by_score: BTreeMap<(i64, Vec<u32>), u32>,
    /// The bucket of each machine that is in one.
    bucket_of: Vec<u32>,
    positions: HeapPositions,
    /// The same machines by room, once a search has met many full ones.
    rooms: Option<RoomIndex>,
    ranks_seen: u64,
    loosened_seen: u64,
    facts_seen: u64,
    is_built: bool,
}

/// Machines of equal score.
#[derive(Debug, Default)]
struct ScoreBucket {
    preference: i64,
    values: Vec<u32>,
    heap: Heap,
}

impl MachineOrder {
    /// Creates an order for these preferences, given with their hash. It is built on first use.
    pub(super) fn new(
        (filter, ranked, taste): (FilterNo, PatternNo, u64),
        wants: &Requirements,
        spread: &[Spread],
    ) -> Self {
        let spread = spread.iter().map(|it| SpreadKey::over(&it.key, i64::from(it.weight)));
        let (prefer, failed_on) = (wants.prefer.clone(), wants.failed_on.clone());
        let spread = spread.collect();
        Self { users: 1, filter, taste, prefer, failed_on, spread, ranked, ..Self::default() }
    }

    /// Returns whether the order has these preferences.
    pub(super) fn matches(&self, wants: &Requirements, spread: &[Spread]) -> bool {
        let mine = self.spread.iter().map(|spread| (&spread.key, spread.weight));
        self.prefer == wants.prefer
            && self.failed_on == wants.failed_on
            && mine.eq(spread.iter().map(|spread| (&spread.key, i64::from(spread.weight))))
    }

    /// Returns whether the order has one user and is not built. A search that compares all machines
    /// is then as fast as the order, and needs no memory afterwards.
    pub(crate) fn is_spared(&self) -> bool {
        self.users == 1 && !self.is_built && self.spread.is_empty()
    }

    /// Creates a private copy, from which refusing machines are removed.
    pub(super) fn private_copy(&self) -> Self {
        let spread = self.spread.iter().map(|it| SpreadKey::over(&it.key, it.weight));
        Self {
            users: 1,
            filter: self.filter,
            prefer: self.prefer.clone(),
            failed_on: self.failed_on.clone(),
            spread: spread.collect(),
            ranked: self.ranked,
            is_private: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns whether the order depends on the spread of instances.
    pub(crate) fn spreads(&self) -> bool {
        !self.spread.is_empty()
    }

    /// Returns the number of machines.
    pub(crate) fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.heap.keys().len()).sum()
    }

    /// Updates the instance counts after an instance of a template has come to a machine or left
    /// it.
    pub(crate) fn count(&mut self, template: PatternNo, machine: MachineNo, change: i64) {
        let Some(tally) = self.instance_counts.get_mut(&template) else { return };
        for (spread, counts) in self.spread.iter().zip(tally) {
            // A machine that was added or changed since the build has no known value. In that case
            // all instances are counted again at the next use.
            let value = spread.value_of.get(machine.at());
            if let Some(count) = value.and_then(|value| counts.get_mut(*value as usize)) {
                *count += change;
            }
        }
    }

    /// Removes a template that no longer uses the order.
    pub(crate) fn forget(&mut self, template: PatternNo) {
        self.instance_counts.remove(&template);
    }

    /// Counts the instances of a template, unless they are counted already.
    pub(super) fn count_instances(&mut self, template: PatternNo, state: &State) {
        if self.spread.is_empty() || self.instance_counts.contains(&template) {
            return;
        }
        let mut tally: Vec<Vec<i64>> = self.spread.iter().map(|s| vec![0; s.values]).collect();
        if state.patterns[template].assigned > 0 {
            for machine in state.machines.present() {
                let there = state.machines[machine].occupancy.counts_of(template).matching;
                for (spread, counts) in self.spread.iter().zip(&mut tally) {
                    counts[spread.value_of[machine.at()] as usize] += i64::from(there);
                }
            }
        }
        self.instance_counts.insert(template, tally);
    }

    /// Brings the order up to date with the changes in the logs, mainly machines that rank better
    /// than before.
    pub(super) fn refresh(&mut self, logs: (&ChangeLog, &ChangeLog, u64), state: &State) {
        let (ranks, loosened_machines, facts) = logs;
        let has_taste =
            !(self.prefer.is_empty() && self.failed_on.is_empty() && self.spread.is_empty());
        let ranked = ranks.since(self.ranks_seen);
        let loosened = loosened_machines.since(self.loosened_seen);
        let room = self.len() + 64;
        let cheap = |log: &Option<&[MachineNo]>| log.is_some_and(|all| all.len() <= room);
        let stale = has_taste && facts != self.facts_seen;
        if !self.is_built || stale || !cheap(&ranked) || self.is_private && !cheap(&loosened) {
            self.build(state);
        } else {
            ranked.into_iter().flatten().for_each(|machine| self.update(*machine, state));
            if self.is_private {
                let loosened = loosened.into_iter().flatten();
                loosened.for_each(|machine| self.insert(*machine, state));
            }
        }
        self.ranks_seen = ranks.end();
        if self.is_private {
            self.loosened_seen = loosened_machines.end();
        }
        self.facts_seen = facts;
    }

    /// Builds the order from scratch.
    fn build(&mut self, state: &State) {
        self.is_built = true;
        self.buckets.clear();
        self.by_score.clear();
        self.bucket_of = Vec::new();
        self.instance_counts.clear();
        self.rooms = self.rooms.take().map(|_| RoomIndex::default());
        for spread in &mut self.spread {
            spread.build(&state.machines);
        }
        if let Some(few) = state.filters.few_candidates(self.filter, &state.machines) {
            self.positions = HeapPositions::sparse();
            few.into_iter().for_each(|machine| self.insert(machine, state));
            return;
        }
        self.positions = HeapPositions::new(state.machines.len());
        for machine in state.machines.present() {
            self.insert(machine, state);
        }
    }

    /// Returns the filter of its units.
    pub(crate) fn filter(&self) -> FilterNo {
        self.filter
    }

    /// Updates a machine that may have changed.
    fn update(&mut self, machine: MachineNo, state: &State) {
        if !self.positions.contains(machine) {
            if !self.is_private {
                self.insert(machine, state);
            }
        } else if state.takes(self.filter, machine) {
            let key = rank(state, self.ranked, machine);
            let bucket = self.bucket_of(machine);
            self.buckets[bucket].heap.update(key, &mut self.positions);
            self.record_room(machine, bucket, key, state);
        } else {
            self.remove(machine);
        }
    }

    /// Adds a machine if it passes the filter and is not included.
    pub(crate) fn insert(&mut self, machine: MachineNo, state: &State) {
        if self.positions.contains(machine) || !state.takes(self.filter, machine) {
            return;
        }
        let bucket = self.bucket_for(machine, &state.machines);
        if self.bucket_of.len() <= machine.at() && bucket > 0 {
            self.bucket_of.resize(machine.at() + 1, 0);
        }
        if let Some(of) = self.bucket_of.get_mut(machine.at()) {
            *of = bucket;
        }
        let key = rank(state, self.ranked, machine);
        self.buckets[bucket as usize].heap.insert(key, &mut self.positions);
        self.record_room(machine, bucket as usize, key, state);
    }

    fn record_room(&mut self, machine: MachineNo, bucket: usize, key: u128, state: &State) {
        if let Some(rooms) = &mut self.rooms {
            rooms.put(machine, bucket, key, room(state, machine));
        }
    }

    /// Indexes the machines by their room, from now on.
    pub(crate) fn index_rooms(&mut self, state: &State) {
        let rooms = self.rooms.insert(RoomIndex::default());
        for (at, bucket) in self.buckets.iter().enumerate() {
            for key in bucket.heap.keys() {
                let machine = machine_of(*key);
                rooms.put(machine, at, rank(state, self.ranked, machine), room(state, machine));
            }
        }
    }

    /// Lends the index of rooms, if there is one. The borrower returns it before any other use of
    /// the order.
    pub(crate) fn rooms_mut(&mut self) -> &mut Option<RoomIndex> {
        &mut self.rooms
    }

    /// Returns the first machine with room for a reservation for which `takes` returns true.
    pub(crate) fn first_with_room(
        &self,
        rooms: &mut RoomIndex,
        (template, reserve): (PatternNo, Resources),
        state: &State,
        mut takes: impl FnMut(MachineNo) -> bool,
    ) -> Option<MachineNo> {
        let scores = (0..self.buckets.len()).map(|at| (Reverse(self.score(at, template)), at));
        let mut scores: Vec<_> = scores.collect();
        scores.sort_unstable();
        let mut best = None;
        for (score, bucket) in scores {
            if best.is_some_and(|(most, _)| score != most) {
                break;
            }
            let limit = best.map_or(u128::MAX, |(_, key)| key);
            let found = rooms.first(bucket, limit, reserve, (state, self.ranked), &mut takes);
            best = found.map(|key| (score, key)).or(best);
        }
        best.map(|(_, key)| machine_of(key))
    }

    pub(crate) fn remove(&mut self, machine: MachineNo) {
        let bucket = self.bucket_of(machine);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            bucket.heap.remove(machine, &mut self.positions);
        }
        if let Some(rooms) = &mut self.rooms {
            rooms.remove(machine);
        }
    }

    fn bucket_of(&self, machine: MachineNo) -> usize {
        self.bucket_of.get(machine.at()).map_or(0, |bucket| *bucket as usize)
    }

    /// Returns the bucket of a machine.
    fn bucket_for(&mut self, machine: MachineNo, machines: &Machines) -> u32 {
        let preference = self.preference(machines[machine].machine());
        let values = self.spread.iter().map(|spread| spread.value_of[machine.at()]);
        let score_key = (preference, values.collect::<Vec<u32>>());
        if let Some(bucket) = self.by_score.get(&score_key) {
            return *bucket;
        }
        let bucket = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
        self.buckets.push(ScoreBucket {
            preference,
            values: score_key.1.clone(),
            heap: Heap::default(),
        });
        self.by_score.insert(score_key, bucket);
        bucket
    }

    fn preference(&self, machine: &Machine) -> i64 {
        preference_score(&self.prefer, &self.failed_on, machine)
    }

    /// Returns the first machine for instances of a template.
    pub(crate) fn first(&mut self, template: PatternNo, state: &State) -> Option<MachineNo> {
        let mut best: Option<(i64, u128)> = None;
        for at in 0..self.buckets.len() {
            let score = self.score(at, template);
            if best.is_some_and(|(most, _)| score < most) {
                continue;
            }
            let Some(key) = self.current_top(at, state) else { continue };
            if best.is_none_or(|(most, lowest)| score > most || key < lowest) {
                best = Some((score, key));
            }
        }
        best.map(|(_, key)| machine_of(key))
    }

    /// Returns all machines in the order for instances of a template.
    pub(crate) fn all(&self, template: PatternNo, state: &State) -> Vec<MachineNo> {
        let mut keys = Vec::with_capacity(self.len());
        for (at, bucket) in self.buckets.iter().enumerate() {
            let score = Reverse(self.score(at, template));
            let machines = bucket.heap.keys().iter().map(|key| machine_of(*key));
            keys.extend(machines.map(|m| (score, rank(state, self.ranked, m))));
        }
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| machine_of(key)).collect()
    }

    /// Returns the negated score and the rank of a machine for instances of a template. Lower keys
    /// come first. The machine need not be part of the order.
    pub(crate) fn sort_key(
        &self,
        machine: MachineNo,
        template: PatternNo,
        state: &State,
    ) -> (i64, u128) {
        let preference = self.preference(state.machines[machine].machine());
        let values = self.spread.iter().map(|spread| spread.value_of[machine.at()]);
        (self.spread_penalty(template, values) - preference, rank(state, self.ranked, machine))
    }

    fn score(&self, bucket: usize, template: PatternNo) -> i64 {
        let bucket = &self.buckets[bucket];
        bucket.preference - self.spread_penalty(template, bucket.values.iter().copied())
    }

    /// Returns the spread penalty of machines with these values.
    fn spread_penalty(&self, template: PatternNo, values: impl Iterator<Item = u32>) -> i64 {
        if self.spread.is_empty() {
            return 0;
        }
        let tally = self.instance_counts.get(&template).into_iter().flatten();
        let weighed = self.spread.iter().zip(tally).zip(values);
        weighed.map(|((spread, counts), value)| spread.weight * counts[value as usize]).sum()
    }

    /// Returns the key of the first machine of a bucket by current rank, or `None` if the bucket is
    /// empty. While the top machine's recorded rank is better than its current rank, records the
    /// current rank and moves the machine down.
    fn current_top(&mut self, bucket: usize, state: &State) -> Option<u128> {
        let heap = &mut self.buckets[bucket].heap;
        loop {
            let top = heap.top()?;
            let key = rank(state, self.ranked, machine_of(top));
            if key == top {
                return Some(key);
            }
            heap.update(key, &mut self.positions);
        }
    }
}

/// A metadata key; instances are spread over its values.
#[derive(Debug)]
struct SpreadKey {
    key: String,
    weight: i64,
    /// The value of each machine, as a number.
    value_of: Vec<u32>,
    /// Number of distinct values.
    values: usize,
}

impl SpreadKey {
    /// Creates a key without machines.
    fn over(key: &str, weight: i64) -> Self {
        Self { key: key.to_owned(), weight, value_of: Vec::new(), values: 0 }
    }

    /// Numbers the values that the machines have.
    fn build(&mut self, machines: &Machines) {
        let mut values: BTreeMap<Option<&String>, u32> = BTreeMap::new();
        self.value_of = vec![0; machines.len()];
        for (machine, facts) in machines.facts() {
            let next = u32::try_from(values.len()).unwrap_or(u32::MAX);
            let value = values.entry(facts.metadata.get(&self.key)).or_insert(next);
            self.value_of[machine.at()] = *value;
        }
        self.values = values.len();
    }
}

/// Returns the sum of the weights of the preferences that a machine satisfies, minus the penalty
/// for failures of the unit on the machine.
pub(crate) fn preference_score(
    prefer: &[Preference],
    failed_on: &BTreeMap<MachineId, u32>,
    machine: &Machine,
) -> i64 {
    let liked = prefer.iter().filter(|preference| preference.expression.eval(&machine.metadata));
    let liked: i64 = liked.map(|preference| i64::from(preference.weight)).sum();
    liked - Requirements::failure_penalty(failed_on, &machine.id)
}
