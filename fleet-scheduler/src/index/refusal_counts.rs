//! Refusal counts of classes with units that no machine accepts, cached between plans.
//!
//! Many units that no machine accepts may arrive one after the other, and each needs a reason that
//! counts all machines. A machine refuses a class by the same rule until the machine changes. After
//! the first count, only the changed machines are therefore checked again.

use std::collections::BTreeMap;

use fleet_core::refusal::Rule;

use super::Cluster;
use crate::ranking::{ChangeLog, Heap, HeapPositions, machine_of};
use crate::rules::{Denial, PlacementQuery};
use crate::state::{ClassNo, MachineNo, Machines, UnitNo};

/// Counted in place of the rule by which a filter excludes a machine that is not cordoned. The
/// actual rule depends on the filter, so the reader of the counts sets it.
pub(crate) const PLACEHOLDER_RULE: Rule = Rule::MachineMetadata;

/// Summary of the refusals of a unit or group, by the rule that refuses. `R` is the rule or its
/// rank.
#[derive(Debug)]
pub(crate) struct RefusalSummary<R> {
    /// For each rule, the number of machines that refuse first by this rule, and the one of them
    /// with the lowest ID.
    pub(crate) tallies: BTreeMap<R, (u32, MachineNo)>,
    /// The rule that refuses on the nearest machine, the load of that machine, and the machine. Of
    /// the machines that refuse by the latest rule, the least loaded is the nearest, then the one
    /// with the lowest ID.
    ///
    /// The load only serves to compare further machines, so it is 0 in a summary of cached counts.
    pub(crate) nearest: Option<(R, u32, MachineNo)>,
}

/// The refusal counts of several classes.
#[derive(Debug, Default)]
pub(crate) struct RefusalCountsCache {
    /// The machines with changed units or facts.
    changes: ChangeLog,
    /// The counts per class, the oldest first.
    all: Vec<(ClassNo, RefusalCounts)>,
    /// The counts for units with a filter that no machine passes.
    by_filter: Option<RefusalCounts>,
}

/// The refusals of one class by all machines.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    /// Position in the change log at which the counts were valid.
    position: u64,
    /// The rule by which each machine refuses, by the machine's number.
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

    /// Adds a refusal. Machines must be added in the order of their IDs.
    pub(crate) fn add(&mut self, rule: R, load: u32, machine: MachineNo) {
        self.tallies.entry(rule).or_insert((0, machine)).0 += 1;
        let is_nearer = |(best, least, _): (R, u32, _)| rule > best || rule == best && load < least;
        if self.nearest.is_none_or(is_nearer) {
            self.nearest = Some((rule, load, machine));
        }
    }
}

impl RefusalCountsCache {
    /// Maximum number of classes with cached counts. The memory for each of them is proportional to
    /// the number of machines.
    const MAX_CACHED: usize = 16;

    /// Records a change of a machine. After too many changes the cache is cleared, because checking
    /// all machines again is then cheaper.
    pub(super) fn note_change(&mut self, machine: MachineNo, machines: usize) {
        if self.all.is_empty() && self.by_filter.is_none() {
            return;
        }
        self.changes.push(machine, machines);
        if self.changes.len() > machines + 1024 {
            self.clear();
        }
    }

    /// Returns the position after the last recorded change.
    pub(super) fn end(&self) -> u64 {
        self.changes.end()
    }

    /// Removes the changes after a position. No counts may have been read since.
    pub(super) fn truncate_to(&mut self, point: u64) {
        self.changes.truncate_to(point);
    }

    /// Discards all counts.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.by_filter = None;
        self.changes.discard_all();
    }

    /// Discards the counts of a removed class.
    pub(super) fn forget(&mut self, class: ClassNo) {
        self.all.retain(|(other, _)| *other != class);
    }

    /// Takes the counts of a class out, if there are any.
    fn take(&mut self, class: ClassNo) -> Option<RefusalCounts> {
        let at = self.all.iter().position(|(other, _)| *other == class)?;
        Some(self.all.remove(at).1)
    }

    fn put(&mut self, class: ClassNo, counts: RefusalCounts) {
        if self.all.len() >= Self::MAX_CACHED {
            self.all.remove(0);
        }
        self.all.push((class, counts));
    }
}

impl RefusalCounts {
    /// Records the rule by which a machine refuses the class. The rule is `None` if the machine
    /// accepts the class or is not present.
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
        let slot = &machines[machine];
        let (load, id) =
            (key(slot.occupancy.load(), slot.label, machine), key(0, slot.label, machine));
        let group = self.groups.entry(rule).or_default();
        if old == answer {
            // The number may have been reused for another machine, so the ID may differ.
            group.by_load.update(load, &mut self.by_load);
            group.by_id.update(id, &mut self.by_id);
        } else {
            group.by_load.insert(load, &mut self.by_load);
            group.by_id.insert(id, &mut self.by_id);
        }
    }

    /// Returns the number of machines that refuse by a rule.
    pub(crate) fn count(&self, rule: Rule) -> usize {
        self.groups.get(&rule).map_or(0, |group| group.by_id.keys().len())
    }

    /// Returns two of the machines that refuse by a rule: the one with the lowest ID, and the least
    /// loaded one. Machines in `aside` are ignored.
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

/// Returns the refusals of a waiting, untied unit from the cached counts of its class. Returns
/// `None` in these cases:
///
/// - The function is called for the class for the first time. Most classes are counted only once,
///   so a count without a cache is cheaper then.
/// - The class replaces other units.
/// - The policy has custom rules or scores.
pub(crate) fn cached_refusals(cluster: &mut Cluster, unit: UnitNo) -> Option<RefusalSummary<Rule>> {
    let number = cluster.state.units[unit].class;
    let class = &mut cluster.state.classes[number];
    let asked_before = std::mem::replace(&mut class.was_counted, true);
    if !asked_before || !class.replaces.is_empty() || cluster.state.policy.is_custom() {
        return None;
    }
    let counts = cluster.refusal_cache.take(number);
    let answer =
        |machine| PlacementQuery::new(&cluster.state, unit, machine).denial().map(Denial::rule);
    let counts = refreshed(cluster, counts, answer);
    let summary = counts.summary();
    cluster.refusal_cache.put(number, counts);
    Some(summary)
}

/// Returns the refusal counts for units with a filter that no machine passes. Cordoned machines are
/// counted under `Rule::Cordon`. All others are counted under [`PLACEHOLDER_RULE`], which the
/// caller replaces with the actual rule.
pub(crate) fn filter_refusal_counts(cluster: &mut Cluster) -> &RefusalCounts {
    let counts = cluster.refusal_cache.by_filter.take();
    let is_cordoned = |machine| cluster.state.machines[machine].machine().cordoned;
    let answer = |machine| Some(if is_cordoned(machine) { Rule::Cordon } else { PLACEHOLDER_RULE });
    let counts = refreshed(cluster, counts, answer);
    cluster.refusal_cache.by_filter.insert(counts)
}

/// Brings counts up to date by checking all machines that have changed.
fn refreshed(
    cluster: &Cluster,
    counts: Option<RefusalCounts>,
    answer: impl Fn(MachineNo) -> Option<Rule>,
) -> RefusalCounts {
    let mut counts = counts.unwrap_or_default();
    let ask = |counts: &mut RefusalCounts, machine: MachineNo| {
        let present = cluster.state.machines[machine].is_present();
        counts.set(machine, present.then(|| answer(machine)).flatten(), &cluster.state.machines);
    };
    let changes = cluster.refusal_cache.changes.since(counts.position);
    match changes.filter(|_| !counts.rules.is_empty()) {
        Some(changes) => changes.iter().for_each(|machine| ask(&mut counts, *machine)),
        None => {
            counts = RefusalCounts::default();
            cluster.state.machines.present().for_each(|machine| ask(&mut counts, machine));
        }
    }
    counts.position = cluster.refusal_cache.end();
    counts
}

/// Returns the heap key of a machine.
fn key(first: u32, label: u32, machine: MachineNo) -> u128 {
    let words = [first, label, machine.0];
    words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
}
