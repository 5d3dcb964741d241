//! Units that only few machines can take, by `MachineID=` or by what they ask of the metadata: only
//! these machines are asked, and of the others it is known what they would say.

use std::cmp::Reverse;

use fleet_core::Rule;

use crate::index::{Answers, ClassNo, Index, MachineNo, PatternNo, UnitNo, liked};
use crate::policy::Ranking;
use crate::rules::Rank;

/// The machines as units see them that cannot go there.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Those that are cordoned, by their IDs.
    cordoned: Vec<MachineNo>,
    /// The others, by their IDs.
    by_id: Vec<MachineNo>,
    /// The same, by their loads, then by their IDs.
    by_load: Vec<MachineNo>,
}

/// Some machines that refuse by one rule.
#[derive(Debug)]
struct Part {
    rank: Rank,
    count: usize,
    /// The first by its ID.
    first: MachineNo,
    /// The least loaded one, then the first by its ID.
    nearest: MachineNo,
}

impl Index {
    /// If only few machines pass the filter of a unit that is alone: the first in its order that
    /// takes it, if any does. There is no need to keep that order for any other unit.
    pub(super) fn among_few(&mut self, unit: UnitNo) -> Option<Option<MachineNo>> {
        let number = self.units.slots[unit].class;
        let class = &self.classes.slots[number];
        if !class.requirements.spread.is_empty() {
            return None; // Where the others are has to be counted.
        }
        let few = self.filters.few(class.filter, &self.machines)?;
        let ranks = self.policy.ranking == Ranking::Spread;
        let ranked = if ranks { class.template } else { PatternNo::NONE };
        let ground = self.ground();
        let order = |machine: &MachineNo| {
            let facts = self.machines.slots[*machine].machine();
            (Reverse(liked(&class.requirements.prefer, facts)), ground.key(ranked, *machine))
        };
        let taking = few.iter().copied().filter(|machine| self.denial(unit, *machine).is_none());
        let found = taking.min_by_key(order);
        if found.is_none() {
            let none_takes = !few.iter().any(|machine| ground.takes(class.filter, *machine));
            let class = &mut self.classes.slots[number];
            class.refused = Some(self.lanes.lifts.end());
            class.hopeless = none_takes.then_some(self.lanes.facts);
        }
        Some(found)
    }

    /// How all machines answer a unit that is alone and replaces nobody, if only few can take it.
    pub(super) fn count_few(
        &self,
        unit: UnitNo,
        crowd: &mut Option<Crowd>,
    ) -> Option<Answers<Rank>> {
        let class = self.units.slots[unit].class;
        let few = self.few_of(class)?;
        let crowd = crowd.get_or_insert_with(|| self.crowd());
        let mut parts = self.parts_of_crowd(class, &few, crowd);
        for machine in few {
            if self.machines.slots[machine].machine().cordoned {
                continue; // It is counted.
            }
            if let Some(denial) = self.denial(unit, machine) {
                let (first, nearest) = (machine, machine);
                parts.push(Part { rank: denial.rank(), count: 1, first, nearest });
            }
        }
        Some(self.together(parts))
    }

    /// The machines that are present and that the units of a class can go to, if they are few.
    fn few_of(&self, class: ClassNo) -> Option<Vec<MachineNo>> {
        let class = &self.classes.slots[class];
        match class.pin.some() {
            _ if !class.replaces.is_empty() => None,
            Some(pin) => Some(Vec::from_iter(self.machines.slots[pin].is_present().then_some(pin))),
            None => self.filters.few(class.filter, &self.machines),
        }
    }

    fn crowd(&self) -> Crowd {
        let facts = self.machines.facts();
        let (cordoned, others): (Vec<_>, Vec<_>) = facts.partition(|(_, facts)| facts.cordoned);
        let numbers = |all: Vec<(MachineNo, _)>| -> Vec<MachineNo> {
            all.into_iter().map(|(machine, _)| machine).collect()
        };
        let (cordoned, by_id) = (numbers(cordoned), numbers(others));
        let mut by_load = by_id.clone();
        by_load.sort_by_key(|machine| self.nearness(*machine));
        Crowd { cordoned, by_id, by_load }
    }

    /// The least loaded machine is the nearest, then the first by its ID.
    fn nearness(&self, machine: MachineNo) -> (u32, u32) {
        let slot = &self.machines.slots[machine];
        (slot.desk.load(), slot.label)
    }

    /// What the machines say where the units of a class cannot go.
    fn parts_of_crowd(&self, class: ClassNo, few: &[MachineNo], crowd: &Crowd) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(first) = crowd.cordoned.first().copied() {
            let nearest = crowd.cordoned.iter().copied().min_by_key(|it| self.nearness(*it));
            let (rank, count) = ((Rule::Cordon, 0), crowd.cordoned.len());
            parts.push(Part { rank, count, first, nearest: nearest.unwrap_or(first) });
        }
        let pinned = self.classes.slots[class].pin.some().is_some();
        let rule = if pinned { Rule::MachineId } else { Rule::MachineMetadata };
        let first_of = |all: &[MachineNo]| all.iter().copied().find(|it| !few.contains(it));
        if let (Some(first), Some(nearest)) = (first_of(&crowd.by_id), first_of(&crowd.by_load)) {
            let cordoned = |machine: &&MachineNo| self.machines.slots[**machine].machine().cordoned;
            let asked = few.len() - few.iter().filter(cordoned).count();
            parts.push(Part { rank: (rule, 0), count: crowd.by_id.len() - asked, first, nearest });
        }
        parts
    }

    /// What some machines answer in all.
    fn together(&self, mut parts: Vec<Part>) -> Answers<Rank> {
        let mut answers = Answers::new();
        parts.sort_by_key(|part| self.machines.slots[part.first].label);
        for part in &parts {
            let count = u32::try_from(part.count).unwrap_or(u32::MAX);
            answers.tallies.entry(part.rank).or_insert((0, part.first)).0 += count;
        }
        let nearest = parts.iter().max_by_key(|p| (p.rank, Reverse(self.nearness(p.nearest))));
        answers.nearest = nearest.map(|part| {
            let (load, _) = self.nearness(part.nearest);
            (part.rank, load, part.nearest)
        });
        answers
    }
}
