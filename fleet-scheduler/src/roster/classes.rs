//! Classes of units that ask for the same metadata, so that each machine is asked once for all.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Machine;

use super::{Entry, MachineNo};
use crate::rules;

/// A class of units.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassNo(u32);

/// The machines that have what the units of one class ask for.
#[derive(Debug)]
pub(super) struct Class {
    takes: Vec<bool>,
    machines: Vec<MachineNo>,
}

impl ClassNo {
    /// The place in a vector that has one element for each class.
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

impl Class {
    pub(super) fn takes(&self, machine: MachineNo) -> bool {
        self.takes[machine.at()]
    }

    pub(super) fn machines(&self) -> &[MachineNo] {
        &self.machines
    }
}

/// Sorts the units into classes. A unit that asks for no metadata is in none.
pub(super) fn classify(units: &mut [Entry<'_>], machines: &[&Machine]) -> Vec<Class> {
    let mut numbers: BTreeMap<&BTreeMap<String, BTreeSet<String>>, ClassNo> = BTreeMap::new();
    let mut classes = Vec::new();
    for unit in units.iter_mut().filter(|unit| !unit.requirements.metadata.is_empty()) {
        let number = numbers.entry(&unit.requirements.metadata).or_insert_with(|| {
            let takes = |machine: &&Machine| rules::has_metadata(unit.requirements, machine);
            classes.push(class(machines.iter().map(takes).collect()));
            let last = classes.len() - 1;
            ClassNo(u32::try_from(last).expect("there are no more classes than units"))
        });
        unit.class = Some(*number);
    }
    classes
}

fn class(takes: Vec<bool>) -> Class {
    let all = (0..takes.len()).map(MachineNo::new);
    let machines = all.filter(|machine| takes[machine.at()]).collect();
    Class { takes, machines }
}
