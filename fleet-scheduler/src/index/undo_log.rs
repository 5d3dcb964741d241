//! The undo log: assigns units to machines, removes them from machines, and records each change so
//! that it can be rolled back.

use std::sync::Arc;

use fleet_core::Refusal;

use super::ranking::RankContext;
use super::units::UnitKind;
use super::{Cluster, MachineNo, UnitNo, limit};
use crate::policy::Ranking;

/// An assignment or its opposite during planning.
#[derive(Debug)]
pub(crate) struct UndoEntry {
    pub(crate) unit: UnitNo,
    pub(crate) machine: MachineNo,
    /// The reason for which the unit left the machine; `None` if it came.
    pub(crate) left: Option<LeaveReason>,
}

/// Reason for which a unit left a machine.
#[derive(Debug)]
pub(crate) enum LeaveReason {
    /// A rule refuses it there.
    Refused(Arc<Refusal>),
    /// Another unit replaces it.
    ReplacedBy(UnitNo),
    /// A unit that its `MachineOf=` requires leaves.
    Follows(UnitNo),
    /// It is global, and the global units were recomputed.
    Refitted,
    /// The machine is drained.
    Drained,
    /// It is moved for balance.
    Rebalanced,
}

/// A position in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPosition(usize);

impl LogPosition {
    /// The start of the plan.
    pub(crate) const START: Self = Self(0);
}

/// A state to which planning can return.
#[derive(Debug)]
pub(crate) struct Savepoint {
    log_position: LogPosition,
    /// Position in the log of the same name of the machine orders, like `ranks`.
    loosened_machines: u64,
    ranks: u64,
    /// Position in the change log of the refusal cache.
    refusals: u64,
    refreshes: u64,
}

impl Cluster {
    /// Assigns a unit to a machine.
    pub(crate) fn assign(&mut self, unit: UnitNo, machine: MachineNo) {
        self.attach(unit, machine);
        self.log.push(UndoEntry { unit, machine, left: None });
    }

    /// Takes a unit off a machine.
    pub(crate) fn unassign(&mut self, unit: UnitNo, machine: MachineNo, reason: LeaveReason) {
        self.detach(unit, machine);
        self.log.push(UndoEntry { unit, machine, left: Some(reason) });
    }

    /// Returns the current position in the log.
    pub(crate) fn log_position(&self) -> LogPosition {
        LogPosition(self.log.len())
    }

    /// Undoes everything after a position.
    pub(crate) fn undo_to(&mut self, start: LogPosition) {
        while self.log.len() > start.0 {
            let Some(UndoEntry { unit, machine, left }) = self.log.pop() else { return };
            match left {
                None => self.detach(unit, machine),
                Some(_) => self.attach(unit, machine),
            }
        }
    }

    /// Returns the entries after a position.
    pub(crate) fn since(&self, start: LogPosition) -> &[UndoEntry] {
        &self.log[start.0..]
    }

    /// Returns whether a unit, global or not, is on a machine.
    pub(crate) fn is_on(&self, unit: UnitNo, machine: MachineNo) -> bool {
        let slot = &self.units.slots[unit];
        match slot.kind {
            UnitKind::Global => self.machines.slots[machine].occupancy.globals.contains(&unit),
            _ => slot.machine == machine,
        }
    }

    /// Adds a unit to an occupancy without logging it.
    pub(super) fn attach(&mut self, unit: UnitNo, machine: MachineNo) {
        let slot = &mut self.units.slots[unit];
        let tied = !slot.peers().is_empty();
        let occupancy = &mut self.machines.slots[machine].occupancy;
        if slot.kind == UnitKind::Global {
            occupancy.globals.push(unit);
        } else {
            self.patterns.set_follower_placed(unit, slot.peers(), true);
            slot.machine = machine;
            slot.at = u32::try_from(occupancy.units.len()).unwrap_or(u32::MAX);
            occupancy.units.push(unit);
        }
        let class = &self.classes.slots[slot.class];
        let could_replace = occupancy.may_replace();
        occupancy.add(class, tied);
        if occupancy.may_replace() && !could_replace {
            self.replacement_machines.insert(machine);
        }
        for pattern in &class.matched {
            self.patterns.slots[*pattern].assigned += 1;
        }
        self.update_instance_counts(unit, machine, 1);
        self.note_change(machine);
        if self.policy.ranking == Ranking::BinPacking {
            self.note_better_rank(machine);
        }
    }

    /// Removes a unit from an occupancy without logging it.
    pub(super) fn detach(&mut self, unit: UnitNo, machine: MachineNo) {
        let slot = &mut self.units.slots[unit];
        let (at, class) = (slot.at as usize, slot.class);
        let tied = !slot.peers().is_empty();
        let occupancy = &mut self.machines.slots[machine].occupancy;
        if slot.kind == UnitKind::Global {
            occupancy.globals.retain(|other| *other != unit);
        } else {
            self.patterns.set_follower_placed(unit, slot.peers(), false);
            slot.machine = MachineNo::NONE;
            occupancy.units.swap_remove(at);
            if let Some(moved) = occupancy.units.get(at) {
                self.units.slots[*moved].at = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
        let class = &self.classes.slots[class];
        let mut occupancy = std::mem::take(&mut self.machines.slots[machine].occupancy);
        let there = std::mem::take(&mut occupancy.units);
        let could_replace = occupancy.may_replace();
        occupancy.remove(class, tied, || self.smallest_limit(&there, class.template));
        occupancy.units = there;
        if could_replace && !occupancy.may_replace() {
            self.replacement_machines.remove(&machine);
        }
        self.immovable.remove(&unit);
        self.machines.slots[machine].occupancy = occupancy;
        for pattern in &class.matched {
            self.patterns.slots[*pattern].assigned -= 1;
        }
        self.update_instance_counts(unit, machine, -1);
        self.note_loosened(machine);
    }

    /// Returns the smallest `MaxPerMachine=` limit of those units that are instances of a template.
    pub(crate) fn smallest_limit(&self, units: &[UnitNo], template: super::PatternNo) -> u32 {
        let classes = units.iter().map(|unit| self.class(*unit));
        let limits = classes.filter(|class| class.template == template);
        limits.map(|class| limit(&class.requirements)).min().unwrap_or(super::NO_LIMIT)
    }

    /// Updates the machine orders that count a template's instances.
    fn update_instance_counts(&mut self, unit: UnitNo, machine: MachineNo, change: i64) {
        let class = &self.classes.slots[self.units.slots[unit].class];
        let Some(template) = class.template.some() else { return };
        for order in &self.patterns.slots[template].orders {
            self.orders.slots[*order].count(template, machine, change);
        }
    }

    /// Records that a machine may now accept units that it refused before, and may rank better.
    pub(super) fn note_loosened(&mut self, machine: MachineNo) {
        self.orders.loosened_machines.push(machine, self.machines.slots.len());
        self.note_better_rank(machine);
        self.note_change(machine);
    }

    /// Records that a machine may give another verdict.
    fn note_change(&mut self, machine: MachineNo) {
        self.refusal_cache.note_change(machine, self.machines.slots.len());
    }

    fn note_better_rank(&mut self, machine: MachineNo) {
        self.orders.ranks.push(machine, self.machines.slots.len());
    }

    /// Returns a savepoint of the current state.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let orders = &self.orders;
        let (loosened_machines, ranks, refreshes) =
            (orders.loosened_machines.end(), orders.ranks.end(), orders.refreshes);
        Savepoint {
            log_position: self.log_position(),
            loosened_machines,
            ranks,
            refusals: self.refusal_cache.end(),
            refreshes,
        }
    }

    /// Undoes everything since a savepoint.
    pub(crate) fn roll_back(&mut self, savepoint: &Savepoint) {
        self.undo_to(savepoint.log_position);
        self.orders.loosened_machines.truncate_to(savepoint.loosened_machines);
        self.refusal_cache.truncate_to(savepoint.refusals);
        if self.orders.refreshes == savepoint.refreshes {
            self.orders.ranks.truncate_to(savepoint.ranks);
        }
    }

    /// Returns the inputs of the machine order.
    pub(crate) fn rank_context(&self) -> RankContext<'_> {
        let (machines, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        RankContext { machines, filters, patterns, ranking: self.policy.ranking }
    }
}
