//! Hunting: the first machine in the order of a unit that takes it.

use std::cmp::Reverse;

use super::place::PATIENCE;
use crate::index::{Ground, Index, LaneNo, MachineNo, PatternNo, Seen, UnitNo};
use crate::policy::{Candidate, Ranking};
use crate::view::View;

impl Index {
    /// The first machine that takes a unit that is alone and replaces nobody.
    pub(super) fn find_machine(&mut self, unit: UnitNo) -> Option<MachineNo> {
        if let Some(pin) = self.class(unit).pin.some() {
            let present = self.machines.slots[pin].is_present();
            return (present && self.denial(unit, pin).is_none()).then_some(pin);
        }
        if !self.policy.scores.is_empty() {
            let all = self.all_in_order(unit);
            return all.into_iter().find(|machine| self.denial(unit, *machine).is_none());
        }
        if !self.policy.rules.is_empty() {
            return self.hunt(unit, |index, machine| index.denial(unit, machine).is_none());
        }
        if let Some(found) = self.among_few(unit) {
            return found;
        }
        if let Some(found) = self.among_lifted(unit) {
            return found;
        }
        self.hunt_for_class(unit)
    }

    /// If all machines refuse a unit's class but a few of which this is not known: the first one
    /// of these that takes the unit, if any does.
    fn among_lifted(&mut self, unit: UnitNo) -> Option<Option<MachineNo>> {
        let number = self.units.slots[unit].class;
        let lifted = self.lanes.lifts.since(self.classes.slots[number].refused?)?;
        if lifted.len() > PATIENCE {
            return None;
        }
        let is_present = |m: &MachineNo| self.machines.slots[*m].is_present();
        let takes = |machine: &MachineNo| self.denial(unit, *machine).is_none();
        let taking = lifted.iter().copied().filter(is_present).filter(takes);
        let taking: Vec<MachineNo> = taking.collect();
        if taking.is_empty() {
            let (filter, ground) = (self.classes.slots[number].filter, self.ground());
            let still_hopeless = lifted.iter().all(|machine| !ground.takes(filter, *machine));
            let class = &mut self.classes.slots[number];
            class.refused = Some(self.lanes.lifts.end());
            class.hopeless = class.hopeless.filter(|_| still_hopeless).map(|_| self.lanes.facts);
            return Some(None);
        }
        let (lane, template) = self.catch_up_of(unit);
        let (lane, ground) = (&self.lanes.slots[lane], self.ground());
        Some(taking.into_iter().min_by_key(|machine| lane.order_of(*machine, template, ground)))
    }

    /// Tries the machines in the order of a unit's class, and remembers for the class what it
    /// learns.
    fn hunt_for_class(&mut self, unit: UnitNo) -> Option<MachineNo> {
        let number = self.units.slots[unit].class;
        let own = self.classes.slots[number].own;
        let shared = self.lane(unit);
        let lane = own.some().unwrap_or(shared);
        let mut skipped = Vec::new();
        let template = self.classes.slots[number].template;
        let found = self.first_taking((lane, template), &mut skipped, |index, machine| {
            index.denial(unit, machine).is_none()
        });
        let class = &mut self.classes.slots[number];
        if found.is_none() {
            class.refused = Some(self.lanes.lifts.end());
            // A lane leaves out whom nothing can lift but a change of the machine.
            let none_takes = skipped.is_empty() && !self.lanes.slots[lane].is_private();
            class.hopeless = none_takes.then_some(self.lanes.facts);
        } else if own == LaneNo::NONE {
            class.skips += skipped.len();
            if class.skips > self.lanes.slots[shared].len() + 2 * PATIENCE {
                class.own = self.lanes.own(shared).unwrap_or_default();
            }
        }
        if !self.lanes.slots[lane].is_private() {
            self.put_back(lane, &skipped);
        }
        found
    }

    /// The first machine in the order of a unit of which something is true; in the shared lane.
    pub(super) fn hunt(
        &mut self,
        unit: UnitNo,
        takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        let lane = self.lane(unit);
        let mut skipped = Vec::new();
        let template = self.class(unit).template;
        let found = self.first_taking((lane, template), &mut skipped, takes);
        self.put_back(lane, &skipped);
        found
    }

    /// The first machine of a lane, for the instances of a template, of which something is true.
    /// Those before it are taken out of the lane.
    fn first_taking(
        &mut self,
        (lane, template): (LaneNo, PatternNo),
        skipped: &mut Vec<MachineNo>,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        self.catch_up(lane, template);
        loop {
            let (lanes, ground) = self.with_ground();
            let machine = lanes.slots[lane].first(template, ground)?;
            if skipped.len() >= PATIENCE && !lanes.slots[lane].is_private() {
                let rest = lanes.slots[lane].all(template, ground);
                return rest.into_iter().find(|machine| takes(self, *machine));
            }
            if takes(self, machine) {
                return Some(machine);
            }
            self.lanes.slots[lane].take_out(machine);
            skipped.push(machine);
        }
    }

    fn put_back(&mut self, lane: LaneNo, skipped: &[MachineNo]) {
        let (lanes, ground) = self.with_ground();
        skipped.iter().for_each(|machine| lanes.slots[lane].put_in(*machine, ground));
    }

    /// The first of [all machines in the order of a unit](Self::all_in_order), where that is known
    /// without asking all of them.
    pub(super) fn top_machine(&mut self, unit: UnitNo) -> Option<MachineNo> {
        if !self.policy.scores.is_empty() {
            return None;
        }
        let (lane, template) = self.catch_up_of(unit);
        let (lanes, ground) = self.with_ground();
        lanes.slots[lane].first(template, ground)
    }

    /// All machines that pass the filter of a unit, in its order.
    pub(super) fn all_in_order(&mut self, unit: UnitNo) -> Vec<MachineNo> {
        let (lane, template) = self.catch_up_of(unit);
        let (lane, ground) = (&self.lanes.slots[lane], self.ground());
        let all = lane.all(template, ground);
        if self.policy.scores.is_empty() {
            return all;
        }
        let mut all: Vec<_> = all
            .into_iter()
            .map(|machine| {
                let (score, rank) = lane.order_of(machine, template, ground);
                (Reverse(self.own_score(unit, machine).saturating_sub(score)), rank, machine)
            })
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, machine)| machine).collect()
    }

    /// What the embedder's scores say of a machine.
    pub(super) fn own_score(&self, unit: UnitNo, machine: MachineNo) -> i64 {
        let requirements = &self.class(unit).requirements;
        let candidate = Candidate { name: self.units.name(unit), requirements };
        let machine = self.machines.slots[machine].machine();
        let seen = Seen { index: self, leaving: &[] };
        let view = View::new(&seen);
        let scores = self.policy.scores.iter();
        scores.map(|score| score.score(&view, candidate, machine)).fold(0, i64::saturating_add)
    }

    /// The shared lane of a unit's class.
    fn lane(&mut self, unit: UnitNo) -> LaneNo {
        let number = self.units.slots[unit].class;
        let class = &self.classes.slots[number];
        if let Some(lane) = class.lane.some() {
            return lane;
        }
        let wants = class.requirements.clone();
        let template = class.template;
        let spread = if template == PatternNo::NONE { &[] } else { &wants.spread[..] };
        let ranks = self.policy.ranking == Ranking::Spread;
        let ranked = if ranks { template } else { PatternNo::NONE };
        let lane = self.lanes.share(class.filter, &wants.prefer, spread, ranked);
        self.classes.slots[number].lane = lane;
        lane
    }

    /// Brings the shared lane of a unit up to date. Returns it with the unit's template.
    pub(super) fn catch_up_of(&mut self, unit: UnitNo) -> (LaneNo, PatternNo) {
        let (lane, template) = (self.lane(unit), self.class(unit).template);
        self.catch_up(lane, template);
        (lane, template)
    }

    fn catch_up(&mut self, lane: LaneNo, template: PatternNo) {
        let filter = self.lanes.slots[lane].filter();
        self.filters.write_down(filter, &self.machines);
        let (lanes, ground) = self.with_ground();
        lanes.catch_up(lane, template, ground);
        if lanes.slots[lane].spreads() {
            let users = &mut self.patterns.slots[template].lanes;
            if !users.contains(&lane) {
                users.push(lane);
            }
        }
    }

    fn with_ground(&mut self) -> (&mut crate::index::Lanes, Ground<'_>) {
        let (machines, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        let ground = Ground { machines, filters, patterns, ranking: self.policy.ranking };
        (&mut self.lanes, ground)
    }
}
