//! Filters: the requirements that depend only on the metadata of a machine.
//!
//! Units with equal requirements of this kind share a filter. Its verdict on each machine is
//! computed once and cached. If only few machines can pass the filter, it is evaluated on demand
//! instead.
//!
//! An inverted index lists the machines with each value of the metadata keys in use. If every unit
//! requires its own host, there are as many filters as units, and each filter matches one machine.
//! The index finds that machine without evaluating the filter on the others.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};

use fleet_core::refusal::Rule;
use fleet_core::{Expression, Metadata, Requirements};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::machines::Machines;
use super::slots::{FilterNo, MachineNo, Slots};

/// Required metadata: keys, each with its accepted values.
type RequiredMetadata = BTreeMap<String, BTreeSet<String>>;

/// The `MachineMetadata=` and `MachineMetadataExpr=` of some units.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    metadata: RequiredMetadata,
    expression: Option<Expression>,
    users: u32,
    /// The verdict on each machine, by the machine's number, if verdicts are cached.
    verdicts: Option<Vec<FilterVerdict>>,
}

/// The verdict of a filter on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FilterVerdict {
    #[default]
    Passes,
    Metadata,
    Expression,
}

/// All filters.
#[derive(Debug)]
pub(crate) struct Filters {
    slots: Slots<FilterNo, Filter>,
    table: HashTable<FilterNo>,
    /// The filters with cached verdicts.
    cached: BTreeSet<FilterNo>,
    metadata_index: MetadataIndex,
}

impl Filters {
    /// The filter that every machine passes.
    pub(crate) const ALL: FilterNo = FilterNo(0);

    /// Maximum number of candidate machines for which a filter is evaluated on demand, without
    /// cached verdicts. In a cluster of fewer than 64 machines, the maximum is half the number of
    /// machines.
    const FEW: usize = 32;

    /// Maximum number of filters with cached verdicts. Each of these filters takes one byte per
    /// machine and is evaluated again when a machine changes. Further filters are evaluated on
    /// demand.
    const MAX_CACHED: usize = 1024;

    pub(crate) fn new() -> Self {
        let mut slots = Slots::default();
        slots.insert(Filter { users: 1, ..Filter::default() });
        let (table, cached, metadata_index) = Default::default();
        Self { slots, table, cached, metadata_index }
    }

    /// Returns the filter of a unit's requirements and adds a user to it.
    pub(crate) fn acquire(&mut self, wants: &Requirements, machines: &Machines) -> FilterNo {
        if wants.metadata.is_empty() && wants.metadata_expr.is_none() {
            return Self::ALL;
        }
        let hash = hash(&wants.metadata, wants.metadata_expr.as_ref());
        let same = |number: &FilterNo| {
            let filter = &self.slots[*number];
            filter.metadata == wants.metadata && filter.expression == wants.metadata_expr
        };
        if let Some(number) = self.table.find(hash, same).copied() {
            self.slots[number].users += 1;
            return number;
        }
        self.metadata_index.acquire(&wants.metadata, machines);
        let number = self.slots.insert(Filter {
            metadata: wants.metadata.clone(),
            expression: wants.metadata_expr.clone(),
            users: 1,
            verdicts: None,
        });
        let slots = &self.slots;
        self.table.insert_unique(hash, number, |number| slots[*number].hash());
        self.cache_verdicts(number, machines);
        number
    }

    /// Caches the verdicts of a filter on all machines, unless only few machines can pass or too
    /// many filters are cached.
    ///
    /// The call is repeated before a machine order uses the filter, because the number of machines
    /// that can pass may have grown.
    pub(crate) fn cache_verdicts(&mut self, number: FilterNo, machines: &Machines) {
        if number == Self::ALL
            || self.slots[number].verdicts.is_some()
            || self.cached.len() >= Self::MAX_CACHED
            || self.few_candidates(number, machines).is_some()
        {
            return;
        }
        let filter = &mut self.slots[number];
        filter.verdicts = Some(Vec::new());
        machines.facts().for_each(|(number, machine)| filter.write(number, &machine.metadata));
        self.cached.insert(number);
    }

    /// Returns the machines that may pass a filter, or `None` if there are too many. Some of the
    /// returned machines may still fail the filter.
    pub(crate) fn few_candidates(
        &self,
        number: FilterNo,
        machines: &Machines,
    ) -> Option<Vec<MachineNo>> {
        let most = Self::FEW.min(machines.count() / 2);
        self.metadata_index.few_candidates(&self.slots[number].metadata, most)
    }

    /// Removes a user.
    pub(crate) fn release(&mut self, number: FilterNo) {
        if number == Self::ALL {
            return;
        }
        self.slots[number].users -= 1;
        if self.slots[number].users > 0 {
            return;
        }
        let hash = self.slots[number].hash();
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.cached.remove(&number);
        let filter = self.slots.remove(number);
        self.metadata_index.release(&filter.metadata);
    }

    /// Updates the filters after a machine was added, changed its metadata, or was removed.
    pub(crate) fn change(
        &mut self,
        machine: MachineNo,
        old: Option<&Metadata>,
        new: Option<&Metadata>,
    ) {
        self.metadata_index.change(machine, old, new);
        let Some(metadata) = new else { return };
        for number in &self.cached {
            self.slots[*number].write(machine, metadata);
        }
    }

    /// Returns whether a machine is present, not cordoned, and passes a filter.
    pub(crate) fn takes(&self, number: FilterNo, machine: MachineNo, machines: &Machines) -> bool {
        let facts = machines[machine].facts.as_ref();
        facts.is_some_and(|facts| {
            let refusal = || self.refusal(number, machine, &facts.metadata);
            !facts.cordoned && refusal().is_none()
        })
    }

    /// Returns the rule by which the filter refuses a present machine.
    pub(crate) fn refusal(
        &self,
        number: FilterNo,
        machine: MachineNo,
        metadata: &Metadata,
    ) -> Option<Rule> {
        if number == Self::ALL {
            return None;
        }
        let filter = &self.slots[number];
        let verdict = match &filter.verdicts {
            Some(verdicts) => verdicts[machine.at()],
            None => filter.verdict(metadata),
        };
        match verdict {
            FilterVerdict::Passes => None,
            FilterVerdict::Metadata => Some(Rule::MachineMetadata),
            FilterVerdict::Expression => Some(Rule::MachineMetadataExpr),
        }
    }
}

impl Filter {
    /// Updates the cached verdict on a machine.
    fn write(&mut self, machine: MachineNo, metadata: &Metadata) {
        let verdict = self.verdict(metadata);
        let Some(verdicts) = &mut self.verdicts else { return };
        if verdicts.len() <= machine.at() {
            verdicts.resize(machine.at() + 1, FilterVerdict::Passes);
        }
        verdicts[machine.at()] = verdict;
    }

    fn verdict(&self, metadata: &Metadata) -> FilterVerdict {
        let fails = |expression: &Expression| !expression.eval(metadata);
        if first_missing(&self.metadata, metadata).is_some() {
            FilterVerdict::Metadata
        } else if self.expression.as_ref().is_some_and(fails) {
            FilterVerdict::Expression
        } else {
            FilterVerdict::Passes
        }
    }

    fn hash(&self) -> u64 {
        hash(&self.metadata, self.expression.as_ref())
    }
}

fn hash(metadata: &RequiredMetadata, expression: Option<&Expression>) -> u64 {
    let key: (_, Option<&str>) = (metadata, expression.map(Expression::as_str));
    FxBuildHasher.hash_one(hashed(key))
}

/// Returns its argument. Its type must be hashable.
fn hashed<T: Hash>(key: T) -> T {
    key
}

/// Returns the first required key, in alphabetical order, that has no accepted value in the
/// metadata of a machine, and its accepted values.
pub(crate) fn first_missing<'a>(
    wanted: &'a RequiredMetadata,
    metadata: &Metadata,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    wanted.iter().find(|(key, values)| {
        let found = metadata.get(*key);
        !found.is_some_and(|value| values.contains(value))
    })
}

/// The machines by metadata value, for the keys in use.
#[derive(Debug, Default)]
struct MetadataIndex {
    keys: BTreeMap<String, KeyIndex>,
}

/// The index of one key.
#[derive(Debug, Default)]
struct KeyIndex {
    /// Number of filters that use the key.
    filters: u32,
    by_value: BTreeMap<String, BTreeSet<MachineNo>>,
}

impl MetadataIndex {
    /// Adds a filter that uses these keys.
    fn acquire(&mut self, wanted: &RequiredMetadata, machines: &Machines) {
        for name in wanted.keys() {
            if let Some(key) = self.keys.get_mut(name) {
                key.filters += 1;
                continue;
            }
            let mut key = KeyIndex { filters: 1, ..KeyIndex::default() };
            for (machine, facts) in machines.facts() {
                key.put(machine, facts.metadata.get(name));
            }
            self.keys.insert(name.clone(), key);
        }
    }

    /// Removes a filter that used these keys.
    fn release(&mut self, wanted: &RequiredMetadata) {
        for name in wanted.keys() {
            let Some(key) = self.keys.get_mut(name) else { continue };
            key.filters -= 1;
            if key.filters == 0 {
                self.keys.remove(name);
            }
        }
    }

    /// Updates the index after a machine was added, changed its metadata, or was removed.
    fn change(&mut self, machine: MachineNo, old: Option<&Metadata>, new: Option<&Metadata>) {
        for (name, key) in &mut self.keys {
            key.take(machine, old.and_then(|metadata| metadata.get(name)));
            key.put(machine, new.and_then(|metadata| metadata.get(name)));
        }
    }

    /// Returns the machines that may satisfy the requirements, or `None` if there are more than
    /// `most`. All other machines fail the requirements.
    fn few_candidates(&self, wanted: &RequiredMetadata, most: usize) -> Option<Vec<MachineNo>> {
        let keys = wanted.iter().filter_map(|(name, values)| Some((self.keys.get(name)?, values)));
        let (key, values) = keys.min_by_key(|(key, values)| key.count(values, most))?;
        let few = key.count(values, most) <= most;
        few.then(|| key.with(values).flatten().copied().collect())
    }
}

impl KeyIndex {
    fn put(&mut self, machine: MachineNo, value: Option<&String>) {
        let Some(value) = value else { return };
        match self.by_value.get_mut(value) {
            Some(machines) => {
                machines.insert(machine);
            }
            None => {
                self.by_value.insert(value.clone(), [machine].into());
            }
        }
    }

    fn take(&mut self, machine: MachineNo, value: Option<&String>) {
        let Some(value) = value else { return };
        let Some(machines) = self.by_value.get_mut(value) else { return };
        machines.remove(&machine);
        if machines.is_empty() {
            self.by_value.remove(value);
        }
    }

    /// Returns, for each of these values, the machines that have it. These sets are disjoint,
    /// because a machine has one value per key.
    fn with(&self, values: &BTreeSet<String>) -> impl Iterator<Item = &BTreeSet<MachineNo>> {
        values.iter().filter_map(|value| self.by_value.get(value))
    }

    /// Counts the machines that have one of these values, and stops above `most`.
    fn count(&self, values: &BTreeSet<String>, most: usize) -> usize {
        let mut count = 0;
        for machines in self.with(values) {
            count += machines.len();
            if count > most {
                break;
            }
        }
        count
    }
}
