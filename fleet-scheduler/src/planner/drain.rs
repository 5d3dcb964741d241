//! Drains: moves units away from machines while enough instances stay up.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Machine, Reason};
use fleet_unitfile::UnitName;

use super::disruption_budget::DisruptionBudget;
use super::eviction_group::MoveReason;
use super::reasons::ReasonCache;
use crate::demand::Change;
use crate::drain::{Drain, DrainPlan, HoldReason};
use crate::index::{ClassNo, Cluster, LogPosition, Lookup, MachineNo, UnitKind, UnitNo};

/// The state of a drain during planning.
struct DrainWork<'a> {
    disruption: DisruptionBudget<'a>,
    max_moves: u32,
    moved: u32,
    /// Classes that no machine currently accepts.
    nowhere: Lookup<ClassNo, ()>,
    /// The units of the groups that were tried in vain in this pass. `MachineOf=` ties them by name
    /// to the unit that was tried, so the decision applies to each of them.
    decided: Lookup<UnitNo, Obstruction>,
}

/// The reason for which a group stays; `None` if no machine accepts it.
type Obstruction = Option<HoldReason>;

impl Cluster {
    /// Plans the next moves that empty the machines of a drain.
    ///
    /// The plan treats these machines as cordoned. Also cordon them in the cluster; otherwise the
    /// next plan may bring units back. The result contains the steps of an ordinary
    /// [`plan`](Self::plan), followed by the moves. Each moved unit goes to the machine that it
    /// would get if it were waiting. `Reschedule=never` does not prevent a move, because a drain is
    /// deliberate.
    ///
    /// The limits of the drain may hold units back. Repeat the call after the moved units are up,
    /// until no units are left on the machines. The planned moves are not kept;
    /// [`apply`](Self::apply) records them.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// for id in ["m1", "m2"] {
    ///     cluster.add_machine(Machine::named(id)?);
    /// }
    /// for name in ["web@1", "web@2", "web@3"] {
    ///     cluster.add(Demand::new(name)?);
    /// }
    /// let plan = cluster.plan(); // 1 and 3 on m1, 2 on m2
    /// cluster.apply(&plan);
    ///
    /// let preview = cluster.drain(&Drain::new(["m1".parse()?]).keep_available(2));
    /// let expected = "plan for revision 1
    ///   move web@1.service from m1 to m2: the machine is drained
    ///   web@3.service stays for now: 2 instances of web@.service are up and 2 must stay up";
    /// assert_eq!(preview.to_string(), expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&mut self, drain: &Drain) -> DrainPlan {
        self.rewind();
        let back = self.cordon_all(drain);
        let (plan, held) = self.plan_then(|index| index.drain_machines(drain));
        back.iter().for_each(|change| self.change(change));
        DrainPlan { plan, held }
    }

    /// Cordons the machines of a drain. Returns the changes that undo it.
    fn cordon_all(&mut self, drain: &Drain) -> Vec<Change> {
        let mut back = Vec::new();
        for machine in self.drained(drain) {
            let facts = Machine::clone(self.machines.slots[machine].machine());
            if !facts.cordoned {
                self.add_machine(Machine { cordoned: true, ..facts.clone() });
                back.push(Change::AddMachine(facts));
            }
        }
        back
    }

    /// Returns the present machines of a drain.
    fn drained(&self, drain: &Drain) -> Vec<MachineNo> {
        let known = drain.machines.iter().filter_map(|id| self.machines.find(id.as_str()));
        known.filter(|machine| self.machines.slots[*machine].is_present()).collect()
    }

    /// Moves as many units away from the machines as the drain's limits and the placement rules
    /// allow. Returns the units that remain, each with its reason.
    fn drain_machines(&mut self, drain: &Drain) -> BTreeMap<UnitName, HoldReason> {
        let mut left = Vec::new();
        for machine in self.drained(drain) {
            left.extend(self.units_by_name(machine).into_iter().map(|unit| (unit, machine)));
        }
        let disruption = DisruptionBudget::new(drain.min_available, &drain.down);
        let mut work = DrainWork {
            disruption,
            max_moves: drain.max_moves,
            moved: 0,
            nowhere: Lookup::default(),
            decided: Lookup::default(),
        };
        let mut held = BTreeMap::new();
        loop {
            // A moved unit may satisfy a pattern of another unit, or may have been in its way.
            let before = work.moved;
            work.decided = Lookup::default();
            left.retain(|(unit, machine)| self.is_held(*unit, *machine, &mut work, &mut held));
            if work.moved == before {
                return self.hold_reasons(&left, held);
            }
        }
    }

    /// Tries to move a unit away. Returns whether the unit is still there.
    fn is_held(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        work: &mut DrainWork<'_>,
        held: &mut BTreeMap<UnitNo, HoldReason>,
    ) -> bool {
        if self.units.slots[unit].machine != machine {
            return false; // It moved with the group of an earlier unit.
        }
        let obstruction = match work.decided.get(&unit) {
            Some(decided) => decided.clone(),
            None => match self.evict(unit, machine, work) {
                Ok(()) => return false,
                Err(obstruction) => {
                    if self.is_tied(unit) {
                        for other in self.tied_by_name(unit, machine) {
                            work.decided.insert(other, obstruction.clone());
                        }
                    }
                    obstruction
                }
            },
        };
        match obstruction {
            Some(reason) => held.insert(unit, reason),
            None => held.remove(&unit),
        };
        true
    }

    /// Moves a unit and its eviction group away from a machine.
    fn evict(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        work: &mut DrainWork<'_>,
    ) -> Result<(), Obstruction> {
        let savepoint = self.savepoint();
        let start = self.log_position();
        let group =
            self.detach_group(self.eviction_group(unit, machine), machine, MoveReason::Drain);
        let may_leave = self.may_leave(&group, work).map_err(Some);
        let sent = may_leave.and_then(|()| self.evict_group(&group, machine, start, work));
        if sent.is_err() {
            self.roll_back(&savepoint);
        }
        sent
    }

    /// Finds another machine for a group that has left `machine`, and assigns the group there.
    /// `start` is the log position before the group left. On error, the caller must roll back to
    /// that position.
    fn evict_group(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
        start: LogPosition,
        work: &mut DrainWork<'_>,
    ) -> Result<(), Obstruction> {
        let class = self.group_class(group);
        if class.is_some_and(|class| work.nowhere.contains(&class)) {
            return Err(None);
        }
        if !self.find_machine_for(group, machine, |index, to| index.assign_group(group, to)) {
            if let Some(class) = class {
                work.nowhere.insert(class, ());
            }
            return Err(None);
        }
        // The units that made room for the group are not up for a while either.
        let lost = self.disrupted(&work.disruption, self.moved_since(start).into_iter());
        if let Some(held) = self.check_min_available(&mut work.disruption, &lost) {
            return Err(Some(held));
        }
        work.disruption.spend(&lost);
        work.moved = work.moved.saturating_add(count(group));
        work.nowhere.clear();
        Ok(())
    }

    /// Checks whether a group that has been taken off its machine was allowed to leave.
    fn may_leave(&self, group: &[UnitNo], work: &mut DrainWork<'_>) -> Result<(), HoldReason> {
        let unreadable = |unit: &&UnitNo| self.units.slots[**unit].kind == UnitKind::Unreadable;
        if let Some(unit) = group.iter().find(unreadable) {
            return Err(HoldReason::Unreadable(self.units.name(*unit).clone()));
        }
        let lost = self.disrupted(&work.disruption, group.iter().copied());
        if let Some(held) = self.check_min_available(&mut work.disruption, &lost) {
            return Err(held);
        }
        let most = work.max_moves;
        let together = work.moved.saturating_add(count(group));
        if together > most && (work.moved > 0 || most == 0) {
            return Err(HoldReason::MaxMoves { max_moves: most });
        }
        Ok(())
    }

    /// Returns the reason of each unit that stays.
    fn hold_reasons(
        &mut self,
        left: &[(UnitNo, MachineNo)],
        mut held: BTreeMap<UnitNo, HoldReason>,
    ) -> BTreeMap<UnitName, HoldReason> {
        let mut by_class: Lookup<ClassNo, Arc<Reason>> = Lookup::default();
        let mut by_unit: Lookup<UnitNo, Arc<Reason>> = Lookup::default();
        let mut reasons = BTreeMap::new();
        for (unit, machine) in left {
            let reason = held.remove(unit).unwrap_or_else(|| {
                let class = self.group_class(&[*unit]);
                let cached = class.map_or_else(|| by_unit.get(unit), |class| by_class.get(&class));
                let reason = cached.cloned().unwrap_or_else(|| {
                    let all = self.no_machine_reasons(*unit, *machine);
                    let first = all[0].1.clone();
                    all.into_iter().for_each(|(unit, reason)| _ = by_unit.insert(unit, reason));
                    first
                });
                if let Some(class) = class {
                    by_class.insert(class, reason.clone());
                }
                HoldReason::NowhereElse(reason)
            });
            reasons.insert(self.units.name(*unit).clone(), reason);
        }
        reasons
    }

    /// Returns the reasons why no other machine accepts a unit together with its eviction group:
    /// first that of the unit, then those of the units that are tied to it by name.
    fn no_machine_reasons(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
    ) -> Vec<(UnitNo, Arc<Reason>)> {
        let alike = self.tied_by_name(unit, machine);
        let savepoint = self.savepoint();
        let group =
            self.detach_group(self.eviction_group(unit, machine), machine, MoveReason::Drain);
        let (mut cache, mut by_machines) = (ReasonCache::default(), None);
        let reasons = alike.into_iter().map(|unit| {
            let reason = match self.reason_without_machines(unit, &mut cache) {
                Some(reason) => reason.into(),
                None => Arc::clone(
                    by_machines.get_or_insert_with(|| self.reason_by_machines(&group).into()),
                ),
            };
            (unit, reason)
        });
        let reasons = reasons.collect();
        self.roll_back(&savepoint);
        reasons
    }
}

fn count(units: &[UnitNo]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}
