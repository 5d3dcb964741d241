//! Seats: putting units on machines and taking them off, with a log by which all can be taken back.

use std::sync::Arc;

use fleet_core::Refusal;

use super::lanes::Ground;
use super::units::Kind;
use super::{Index, MachineNo, UnitNo, limit};
use crate::policy::Ranking;

/// A step on the way to a plan.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) unit: UnitNo,
    pub(crate) machine: MachineNo,
    /// Why the unit left the machine; `None` if it came.
    pub(crate) left: Option<Why>,
}

/// Why a unit left a machine.
#[derive(Debug)]
pub(crate) enum Why {
    /// A rule refuses it there.
    Refused(Arc<Refusal>),
    /// Another unit replaces it.
    ReplacedBy(UnitNo),
    /// A unit that it must be beside leaves.
    Follows(UnitNo),
    /// It is global, and fitted in anew.
    Refitted,
    /// The machine is emptied.
    Drained,
    /// It is moved for the sake of balance.
    Rebalanced,
}

/// A point in the log to which all can be taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

impl Mark {
    /// The beginning of the plan.
    pub(crate) const START: Self = Self(0);
}

/// Where something began that may be taken back.
#[derive(Debug)]
pub(crate) struct Trial {
    mark: Mark,
    lifts: u64,
    ranks: u64,
    stirs: u64,
    uses: u64,
}

impl Index {
    /// Puts a unit on a machine.
    pub(crate) fn seat(&mut self, unit: UnitNo, machine: MachineNo) {
        self.attach(unit, machine);
        self.log.push(Event { unit, machine, left: None });
    }

    /// Takes a unit off a machine.
    pub(crate) fn unseat(&mut self, unit: UnitNo, machine: MachineNo, why: Why) {
        self.detach(unit, machine);
        self.log.push(Event { unit, machine, left: Some(why) });
    }

    /// The present point in the log.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.log.len())
    }

    /// Takes back all that was done since a mark.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        while self.log.len() > mark.0 {
            let Some(Event { unit, machine, left }) = self.log.pop() else { return };
            match left {
                None => self.detach(unit, machine),
                Some(_) => self.attach(unit, machine),
            }
        }
    }

    /// What was done since a mark.
    pub(crate) fn since(&self, mark: Mark) -> &[Event] {
        &self.log[mark.0..]
    }

    /// Whether a unit, global or not, is on a machine.
    pub(crate) fn is_on(&self, unit: UnitNo, machine: MachineNo) -> bool {
        let slot = &self.units.slots[unit];
        match slot.kind {
            Kind::Global => self.machines.slots[machine].desk.globals.contains(&unit),
            _ => slot.seat == machine,
        }
    }

    /// Puts a unit on a desk, and writes nothing down.
    pub(super) fn attach(&mut self, unit: UnitNo, machine: MachineNo) {
        let slot = &mut self.units.slots[unit];
        let tied = !slot.peers().is_empty();
        let desk = &mut self.machines.slots[machine].desk;
        if slot.kind == Kind::Global {
            desk.globals.push(unit);
        } else {
            slot.seat = machine;
            slot.at = u32::try_from(desk.units.len()).unwrap_or(u32::MAX);
            desk.units.push(unit);
        }
        let class = &self.classes.slots[slot.class];
        let was_uneasy = desk.is_uneasy();
        desk.count_in(class, tied);
        if desk.is_uneasy() && !was_uneasy {
            self.uneasy.insert(machine);
        }
        for pattern in &class.matched {
            self.patterns.slots[*pattern].seated += 1;
        }
        self.counted(unit, machine, 1);
        self.stirred(machine);
        if self.policy.ranking == Ranking::BinPacking {
            self.ranks_better(machine);
        }
    }

    /// Takes a unit off a desk, and writes nothing down.
    pub(super) fn detach(&mut self, unit: UnitNo, machine: MachineNo) {
        let slot = &mut self.units.slots[unit];
        let (at, class) = (slot.at as usize, slot.class);
        let tied = !slot.peers().is_empty();
        let desk = &mut self.machines.slots[machine].desk;
        if slot.kind == Kind::Global {
            desk.globals.retain(|other| *other != unit);
        } else {
            slot.seat = MachineNo::NONE;
            desk.units.swap_remove(at);
            if let Some(moved) = desk.units.get(at) {
                self.units.slots[*moved].at = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
        let class = &self.classes.slots[class];
        let mut desk = std::mem::take(&mut self.machines.slots[machine].desk);
        let there = std::mem::take(&mut desk.units);
        let was_uneasy = desk.is_uneasy();
        desk.count_out(class, tied, || self.smallest_limit(&there, class.template));
        desk.units = there;
        if was_uneasy && !desk.is_uneasy() {
            self.uneasy.remove(&machine);
        }
        self.stuck.remove(&unit);
        self.machines.slots[machine].desk = desk;
        for pattern in &class.matched {
            self.patterns.slots[*pattern].seated -= 1;
        }
        self.counted(unit, machine, -1);
        self.lifted(machine);
    }

    /// The smallest limit that instances of a template among some units set.
    pub(crate) fn smallest_limit(&self, units: &[UnitNo], template: super::PatternNo) -> u32 {
        let classes = units.iter().map(|unit| self.class(*unit));
        let limits = classes.filter(|class| class.template == template);
        limits.map(|class| limit(&class.requirements)).min().unwrap_or(super::NO_LIMIT)
    }

    /// Tells the lanes that count a template's instances.
    fn counted(&mut self, unit: UnitNo, machine: MachineNo, change: i64) {
        let class = &self.classes.slots[self.units.slots[unit].class];
        let Some(template) = class.template.some() else { return };
        for lane in &self.patterns.slots[template].lanes {
            self.lanes.slots[*lane].count(template, machine, change);
        }
    }

    /// A machine may take units now that it refused, and its rank may be better.
    pub(super) fn lifted(&mut self, machine: MachineNo) {
        self.lanes.lifts.push(machine, self.machines.slots.len());
        self.ranks_better(machine);
        self.stirred(machine);
    }

    /// A machine may give another answer now, for better or worse.
    fn stirred(&mut self, machine: MachineNo) {
        self.censuses.stir(machine, self.machines.slots.len());
    }

    fn ranks_better(&mut self, machine: MachineNo) {
        self.lanes.ranks.push(machine, self.machines.slots.len());
    }

    /// Begins something that may be taken back as if it had never been.
    pub(crate) fn begin(&self) -> Trial {
        let lanes = &self.lanes;
        let (lifts, ranks, uses) = (lanes.lifts.end(), lanes.ranks.end(), lanes.uses);
        Trial { mark: self.mark(), lifts, ranks, stirs: self.censuses.end(), uses }
    }

    /// Takes back all that was done since a trial began.
    pub(crate) fn take_back(&mut self, trial: &Trial) {
        self.undo_to(trial.mark);
        self.lanes.lifts.take_back(trial.lifts);
        self.censuses.take_back(trial.stirs);
        if self.lanes.uses == trial.uses {
            self.lanes.ranks.take_back(trial.ranks);
        }
    }

    /// What the order of machines depends on.
    pub(crate) fn ground(&self) -> Ground<'_> {
        let (machines, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        Ground { machines, filters, patterns, ranking: self.policy.ranking }
    }
}
