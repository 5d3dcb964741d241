//! Filters: what units ask of a machine alone. Each machine is asked once for all units that ask
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};

use fleet_core::{Expression, Machine, Metadata, Requirements, Rule};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::slots::{FilterNo, MachineNo, Slots};
use crate::rules;

/// `MachineMetadata=` and `MachineMetadataExpr=` of some units.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    metadata: BTreeMap<String, BTreeSet<String>>,
    expression: Option<Expression>,
    users: u32,
    /// What it says of each machine, by the machine's number.
    verdicts: Vec<Verdict>,
}

/// What a filter says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verdict {
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
}

impl Filters {
    /// The filter that every machine passes.
    pub(crate) const ALL: FilterNo = FilterNo(0);

    pub(crate) fn new() -> Self {
        let mut slots = Slots::default();
        slots.insert(Filter { users: 1, ..Filter::default() });
        Self { slots, table: HashTable::new() }
    }

    /// The filter of a unit's requirements, which gets one more user. `machines` are those that are
    /// present.
    pub(crate) fn acquire<'a>(
        &mut self,
        wants: &Requirements,
        machines: impl Iterator<Item = (MachineNo, &'a Machine)>,
    ) -> FilterNo {
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
        let mut filter = Filter {
            metadata: wants.metadata.clone(),
            expression: wants.metadata_expr.clone(),
            users: 1,
            verdicts: Vec::new(),
        };
        machines.for_each(|(number, machine)| filter.judge(number, &machine.metadata));
        let number = self.slots.insert(filter);
        let slots = &self.slots;
        self.table.insert_unique(hash, number, |number| slots[*number].hash());
        number
    }

    /// Takes a user away.
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
        self.slots.remove(number);
    }

    /// A machine has come, or its metadata has changed.
    pub(crate) fn judge(&mut self, machine: MachineNo, metadata: &Metadata) {
        for number in self.slots.numbers().skip(1) {
            if self.slots[number].users > 0 {
                self.slots[number].judge(machine, metadata);
            }
        }
    }

    /// The rule by which the filter refuses a machine that is present.
    pub(crate) fn refusal(&self, number: FilterNo, machine: MachineNo) -> Option<Rule> {
        if number == Self::ALL {
            return None;
        }
        match self.slots[number].verdicts[machine.at()] {
            Verdict::Passes => None,
            Verdict::Metadata => Some(Rule::MachineMetadata),
            Verdict::Expression => Some(Rule::MachineMetadataExpr),
        }
    }
}

impl Filter {
    fn judge(&mut self, machine: MachineNo, metadata: &Metadata) {
        if self.verdicts.len() <= machine.at() {
            self.verdicts.resize(machine.at() + 1, Verdict::Passes);
        }
        let fails = |expression: &Expression| !expression.eval(metadata);
        self.verdicts[machine.at()] = if rules::metadata::lacks(&self.metadata, metadata) {
            Verdict::Metadata
        } else if self.expression.as_ref().is_some_and(fails) {
            Verdict::Expression
        } else {
            Verdict::Passes
        };
    }

    fn hash(&self) -> u64 {
        hash(&self.metadata, self.expression.as_ref())
    }
}

fn hash(metadata: &BTreeMap<String, BTreeSet<String>>, expression: Option<&Expression>) -> u64 {
    let key: (_, Option<&str>) = (metadata, expression.map(Expression::as_str));
    FxBuildHasher.hash_one(hashed(key))
}

/// The same, known to be hashable.
fn hashed<T: Hash>(key: T) -> T {
    key
}
