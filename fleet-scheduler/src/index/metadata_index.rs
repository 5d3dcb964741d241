//! MetadataIndex: which machines have which value of a metadata key, for the keys that filters ask for.
//!
//! Where every unit asks for a host of its own there are as many filters as units, and each is of
//! one machine. MetadataIndex find it without asking the others.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Metadata;

use super::machines::Machines;
use super::slots::MachineNo;

/// What a filter asks for: keys, each with the values that would do.
pub(super) type RequiredMetadata = BTreeMap<String, BTreeSet<String>>;

/// The machines by what they have, of the keys that are asked for.
#[derive(Debug, Default)]
pub(super) struct MetadataIndex {
    keys: BTreeMap<String, KeyIndex>,
}

/// One key.
#[derive(Debug, Default)]
struct KeyIndex {
    /// How many filters ask for it.
    filters: u32,
    by_value: BTreeMap<String, BTreeSet<MachineNo>>,
}

impl MetadataIndex {
    /// One filter more asks for these keys.
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

    /// One filter less asks for these keys.
    pub(super) fn release(&mut self, wanted: &RequiredMetadata) {
        for name in wanted.keys() {
            let Some(key) = self.keys.get_mut(name) else { continue };
            key.filters -= 1;
            if key.filters == 0 {
                self.keys.remove(name);
            }
        }
    }

    /// A machine has come, has other metadata now, or has gone.
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

    /// Machines among which are all that have what is wanted, if there are at most so many.
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

    /// The machines that have each of these values; none has two.
    fn with(&self, values: &BTreeSet<String>) -> impl Iterator<Item = &BTreeSet<MachineNo>> {
        values.iter().filter_map(|value| self.by_value.get(value))
    }

    /// How many machines have one of these values, counted no further than is asked for.
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
