//! RefusalCountsCache: how all machines answer a class of units that fits nowhere, kept from plan to plan.
//!
//! Units that fit nowhere may come in a stream, and each wants a reason that counts all machines.
//! What a machine summary to a class changes only when something changes about that machine; so
//! after the first time only those machines are asked again to which something has happened.

use std::collections::BTreeMap;

use fleet_core::Rule;

use super::change_log::ChangeLog;
use super::heap::{Heap, HeapPositions, machine_of};
use super::slots::{ClassNo, MachineNo, UnitNo};
use super::{Index, Machines};
use crate::rules::{Denial, PlacementQuery};

/// What a machine that is not cordoned summary who cannot go there by what it is.
pub(crate) const FILTERED: Rule = Rule::MachineMetadata;

/// How machines answer a unit or a group: counted by the place of the rule that refuses.
#[derive(Debug)]
pub(crate) struct RefusalSummary<R> {
    /// Of each rule how many machines it refuses first, and the first of these by ID.
    pub(crate) tallies: BTreeMap<R, (u32, MachineNo)>,
    /// Of the machines with the latest rule the least loaded one, then the first by ID.
    pub(crate) nearest: Option<(R, u32, MachineNo)>,
}

/// All refusal_cache.
#[derive(Debug, Default)]
pub(crate) struct RefusalCountsCache {
    /// The machines where anybody came or went, or that are others now.
    changes: ChangeLog,
    /// The oldest first.
    all: Vec<(ClassNo, RefusalCounts)>,
    /// How all machines answer who can go to none of them.
    by_filter: Option<RefusalCounts>,
}

/// How all machines answer one class.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    /// How far the log had come when all was true.
    seen: u64,
    /// The rule by which each machine refuses, by its number.
    rules: Vec<Option<Rule>>,
    groups: BTreeMap<Rule, RuleGroup>,
    by_load: HeapPositions,
    by_id: HeapPositions,
}

/// The machines that refuse by one rule.
#[derive(Debug, Default)]
struct RuleGroup {
    /// The least loaded on top, then the first by ID.
    by_load: Heap,
    by_id: Heap,
}

impl<R: Ord + Copy> RefusalSummary<R> {
    pub(crate) fn new() -> Self {
        Self { tallies: BTreeMap::new(), nearest: None }
    }

    /// PatternCounts a machine's answer. The machines must come in the order of their IDs.
    pub(crate) fn add(&mut self, rule: R, load: u32, machine: MachineNo) {
        self.tallies.entry(rule).or_insert((0, machine)).0 += 1;
        let is_nearer = |(best, least, _): (R, u32, _)| rule > best || rule == best && load < least;
        if self.nearest.is_none_or(is_nearer) {
            self.nearest = Some((rule, load, machine));
        }
    }
}

impl RefusalCountsCache {
    /// How many are kept; what they cost follows the number of machines.
    const MOST: usize = 16;

    /// Something has changed about a machine. If that happens too often in between, it is cheaper
    /// to ask all machines again.
    pub(super) fn note_change(&mut self, machine: MachineNo, machines: usize) {
        if self.all.is_empty() && self.by_filter.is_none() {
            return;
        }
        self.changes.push(machine, machines);
        if self.changes.len() > machines + 1024 {
            self.clear();
        }
    }

    /// How far the log has come.
    pub(super) fn end(&self) -> u64 {
        self.changes.end()
    }

    /// All since a point is taken back, and no counts was asked in between.
    pub(super) fn truncate_to(&mut self, point: u64) {
        self.changes.truncate_to(point);
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.by_filter = None;
        self.changes.discard_all();
    }

    /// A class is gone.
    pub(super) fn forget(&mut self, class: ClassNo) {
        self.all.retain(|(other, _)| *other != class);
    }

    /// Takes the counts of a class out, if there is one.
    fn take(&mut self, class: ClassNo) -> Option<RefusalCounts> {
        let at = self.all.iter().position(|(other, _)| *other == class)?;
        Some(self.all.remove(at).1)
    }

    fn put(&mut self, class: ClassNo, counts: RefusalCounts) {
        if self.all.len() >= Self::MOST {
            self.all.remove(0);
        }
        self.all.push((class, counts));
    }
}

impl RefusalCounts {
    /// Writes down what a machine summary now; nothing if it takes the class or is not present.
    fn set(&mut self, machine: MachineNo, answer: Option<Rule>, machines: &Machines) {
        if self.rules.len() <= machine.at() {
            self.rules.resize(machine.at() + 1, None);
        }
        let old = std::mem::replace(&mut self.rules[machine.at()], answer);
        let left = old.filter(|_| old != answer).and_then(|rule| self.groups.get_mut(&rule));
        if let Some(group) = left {
            group.by_load.remove(machine, &mut self.by_load);
            group.by_id.remove(machine, &mut self.by_id);
        }
        let Some(rule) = answer else { return };
        let slot = &machines.slots[machine];
        let (load, id) =
            (key(slot.occupancy.load(), slot.label, machine), key(0, slot.label, machine));
        let group = self.groups.entry(rule).or_default();
        if old == answer {
            // The number may be another machine's by now, so the ID is not known to be the same.
            group.by_load.update(load, &mut self.by_load);
            group.by_id.update(id, &mut self.by_id);
        } else {
            group.by_load.insert(load, &mut self.by_load);
            group.by_id.insert(id, &mut self.by_id);
        }
    }

    /// How many machines refuse by a rule.
    pub(crate) fn count(&self, rule: Rule) -> usize {
        self.groups.get(&rule).map_or(0, |group| group.by_id.keys().len())
    }

    /// The first machine by ID that refuses by a rule, and the nearest; some few left aside.
    pub(crate) fn first_and_nearest(
        &self,
        rule: Rule,
        aside: &[MachineNo],
    ) -> Option<(MachineNo, MachineNo)> {
        let group = self.groups.get(&rule)?;
        let is_aside = |key: u128| aside.contains(&machine_of(key));
        let end = |heap: &Heap| heap.first_except(is_aside).map(machine_of);
        Some((end(&group.by_id)?, end(&group.by_load)?))
    }

    fn summary(&self) -> RefusalSummary<Rule> {
        let mut summary = RefusalSummary::new();
        for (rule, group) in &self.groups {
            let (Some(load), Some(id)) = (group.by_load.top(), group.by_id.top()) else { continue };
            let count = u32::try_from(group.by_id.keys().len()).unwrap_or(u32::MAX);
            summary.tallies.insert(*rule, (count, machine_of(id)));
            summary.nearest = Some((*rule, 0, machine_of(load)));
        }
        summary
    }
}

impl Index {
    /// How all machines answer a unit that waits and that nothing affinity to others, if its class asks
    /// for the second time: most ask but once, and then to count is cheaper.
    pub(crate) fn cached_refusals(&mut self, unit: UnitNo) -> Option<RefusalSummary<Rule>> {
        let number = self.units.slots[unit].class;
        let class = &mut self.classes.slots[number];
        let asked_before = std::mem::replace(&mut class.was_counted, true);
        if !asked_before || !class.replaces.is_empty() || self.policy.is_custom() {
            return None;
        }
        let counts = self.refusal_cache.take(number);
        let answer = |machine| PlacementQuery::new(self, unit, machine).denial().map(Denial::rule);
        let counts = self.refreshed(counts, answer);
        let summary = counts.summary();
        self.refusal_cache.put(number, counts);
        Some(summary)
    }

    /// How all machines answer who can go to none of them, by what they are: one that is cordoned
    /// says so, and of the others it is said which rule that is when it is known who asks.
    pub(crate) fn filter_refusal_counts(&mut self) -> &RefusalCounts {
        let counts = self.refusal_cache.by_filter.take();
        let is_cordoned = |machine| self.machines.slots[machine].machine().cordoned;
        let answer = |machine| Some(if is_cordoned(machine) { Rule::Cordon } else { FILTERED });
        let counts = self.refreshed(counts, answer);
        self.refusal_cache.by_filter.insert(counts)
    }

    /// A counts with the summary of all machines to which something has happened since.
    fn refreshed(
        &self,
        counts: Option<RefusalCounts>,
        answer: impl Fn(MachineNo) -> Option<Rule>,
    ) -> RefusalCounts {
        let mut counts = counts.unwrap_or_default();
        let ask = |counts: &mut RefusalCounts, machine: MachineNo| {
            let present = self.machines.slots[machine].is_present();
            counts.set(machine, present.then(|| answer(machine)).flatten(), &self.machines);
        };
        let changes = self.refusal_cache.changes.since(counts.seen);
        match changes.filter(|_| !counts.rules.is_empty()) {
            Some(changes) => changes.iter().for_each(|machine| ask(&mut counts, *machine)),
            None => {
                counts = RefusalCounts::default();
                self.machines.present().for_each(|machine| ask(&mut counts, machine));
            }
        }
        counts.seen = self.refusal_cache.end();
        counts
    }
}

/// A number by which a heap orders machines.
fn key(first: u32, label: u32, machine: MachineNo) -> u128 {
    let words = [first, label, machine.0];
    words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
}
