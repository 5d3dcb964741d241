//! Derives the steps of a plan from the undo log, in the order in which they must be applied.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Peer, Refusal};
use fleet_unitfile::UnitName;

use crate::index::{Cluster, LeaveReason, Lookup, MachineNo, PeerRef, UndoEntry, UnitKind, UnitNo};
use crate::plan::{RemovalReason, Step, StepAction, StepCause};

/// For each unit, the log entry that records its first departure from a machine.
type FirstLeft = Lookup<UnitNo, usize>;

type Removals<'a> = BTreeMap<&'a UnitName, (UnitNo, &'a MachineId, StepCause)>;

impl Cluster {
    /// Returns the steps that lead from the recorded placements to the current assignments, and the
    /// units of these steps. `tried` lists the units that were tried and have no machine.
    ///
    /// Removals come first, by name, then moves, then placements. Moves and placements keep the
    /// order of the decisions, except that no unit comes before a peer of its `MachineOf=`.
    pub(super) fn steps(&self, tried: &[UnitNo]) -> (Vec<UnitNo>, Vec<Step>) {
        let left = self.first_left();
        let removals = self.removals(tried, &left);
        let (came, most) = (self.arrivals(!left.is_empty()), removals.len() + self.log.len());
        let (mut units, mut steps) = (Vec::with_capacity(most), Vec::with_capacity(most));
        for (name, (unit, from, cause)) in removals {
            let action = StepAction::Remove { from: from.clone() };
            units.push(unit);
            steps.push(Step { unit: name.clone(), action, cause });
        }
        let (moves, placements) = self.sort_arrivals(&came);
        for unit in moves.into_iter().chain(placements) {
            units.push(unit);
            steps.push(self.arrival(unit, &left));
        }
        (units, steps)
    }

    fn first_left(&self) -> FirstLeft {
        let mut left = FirstLeft::default();
        for (at, entry) in self.log.iter().enumerate() {
            if entry.left.is_some() && self.is_placeable(entry.unit) {
                left.get_or_insert(entry.unit, at);
            }
        }
        left
    }

    fn is_placeable(&self, unit: UnitNo) -> bool {
        self.units.slots[unit].kind == UnitKind::Single
    }

    /// Returns the single units that came to a machine and are still on one, in the order of their
    /// last arrivals.
    fn arrivals(&self, some_left: bool) -> Vec<UnitNo> {
        let came = |entry: &&UndoEntry| entry.left.is_none() && self.is_placeable(entry.unit);
        let came = self.log.iter().filter(came).map(|entry| entry.unit);
        if !some_left {
            let mut all = Vec::with_capacity(self.log.len());
            all.extend(came);
            return all;
        }
        let mut visited: Lookup<UnitNo, ()> = Lookup::default();
        let last = came.rev().filter(|unit| visited.insert(*unit, ()));
        let mut last: Vec<UnitNo> = last.collect();
        last.retain(|unit| self.units.slots[*unit].machine != MachineNo::NONE);
        last.reverse();
        last
    }

    fn removals<'a>(&'a self, tried: &[UnitNo], left: &FirstLeft) -> Removals<'a> {
        let mut removals = Removals::new();
        for (name, unit) in &self.unwanted {
            let slot = &self.units.slots[*unit];
            let reason = match slot.kind {
                _ if slot.requirements.is_some() && name.is_template() => RemovalReason::Template,
                UnitKind::Global => RemovalReason::Global,
                UnitKind::Inactive => RemovalReason::Inactive,
                _ => RemovalReason::Destroyed,
            };
            let from = self.machines.id(slot.placed);
            removals.insert(name, (*unit, from, StepCause::NotWanted(reason)));
        }
        for unit in tried {
            let slot = &self.units.slots[*unit];
            if let Some(placed) = slot.placed.some().filter(|_| slot.is_waiting()) {
                let from = self.machines.id(placed);
                removals.insert(slot.name(), (*unit, from, self.cause(*unit, left)));
            }
        }
        removals
    }

    /// Splits arrivals into moves and placements. A move that has to wait for a placement is listed
    /// among the placements. Units that have returned to the machine of their placement are left
    /// out.
    fn sort_arrivals(&self, came: &[UnitNo]) -> (Vec<UnitNo>, Vec<UnitNo>) {
        let (mut moves, mut placements) = (Vec::new(), Vec::with_capacity(came.len()));
        let mut late: Lookup<UnitNo, ()> = Lookup::default();
        for unit in came {
            let slot = &self.units.slots[*unit];
            if slot.placed == slot.machine {
                continue;
            }
            if slot.placed == MachineNo::NONE {
                placements.push(*unit);
            } else if slot.peers().iter().any(|peer| self.is_late(*unit, *peer, &late)) {
                late.insert(*unit, ());
                placements.push(*unit);
            } else {
                moves.push(*unit);
            }
        }
        (moves, placements)
    }

    /// Returns whether the step of a moved unit's peer is among the placements, which follow the
    /// moves. The step of the moved unit must then be there too. If the peer is a pattern, one such
    /// unit on the same machine is enough.
    fn is_late(&self, unit: UnitNo, peer: PeerRef, late: &Lookup<UnitNo, ()>) -> bool {
        let comes_late = |other: UnitNo| {
            let slot = &self.units.slots[other];
            let is_new = slot.kind == UnitKind::Single && slot.placed == MachineNo::NONE;
            late.contains(&other) || is_new && slot.machine != MachineNo::NONE
        };
        match peer {
            PeerRef::Named(other) => comes_late(other),
            PeerRef::Matching(pattern) => {
                let current = self.units.slots[unit].machine;
                let is_on_same_machine =
                    |other: &UnitNo| self.units.slots[*other].machine == current;
                self.members(pattern).filter(is_on_same_machine).any(comes_late)
            }
        }
    }

    fn arrival(&self, unit: UnitNo, left: &FirstLeft) -> Step {
        let slot = &self.units.slots[unit];
        let to = self.machines.id(slot.machine).clone();
        let action = match slot.placed.some() {
            None => StepAction::Place { machine: to },
            Some(from) => StepAction::Move { from: self.machines.id(from).clone(), to },
        };
        Step { unit: slot.name().clone(), action, cause: self.cause(unit, left) }
    }

    /// Returns the cause of a unit's step: the reason why the unit is not on its recorded machine.
    fn cause(&self, unit: UnitNo, left: &FirstLeft) -> StepCause {
        let slot = &self.units.slots[unit];
        let Some(placed) = slot.placed.some() else { return StepCause::Wanted };
        if !self.machines.slots[placed].is_present() {
            return StepCause::MachineGone;
        }
        let name = |unit: UnitNo| self.units.name(unit).clone();
        let entry = left.get(&unit).map(|at| &self.log[*at].left);
        match entry.and_then(Option::as_ref) {
            Some(LeaveReason::Refused(refusal)) => match refusal.as_ref() {
                Refusal::MachineOf { peer: Peer::Named(peer) } if slot.machine.some().is_some() => {
                    StepCause::FollowsPeer(peer.clone())
                }
                _ => StepCause::Refused(refusal.clone()),
            },
            Some(LeaveReason::ReplacedBy(by)) => StepCause::ReplacedBy(name(*by)),
            Some(LeaveReason::Follows(head)) => StepCause::FollowsPeer(name(*head)),
            Some(LeaveReason::Drained) => StepCause::Drained,
            Some(LeaveReason::Rebalanced) => StepCause::Rebalanced,
            Some(LeaveReason::Refitted) | None => StepCause::Wanted,
        }
    }
}
