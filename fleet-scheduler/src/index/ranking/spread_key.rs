//! Spread keys and their values.

use std::collections::BTreeMap;

use crate::index::machines::Machines;

/// A metadata key; instances are spread over its values.
#[derive(Debug)]
pub(super) struct SpreadKey {
    pub(super) key: String,
    pub(super) weight: i64,
    /// The value of each machine, as a number.
    pub(super) value_of: Vec<u32>,
    /// Number of distinct values.
    pub(super) values: usize,
}

impl SpreadKey {
    /// Creates a key without machines.
    pub(super) fn over(key: &str, weight: i64) -> Self {
        Self { key: key.to_owned(), weight, value_of: Vec::new(), values: 0 }
    }

    /// Numbers the values that the machines have.
    pub(super) fn build(&mut self, machines: &Machines) {
        let mut values: BTreeMap<Option<&String>, u32> = BTreeMap::new();
        self.value_of = vec![0; machines.slots.len()];
        for (machine, facts) in machines.facts() {
            let next = u32::try_from(values.len()).unwrap_or(u32::MAX);
            let value = values.entry(facts.metadata.get(&self.key)).or_insert(next);
            self.value_of[machine.at()] = *value;
        }
        self.values = values.len();
    }
}
