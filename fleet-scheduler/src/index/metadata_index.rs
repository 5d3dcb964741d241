//! An inverted index: lists the machines with each value of the metadata keys that filters use.
//!
//! If every unit requires its own host, there are as many filters as units, and each filter matches
//! one machine. The index finds that machine without evaluating the filter on the others.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Metadata;

use super::machines::Machines;
use super::slots::MachineNo;

/// Required metadata: keys, each with its accepted values.
pub(super) type RequiredMetadata = BTreeMap<String, BTreeSet<String>>;

/// The machines by metadata value, for the keys in use.
#[derive(Debug, Default)]
pub(super) struct MetadataIndex {
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
    pub(super) fn acquire(&mut self, wanted: &RequiredMetadata, machines: &Machines) {
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
    pub(super) fn release(&mut self, wanted: &RequiredMetadata) {
        for name in wanted.keys() {
            let Some(key) = self.keys.get_mut(name) else { continue };
            key.filters -= 1;
            if key.filters == 0 {
                self.keys.remove(name);
            }
        }
    }

    /// Updates the index after a machine was added, changed its metadata, or was removed.
    pub(super) fn change(
        &mut self,
        machine: MachineNo,
        old: Option<&Metadata>,
        new: Option<&Metadata>,
    ) {
        for (name, key) in &mut self.keys {
            key.take(machine, old.and_then(|metadata| metadata.get(name)));
            key.put(machine, new.and_then(|metadata| metadata.get(name)));
        }
    }

    /// Returns the machines that may satisfy the requirements, or `None` if there are more than
    /// `most`. All other machines fail the requirements.
    pub(super) fn few_candidates(
        &self,
        wanted: &RequiredMetadata,
        most: usize,
    ) -> Option<Vec<MachineNo>> {
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
