//! Units that only few machines can take, by `MachineID=` or by what they ask of the metadata: only
//! these machines are asked, and of the others it is known what they would say.

use std::cmp::Reverse;

use fleet_core::Rule;

use crate::index::{
    ClassNo, FILTERED, Index, MachineNo, PatternNo, RefusalSummary, UnitNo, preference_score,
};
use crate::policy::Ranking;
use crate::rules::Rank;

/// Some machines that refuse by one rule.
#[derive(Debug)]
struct RefusalGroup {
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
    pub(super) fn find_among_few(&mut self, unit: UnitNo) -> Option<Option<MachineNo>> {
        let number = self.units.slots[unit].class;
        let class = &self.classes.slots[number];
        if !class.requirements.spread.is_empty() {
            return None; // Where the others are has to be counted.
        }
        let few = self.filters.few_candidates(class.filter, &self.machines)?;
        let ranks = self.policy.ranking == Ranking::Spread;
        let ranked = if ranks { class.template } else { PatternNo::NONE };
        let context = self.rank_context();
        let order = |machine: &MachineNo| {
            let facts = self.machines.slots[*machine].machine();
            (
                Reverse(preference_score(&class.requirements.prefer, facts)),
                context.key(ranked, *machine),
            )
        };
        let taking = few.iter().copied().filter(|machine| self.denial(unit, *machine).is_none());
        let found = taking.min_by_key(order);
        if found.is_none() {
            let none_takes = !few.iter().any(|machine| context.takes(class.filter, *machine));
            let class = &mut self.classes.slots[number];
            class.refused = Some(self.orders.lifts.end());
            class.filtered_out = none_takes.then_some(self.orders.facts_version);
        }
        Some(found)
    }

    /// How all machines answer a unit that is alone and replaces nobody, if only few can take it.
    pub(super) fn count_refusals_of_few(&mut self, unit: UnitNo) -> Option<RefusalSummary<Rank>> {
        let class = self.units.slots[unit].class;
        let few = self.few_candidates_of(class)?;
        let mut groups = self.groups_outside(class, &few);
        for machine in few {
            if self.machines.slots[machine].machine().cordoned {
                continue; // It is counted.
            }
            if let Some(denial) = self.denial(unit, machine) {
                let (first, nearest) = (machine, machine);
                groups.push(RefusalGroup { rank: denial.rank(), count: 1, first, nearest });
            }
        }
        Some(self.merge_groups(groups))
    }

    /// The machines that are present and that the units of a class can go to, if they are few.
    fn few_candidates_of(&self, class: ClassNo) -> Option<Vec<MachineNo>> {
        let class = &self.classes.slots[class];
        match class.pin.some() {
            _ if !class.replaces.is_empty() => None,
            Some(pin) => Some(Vec::from_iter(self.machines.slots[pin].is_present().then_some(pin))),
            None => self.filters.few_candidates(class.filter, &self.machines),
        }
    }

    /// The least loaded machine is the nearest, then the first by its ID.
    fn nearness(&self, machine: MachineNo) -> (u32, u32) {
        let slot = &self.machines.slots[machine];
        (slot.occupancy.load(), slot.label)
    }

    /// What the machines say where the units of a class cannot go.
    fn groups_outside(&mut self, class: ClassNo, few: &[MachineNo]) -> Vec<RefusalGroup> {
        let cordoned = |machine: &&MachineNo| self.machines.slots[**machine].machine().cordoned;
        let asked = few.len() - few.iter().filter(cordoned).count();
        let pinned = self.classes.slots[class].pin.some().is_some();
        let rule = if pinned { Rule::MachineId } else { Rule::MachineMetadata };
        let counts = self.filter_refusal_counts();
        let part = |answer: Rule, rule: Rule, few: &[MachineNo], asked: usize| {
            let (first, nearest) = counts.first_and_nearest(answer, few)?;
            Some(RefusalGroup {
                rank: (rule, 0),
                count: counts.count(answer) - asked,
                first,
                nearest,
            })
        };
        let cordoned = part(Rule::Cordon, Rule::Cordon, &[], 0);
        cordoned.into_iter().chain(part(FILTERED, rule, few, asked)).collect()
    }

    /// What some machines answer in all.
    fn merge_groups(&self, mut groups: Vec<RefusalGroup>) -> RefusalSummary<Rank> {
        let mut summary = RefusalSummary::new();
        groups.sort_by_key(|part| self.machines.slots[part.first].label);
        for part in &groups {
            let count = u32::try_from(part.count).unwrap_or(u32::MAX);
            summary.tallies.entry(part.rank).or_insert((0, part.first)).0 += count;
        }
        let nearest = groups.iter().max_by_key(|p| (p.rank, Reverse(self.nearness(p.nearest))));
        summary.nearest = nearest.map(|part| {
            let (load, _) = self.nearness(part.nearest);
            (part.rank, load, part.nearest)
        });
        summary
    }
}
