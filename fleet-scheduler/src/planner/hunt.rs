//! Hunting: the first machine in the order of a unit that takes it.

use std::cmp::Reverse;

use super::place::PATIENCE;
use crate::index::{Ground, Index, LaneNo, MachineNo, UnitNo, View};
use crate::policy::Candidate;

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
            self.classes.slots[number].refused = Some(self.lanes.lifts.end());
            return Some(None);
        }
        let lane = self.lane(unit);
        let (lanes, ground) = self.with_ground();
        lanes.catch_up(lane, ground);
        let lane = &lanes.slots[lane];
        Some(taking.into_iter().min_by_key(|machine| lane.order_of(*machine, ground)))
    }

    /// Tries the machines in the order of a unit's class, and remembers for the class what it
    /// learns.
    fn hunt_for_class(&mut self, unit: UnitNo) -> Option<MachineNo> {
        let number = self.units.slots[unit].class;
        let own = self.classes.slots[number].own;
        let shared = self.lane(unit);
        let lane = own.some().unwrap_or(shared);
        let mut skipped = Vec::new();
        let found = self.first_taking(lane, &mut skipped, |index, machine| {
            index.denial(unit, machine).is_none()
        });
        let class = &mut self.classes.slots[number];
        if found.is_none() {
            class.refused = Some(self.lanes.lifts.end());
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
        let found = self.first_taking(lane, &mut skipped, takes);
        self.put_back(lane, &skipped);
        found
    }

    fn first_taking(
        &mut self,
        lane: LaneNo,
        skipped: &mut Vec<MachineNo>,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        let (lanes, ground) = self.with_ground();
        lanes.catch_up(lane, ground);
        loop {
            let (lanes, ground) = self.with_ground();
            let machine = lanes.slots[lane].first(ground)?;
            if skipped.len() >= PATIENCE && !lanes.slots[lane].is_private() {
                let rest = lanes.slots[lane].all(ground);
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

    /// All machines that pass the filter of a unit, in its order.
    pub(super) fn all_in_order(&mut self, unit: UnitNo) -> Vec<MachineNo> {
        let lane = self.lane(unit);
        let (lanes, ground) = self.with_ground();
        lanes.catch_up(lane, ground);
        let (lane, ground) = (&self.lanes.slots[lane], self.ground());
        if self.policy.scores.is_empty() {
            return lane.all(ground);
        }
        let mut all: Vec<_> = lane
            .all(ground)
            .into_iter()
            .map(|machine| {
                let (score, rank) = lane.order_of(machine, ground);
                (Reverse(self.own_score(unit, machine).saturating_sub(score)), rank, machine)
            })
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, machine)| machine).collect()
    }

    /// What the embedder's scores say of a machine.
    fn own_score(&self, unit: UnitNo, machine: MachineNo) -> i64 {
        let requirements = &self.class(unit).requirements;
        let candidate = Candidate { name: self.units.name(unit), requirements };
        let machine = self.machines.slots[machine].machine();
        let view = View::new(self);
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
        let ranked = self.policy.ranking == crate::policy::Ranking::Spread;
        let spread = if class.template.some().is_some() { &wants.spread[..] } else { &[] };
        let counted = ranked || !spread.is_empty();
        let template = if counted { class.template } else { Default::default() };
        let lane = self.lanes.share(class.filter, &wants.prefer, spread, template);
        if let Some(template) = self.lanes.slots[lane].counted() {
            let lanes = &mut self.patterns.slots[template].lanes;
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        self.classes.slots[number].lane = lane;
        lane
    }

    fn with_ground(&mut self) -> (&mut crate::index::Lanes, Ground<'_>) {
        let (machines, filters) = (&self.machines, &self.filters);
        let ground = Ground { machines, filters, ranking: self.policy.ranking };
        (&mut self.lanes, ground)
    }
}
