//! The board: who is where while a plan is made. Every change is logged, so a trial can be undone
//! and the steps can be told afterwards.

use std::collections::{BTreeMap, BTreeSet};

use crate::rank::Loads;
use crate::roster::{Kind, MachineNo, PatternNo, Roster, UnitNo};
use crate::rules::Denial;

/// The planning copy of the cluster.
#[derive(Debug)]
pub(crate) struct Board<'a> {
    roster: &'a Roster<'a>,
    seats: Vec<Option<MachineNo>>,
    desks: Vec<Desk>,
    loads: Loads,
    log: Vec<Change>,
}

/// A point in the log to which a trial can be undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

/// One change of the board.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// A unit came to a machine.
    Came { unit: UnitNo, machine: MachineNo },
    /// A unit left a machine.
    Left { unit: UnitNo, machine: MachineNo, why: Why },
}

/// Why a unit left a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    /// The machine no longer passes a rule.
    Denied(Denial),
    /// Another unit replaces it.
    ReplacedBy(UnitNo),
    /// A unit that it must be beside leaves.
    Follows(UnitNo),
    /// A global unit is fitted in again after something else has left.
    Refitted,
}

/// One machine: who is there, and which patterns matter there.
#[derive(Debug, Default)]
struct Desk {
    units: BTreeSet<UnitNo>,
    /// Who is there that a pattern matches.
    matching: ByPattern,
    /// Who is there with a pattern in its `Conflicts=`.
    keepers: ByPattern,
    /// Who is there with a pattern in its `Replaces=`.
    replacers: ByPattern,
}

#[derive(Debug, Default)]
struct ByPattern(BTreeMap<PatternNo, BTreeSet<UnitNo>>);

impl<'a> Board<'a> {
    /// An empty board.
    pub(crate) fn new(roster: &'a Roster<'a>) -> Self {
        let machines = roster.machines().len();
        Self {
            roster,
            seats: roster.units().map(|_| None).collect(),
            desks: (0..machines).map(|_| Desk::default()).collect(),
            loads: Loads::new(roster.machines()),
            log: Vec::new(),
        }
    }

    pub(crate) fn roster(&self) -> &'a Roster<'a> {
        self.roster
    }

    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Where a unit is that is not global.
    pub(crate) fn seat_of(&self, unit: UnitNo) -> Option<MachineNo> {
        self.seats[unit.at()]
    }

    /// Whether a unit, global or not, is on a machine.
    pub(crate) fn is_on(&self, unit: UnitNo, machine: MachineNo) -> bool {
        self.desks[machine.at()].units.contains(&unit)
    }

    /// Who is on a machine, in order.
    pub(crate) fn on(&self, machine: MachineNo) -> impl Iterator<Item = UnitNo> {
        self.desks[machine.at()].units.iter().copied()
    }

    /// Who is on a machine whose name the pattern matches, in order.
    pub(crate) fn matching(
        &self,
        machine: MachineNo,
        pattern: PatternNo,
    ) -> impl Iterator<Item = UnitNo> {
        self.desks[machine.at()].matching.get(pattern)
    }

    /// Who is on a machine and has the pattern in its `Conflicts=`, in order.
    pub(crate) fn keepers(
        &self,
        machine: MachineNo,
        pattern: PatternNo,
    ) -> impl Iterator<Item = UnitNo> {
        self.desks[machine.at()].keepers.get(pattern)
    }

    /// Who is on a machine and has the pattern in its `Replaces=`, in order.
    pub(crate) fn replacers(
        &self,
        machine: MachineNo,
        pattern: PatternNo,
    ) -> impl Iterator<Item = UnitNo> {
        self.desks[machine.at()].replacers.get(pattern)
    }

    /// Whether anybody on the machine keeps others away.
    pub(crate) fn has_keepers(&self, machine: MachineNo) -> bool {
        !self.desks[machine.at()].keepers.0.is_empty()
    }

    /// Puts a unit on a machine.
    pub(crate) fn seat(&mut self, unit: UnitNo, machine: MachineNo) {
        self.add(unit, machine);
        self.log.push(Change::Came { unit, machine });
    }

    /// Takes a unit off a machine.
    pub(crate) fn unseat(&mut self, unit: UnitNo, machine: MachineNo, why: Why) {
        self.remove(unit, machine);
        self.log.push(Change::Left { unit, machine, why });
    }

    /// The present point in the log.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.log.len())
    }

    /// Takes back all that was done since a mark.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        while self.log.len() > mark.0 {
            match self.log.pop().expect("the log is longer than the mark") {
                Change::Came { unit, machine } => self.remove(unit, machine),
                Change::Left { unit, machine, .. } => self.add(unit, machine),
            }
        }
    }

    /// What was done, and not undone, since a mark.
    pub(crate) fn since(&self, mark: Mark) -> &[Change] {
        &self.log[mark.0..]
    }

    /// All that was done and not undone.
    pub(crate) fn log(&self) -> &[Change] {
        &self.log
    }

    fn add(&mut self, unit: UnitNo, machine: MachineNo) {
        let entry = self.roster.unit(unit);
        if entry.kind != Kind::Global {
            self.seats[unit.at()] = Some(machine);
        }
        let desk = &mut self.desks[machine.at()];
        desk.units.insert(unit);
        desk.matching.insert(&entry.matched_by, unit);
        desk.keepers.insert(&entry.conflicts, unit);
        desk.replacers.insert(&entry.replaces, unit);
        self.loads.raise(machine);
    }

    fn remove(&mut self, unit: UnitNo, machine: MachineNo) {
        let entry = self.roster.unit(unit);
        if entry.kind != Kind::Global {
            self.seats[unit.at()] = None;
        }
        let desk = &mut self.desks[machine.at()];
        desk.units.remove(&unit);
        desk.matching.remove(&entry.matched_by, unit);
        desk.keepers.remove(&entry.conflicts, unit);
        desk.replacers.remove(&entry.replaces, unit);
        self.loads.lower(machine);
    }
}

impl ByPattern {
    fn get(&self, pattern: PatternNo) -> impl Iterator<Item = UnitNo> {
        self.0.get(&pattern).into_iter().flatten().copied()
    }

    fn insert(&mut self, patterns: &[PatternNo], unit: UnitNo) {
        for pattern in patterns {
            self.0.entry(*pattern).or_default().insert(unit);
        }
    }

    fn remove(&mut self, patterns: &[PatternNo], unit: UnitNo) {
        for pattern in patterns {
            let Some(units) = self.0.get_mut(pattern) else {
                continue;
            };
            units.remove(&unit);
            if units.is_empty() {
                self.0.remove(pattern);
            }
        }
    }
}
