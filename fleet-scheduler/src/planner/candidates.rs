//! Placement of units that only few machines can accept, because of `MachineID=` or the required
//! metadata. Only these machines are checked, because it is already known why the others refuse.

use std::cmp::Reverse;

use fleet_core::Rule;

use crate::index::{
    ClassNo, FILTERED, Index, MachineNo, PatternNo, RefusalSummary, UnitNo, preference_score,
};
use crate::policy::Ranking;
use crate::rules::Rank;

/// Some machines that refuse by the same rule.
#[derive(Debug)]
struct RefusalGroup {
    rank: Rank,
    count: usize,
    /// The first of them by ID.
    first: MachineNo,
    /// The least loaded of them, then the first by ID.
    nearest: MachineNo,
}

impl Index {
    /// Searches the candidates of a unit without a group, if its filter admits only few machines.
    /// Returns the best machine that accepts the unit, if any. These units need no machine order.
    pub(super) fn find_among_few(&mut self, unit: UnitNo) -> Option<Option<MachineNo>> {
        let number = self.units.slots[unit].class;
        let class = &self.classes.slots[number];
        if !class.requirements.spread.is_empty() {
            return None; // The spread of the other instances would have to be counted.
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

    /// Summarizes the refusals of a unit that has no group and replaces no other unit, if only few
    /// machines can accept this unit.
    pub(super) fn count_refusals_of_few(&mut self, unit: UnitNo) -> Option<RefusalSummary<Rank>> {
        let class = self.units.slots[unit].class;
        let few = self.few_candidates_of(class)?;
        let mut groups = self.groups_outside(class, &few);
        for machine in few {
            if self.machines.slots[machine].machine().cordoned {
                continue; // Cordoned machines are counted already.
            }
            if let Some(denial) = self.denial(unit, machine) {
                let (first, nearest) = (machine, machine);
                groups.push(RefusalGroup { rank: denial.rank(), count: 1, first, nearest });
            }
        }
        Some(self.merge_groups(groups))
    }

    /// Returns the present machines that can accept the units of a class. Returns `None` if there
    /// are many.
    fn few_candidates_of(&self, class: ClassNo) -> Option<Vec<MachineNo>> {
        let class = &self.classes.slots[class];
        match class.pin.some() {
            _ if !class.replaces.is_empty() => None,
            Some(pin) => Some(Vec::from_iter(self.machines.slots[pin].is_present().then_some(pin))),
            None => self.filters.few_candidates(class.filter, &self.machines),
        }
    }

    /// Returns a key for the choice of the nearest of several refusing machines. The key is lowest
    /// for the least loaded machine and, among equally loaded machines, for the one with the lowest
    /// ID.
    fn nearness(&self, machine: MachineNo) -> (u32, u32) {
        let slot = &self.machines.slots[machine];
        (slot.occupancy.load(), slot.label)
    }

    /// Returns the refusals of the machines that are not in `few`. These machines can never accept
    /// the units of the class.
    fn groups_outside(&mut self, class: ClassNo, few: &[MachineNo]) -> Vec<RefusalGroup> {
        let cordoned = |machine: &&MachineNo| self.machines.slots[**machine].machine().cordoned;
        let checked = few.len() - few.iter().filter(cordoned).count();
        let pinned = self.classes.slots[class].pin.some().is_some();
        let rule = if pinned { Rule::MachineId } else { Rule::MachineMetadata };
        let counts = self.filter_refusal_counts();
        let part = |answer: Rule, rule: Rule, few: &[MachineNo], checked: usize| {
            let (first, nearest) = counts.first_and_nearest(answer, few)?;
            Some(RefusalGroup {
                rank: (rule, 0),
                count: counts.count(answer) - checked,
                first,
                nearest,
            })
        };
        let cordoned = part(Rule::Cordon, Rule::Cordon, &[], 0);
        cordoned.into_iter().chain(part(FILTERED, rule, few, checked)).collect()
    }

    /// Merges groups of refusing machines into a summary.
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
