//! Censuses: how all machines answer a class of units that fits nowhere, kept from plan to plan.
//!
//! Units that fit nowhere may come in a stream, and each wants a reason that counts all machines.
//! What a machine answers to a class changes only when something changes about that machine; so
//! after the first time only those machines are asked again to which something has happened.

use std::collections::BTreeMap;

use fleet_core::Rule;

use super::heap::{Heap, Places, machine_of};
use super::slots::{ClassNo, MachineNo, UnitNo};
use super::trail::Trail;
use super::{Index, Machines};
use crate::rules::{Denial, Question};

/// What a machine that is not cordoned answers who cannot go there by what it is.
pub(crate) const OUTSIDE: Rule = Rule::MachineMetadata;

/// How machines answer a unit or a group: counted by the place of the rule that refuses.
#[derive(Debug)]
pub(crate) struct Answers<R> {
    /// Of each rule how many machines it refuses first, and the first of these by ID.
    pub(crate) tallies: BTreeMap<R, (u32, MachineNo)>,
    /// Of the machines with the latest rule the least loaded one, then the first by ID.
    pub(crate) nearest: Option<(R, u32, MachineNo)>,
}

/// All censuses.
#[derive(Debug, Default)]
pub(crate) struct Censuses {
    /// The machines where anybody came or went, or that are others now.
    stirred: Trail,
    /// The oldest first.
    all: Vec<(ClassNo, Census)>,
    /// How all machines answer who can go to none of them.
    of_outsiders: Option<Census>,
}

/// How all machines answer one class.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// How far the trail had come when all was true.
    seen: u64,
    /// The rule by which each machine refuses, by its number.
    answers: Vec<Option<Rule>>,
    crowds: BTreeMap<Rule, Crowd>,
    by_load: Places,
    by_id: Places,
}

/// The machines that refuse by one rule.
#[derive(Debug, Default)]
struct Crowd {
    /// The least loaded on top, then the first by ID.
    by_load: Heap,
    by_id: Heap,
}

impl<R: Ord + Copy> Answers<R> {
    pub(crate) fn new() -> Self {
        Self { tallies: BTreeMap::new(), nearest: None }
    }

    /// Counts a machine's answer. The machines must come in the order of their IDs.
    pub(crate) fn add(&mut self, rule: R, load: u32, machine: MachineNo) {
        self.tallies.entry(rule).or_insert((0, machine)).0 += 1;
        let is_nearer = |(best, least, _): (R, u32, _)| rule > best || rule == best && load < least;
        if self.nearest.is_none_or(is_nearer) {
            self.nearest = Some((rule, load, machine));
        }
    }
}

impl Censuses {
    /// How many are kept; what they cost follows the number of machines.
    const MOST: usize = 16;

    /// Something has changed about a machine. If that happens too often in between, it is cheaper
    /// to ask all machines again.
    pub(super) fn stir(&mut self, machine: MachineNo, machines: usize) {
        if self.all.is_empty() && self.of_outsiders.is_none() {
            return;
        }
        self.stirred.push(machine, machines);
        if self.stirred.len() > machines + 1024 {
            self.clear();
        }
    }

    /// How far the trail has come.
    pub(super) fn end(&self) -> u64 {
        self.stirred.end()
    }

    /// All since a point is taken back, and no census was asked in between.
    pub(super) fn take_back(&mut self, point: u64) {
        self.stirred.take_back(point);
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.of_outsiders = None;
        self.stirred.forget();
    }

    /// A class is gone.
    pub(super) fn forget(&mut self, class: ClassNo) {
        self.all.retain(|(other, _)| *other != class);
    }

    /// Takes the census of a class out, if there is one.
    fn take(&mut self, class: ClassNo) -> Option<Census> {
        let at = self.all.iter().position(|(other, _)| *other == class)?;
        Some(self.all.remove(at).1)
    }

    fn put(&mut self, class: ClassNo, census: Census) {
        if self.all.len() >= Self::MOST {
            self.all.remove(0);
        }
        self.all.push((class, census));
    }
}

impl Census {
    /// Writes down what a machine answers now; nothing if it takes the class or is not present.
    fn set(&mut self, machine: MachineNo, answer: Option<Rule>, machines: &Machines) {
        if self.answers.len() <= machine.at() {
            self.answers.resize(machine.at() + 1, None);
        }
        let old = std::mem::replace(&mut self.answers[machine.at()], answer);
        let left = old.filter(|_| old != answer).and_then(|rule| self.crowds.get_mut(&rule));
        if let Some(crowd) = left {
            crowd.by_load.remove(machine, &mut self.by_load);
            crowd.by_id.remove(machine, &mut self.by_id);
        }
        let Some(rule) = answer else { return };
        let slot = &machines.slots[machine];
        let (load, id) = (key(slot.desk.load(), slot.label, machine), key(0, slot.label, machine));
        let crowd = self.crowds.entry(rule).or_default();
        if old == answer {
            // The number may be another machine's by now, so the ID is not known to be the same.
            crowd.by_load.update(load, &mut self.by_load);
            crowd.by_id.update(id, &mut self.by_id);
        } else {
            crowd.by_load.insert(load, &mut self.by_load);
            crowd.by_id.insert(id, &mut self.by_id);
        }
    }

    /// How many machines refuse by a rule.
    pub(crate) fn count(&self, rule: Rule) -> usize {
        self.crowds.get(&rule).map_or(0, |crowd| crowd.by_id.keys().len())
    }

    /// The first machine by ID that refuses by a rule, and the nearest; some few left aside.
    pub(crate) fn ends(&self, rule: Rule, aside: &[MachineNo]) -> Option<(MachineNo, MachineNo)> {
        let crowd = self.crowds.get(&rule)?;
        let is_aside = |key: u128| aside.contains(&machine_of(key));
        let end = |heap: &Heap| heap.first_but(is_aside).map(machine_of);
        Some((end(&crowd.by_id)?, end(&crowd.by_load)?))
    }

    fn answers(&self) -> Answers<Rule> {
        let mut answers = Answers::new();
        for (rule, crowd) in &self.crowds {
            let (Some(load), Some(id)) = (crowd.by_load.top(), crowd.by_id.top()) else { continue };
            let count = u32::try_from(crowd.by_id.keys().len()).unwrap_or(u32::MAX);
            answers.tallies.insert(*rule, (count, machine_of(id)));
            answers.nearest = Some((*rule, 0, machine_of(load)));
        }
        answers
    }
}

impl Index {
    /// How all machines answer a unit that waits and that nothing ties to others, if its class asks
    /// for the second time: most ask but once, and then to count is cheaper.
    pub(crate) fn census(&mut self, unit: UnitNo) -> Option<Answers<Rule>> {
        let number = self.units.slots[unit].class;
        let class = &mut self.classes.slots[number];
        let asked_before = std::mem::replace(&mut class.was_asked, true);
        if !asked_before || !class.replaces.is_empty() || self.policy.is_custom() {
            return None;
        }
        let census = self.censuses.take(number);
        let answer = |machine| Question::new(self, unit, machine).denial().map(Denial::rule);
        let census = self.brought_up(census, answer);
        let answers = census.answers();
        self.censuses.put(number, census);
        Some(answers)
    }

    /// How all machines answer who can go to none of them, by what they are: one that is cordoned
    /// says so, and of the others it is said which rule that is when it is known who asks.
    pub(crate) fn census_of_outsiders(&mut self) -> &Census {
        let census = self.censuses.of_outsiders.take();
        let is_cordoned = |machine| self.machines.slots[machine].machine().cordoned;
        let answer = |machine| Some(if is_cordoned(machine) { Rule::Cordon } else { OUTSIDE });
        let census = self.brought_up(census, answer);
        self.censuses.of_outsiders.insert(census)
    }

    /// A census with the answers of all machines to which something has happened since.
    fn brought_up(
        &self,
        census: Option<Census>,
        answer: impl Fn(MachineNo) -> Option<Rule>,
    ) -> Census {
        let mut census = census.unwrap_or_default();
        let ask = |census: &mut Census, machine: MachineNo| {
            let present = self.machines.slots[machine].is_present();
            census.set(machine, present.then(|| answer(machine)).flatten(), &self.machines);
        };
        let stirred = self.censuses.stirred.since(census.seen);
        match stirred.filter(|_| !census.answers.is_empty()) {
            Some(stirred) => stirred.iter().for_each(|machine| ask(&mut census, *machine)),
            None => {
                census = Census::default();
                self.machines.present().for_each(|machine| ask(&mut census, machine));
            }
        }
        census.seen = self.censuses.end();
        census
    }
}

/// A number by which a heap orders machines.
fn key(first: u32, label: u32, machine: MachineNo) -> u128 {
    let words = [first, label, machine.0];
    words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
}
