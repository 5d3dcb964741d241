//! Filters: what units ask of a machine alone. Each machine is asked once for all units that ask
//! the same, unless only few machines can pass.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use fleet_core::{Expression, Metadata, Requirements, Rule};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::holders::{Holders, Wanted};
use super::machines::Machines;
use super::slots::{FilterNo, MachineNo, Slots};
use crate::rules;

/// `MachineMetadata=` and `MachineMetadataExpr=` of some units.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    metadata: Wanted,
    expression: Option<Expression>,
    users: u32,
    /// What it says of each machine, by the machine's number, if that is written down.
    verdicts: Option<Vec<Verdict>>,
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
    /// The filters of which it is written down what they say of each machine.
    written: BTreeSet<FilterNo>,
    holders: Holders,
}

impl Filters {
    /// The filter that every machine passes.
    pub(crate) const ALL: FilterNo = FilterNo(0);

    /// How many machines, of more than twice as many, are so few that they are asked whenever
    /// somebody wants to know.
    const FEW: usize = 32;

    /// How many filters are written down: each takes a byte for every machine, and is asked again
    /// when a machine changes. Those beyond are asked whenever somebody wants to know.
    const MOST_WRITTEN: usize = 1024;

    pub(crate) fn new() -> Self {
        let mut slots = Slots::default();
        slots.insert(Filter { users: 1, ..Filter::default() });
        let (table, written, holders) = Default::default();
        Self { slots, table, written, holders }
    }

    /// The filter of a unit's requirements, which gets one more user.
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
        self.holders.acquire(&wants.metadata, machines);
        let number = self.slots.insert(Filter {
            metadata: wants.metadata.clone(),
            expression: wants.metadata_expr.clone(),
            users: 1,
            verdicts: None,
        });
        let slots = &self.slots;
        self.table.insert_unique(hash, number, |number| slots[*number].hash());
        self.write_down(number, machines);
        number
    }

    /// Writes down what a filter says of each machine, unless few can pass: there may be more of
    /// them now than when the filter was new.
    pub(crate) fn write_down(&mut self, number: FilterNo, machines: &Machines) {
        if number == Self::ALL
            || self.slots[number].verdicts.is_some()
            || self.written.len() >= Self::MOST_WRITTEN
            || self.few(number, machines).is_some()
        {
            return;
        }
        let filter = &mut self.slots[number];
        filter.verdicts = Some(Vec::new());
        machines.facts().for_each(|(number, machine)| filter.write(number, &machine.metadata));
        self.written.insert(number);
    }

    /// Machines among which are all that pass a filter, if there are few.
    pub(crate) fn few(&self, number: FilterNo, machines: &Machines) -> Option<Vec<MachineNo>> {
        let most = Self::FEW.min(machines.count() / 2);
        self.holders.few(&self.slots[number].metadata, most)
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
        self.written.remove(&number);
        let filter = self.slots.remove(number);
        self.holders.release(&filter.metadata);
    }

    /// A machine has come, its metadata has changed, or it has gone.
    pub(crate) fn change(
        &mut self,
        machine: MachineNo,
        old: Option<&Metadata>,
        new: Option<&Metadata>,
    ) {
        self.holders.change(machine, old, new);
        let Some(metadata) = new else { return };
        for number in &self.written {
            self.slots[*number].write(machine, metadata);
        }
    }

    /// The rule by which the filter refuses a machine that is present.
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
            Verdict::Passes => None,
            Verdict::Metadata => Some(Rule::MachineMetadata),
            Verdict::Expression => Some(Rule::MachineMetadataExpr),
        }
    }
}

impl Filter {
    /// Writes down what it says of a machine.
    fn write(&mut self, machine: MachineNo, metadata: &Metadata) {
        let verdict = self.verdict(metadata);
        let Some(verdicts) = &mut self.verdicts else { return };
        if verdicts.len() <= machine.at() {
            verdicts.resize(machine.at() + 1, Verdict::Passes);
        }
        verdicts[machine.at()] = verdict;
    }

    fn verdict(&self, metadata: &Metadata) -> Verdict {
        let fails = |expression: &Expression| !expression.eval(metadata);
        if rules::metadata::lacks(&self.metadata, metadata) {
            Verdict::Metadata
        } else if self.expression.as_ref().is_some_and(fails) {
            Verdict::Expression
        } else {
            Verdict::Passes
        }
    }

    fn hash(&self) -> u64 {
        hash(&self.metadata, self.expression.as_ref())
    }
}

fn hash(metadata: &Wanted, expression: Option<&Expression>) -> u64 {
    let key: (_, Option<&str>) = (metadata, expression.map(Expression::as_str));
    FxBuildHasher.hash_one(hashed(key))
}

/// The same, known to be hashable.
fn hashed<T: Hash>(key: T) -> T {
    key
}
