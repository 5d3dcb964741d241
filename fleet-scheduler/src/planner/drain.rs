//! Emptying machines: moves their units away, as far as enough instances stay up.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Machine, Reason};
use fleet_unitfile::UnitName;

use super::company::Errand;
use super::ups::Ups;
use crate::change::ClusterChange;
use crate::drain::{Drain, DrainPlan, HoldReason};
use crate::index::{ClassNo, Index, Kind, Lookup, MachineNo, Mark, UnitNo};

/// A drain while it is being planned.
struct Work<'a> {
    ups: Ups<'a>,
    max_moves: u32,
    moved: u32,
    /// Classes that no machine takes, as things stand.
    nowhere: Lookup<ClassNo, ()>,
}

/// Why a company stays; `None` where no machine takes it.
type Blocked = Option<HoldReason>;

impl Index {
    /// What is to be done now to empty some machines.
    ///
    /// They are taken to be cordoned; cordon them in truth as well, or the next plan may bring
    /// units back. Every other unit is treated as by [`plan`](Self::plan), and who moves away goes
    /// where a unit would go that waits; `Reschedule=never` does not keep it, since this is done
    /// on purpose. When the moved units are up, ask again, until nobody is left. The index is
    /// afterwards as it was.
    ///
    /// ```
    /// use fleet_core::{Epoch, Machine};
    /// use fleet_scheduler::{UnitSpec, Drain, Index, Policy};
    ///
    /// let mut index = Index::new(Policy::default());
    /// for id in ["m1", "m2"] {
    ///     index.put_machine(Machine::new(id.parse()?));
    /// }
    /// for name in ["web@1.service", "web@2.service", "web@3.service"] {
    ///     let name = name.parse()?;
    ///     index.put(UnitSpec { name, requirements: Default::default(), wanted: true });
    /// }
    /// let plan = index.plan(); // 1 and 3 on m1, 2 on m2
    /// index.apply(&plan, Epoch(1));
    ///
    /// let told = index.drain(&Drain { min_available: 2, ..Drain::new(["m1".parse()?]) });
    /// let expected = "plan for revision 0
    ///   move web@1.service from m1 to m2: the machine is drained
    ///   web@3.service stays for now: 2 instances of web@.service are up and 2 must stay up";
    /// assert_eq!(told.to_string(), expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&mut self, drain: &Drain) -> DrainPlan {
        self.rewind();
        let back = self.cordon_all(drain);
        let (plan, held) = self.plan_with(|index| index.empty(drain));
        back.iter().for_each(|change| self.change(change));
        DrainPlan { plan, held }
    }

    /// Cordons the machines of a drain. Returns what takes that back.
    fn cordon_all(&mut self, drain: &Drain) -> Vec<ClusterChange> {
        let mut back = Vec::new();
        for machine in self.drained(drain) {
            let facts = Machine::clone(self.machines.slots[machine].machine());
            if !facts.cordoned {
                self.put_machine(Machine { cordoned: true, ..facts.clone() });
                back.push(ClusterChange::PutMachine(facts));
            }
        }
        back
    }

    /// The machines of a drain that are present.
    fn drained(&self, drain: &Drain) -> Vec<MachineNo> {
        let known = drain.machines.iter().filter_map(|id| self.machines.find(id.as_str()));
        known.filter(|machine| self.machines.slots[*machine].is_present()).collect()
    }

    /// Moves away whom it can. Returns who stays, and why.
    fn empty(&mut self, drain: &Drain) -> BTreeMap<UnitName, HoldReason> {
        let mut left = Vec::new();
        for machine in self.drained(drain) {
            left.extend(self.units_by_name(machine).into_iter().map(|unit| (unit, machine)));
        }
        let ups = Ups::new(drain.min_available, &drain.down);
        let mut work =
            Work { ups, max_moves: drain.max_moves, moved: 0, nowhere: Lookup::default() };
        let mut held = BTreeMap::new();
        loop {
            // Who has moved may be whom another one's pattern wants, or have been in its way.
            let before = work.moved;
            left.retain(|(unit, machine)| self.stays(*unit, *machine, &mut work, &mut held));
            if work.moved == before {
                return self.told_of(&left, held);
            }
        }
    }

    /// Tries to move a unit away; whether it is still there.
    fn stays(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        work: &mut Work<'_>,
        held: &mut BTreeMap<UnitNo, HoldReason>,
    ) -> bool {
        if self.units.slots[unit].seat != machine {
            return false; // It went along with one before it.
        }
        match self.send_away(unit, machine, work) {
            Ok(()) => return false,
            Err(Some(why)) => held.insert(unit, why),
            Err(None) => held.remove(&unit),
        };
        true
    }

    /// Moves a unit away from a machine, with all that must go along.
    fn send_away(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        work: &mut Work<'_>,
    ) -> Result<(), Blocked> {
        let trial = self.begin();
        let mark = self.mark();
        let company = self.see_off(self.company(unit, machine), machine, Errand::Drain);
        let may_leave = self.may_leave(&company, work).map_err(Some);
        let sent = may_leave.and_then(|()| self.send_company(&company, machine, mark, work));
        if sent.is_err() {
            self.take_back(&trial);
        }
        sent
    }

    /// Finds a machine for a company that left its own after the mark. On error, what was done must
    /// be taken back.
    fn send_company(
        &mut self,
        company: &[UnitNo],
        machine: MachineNo,
        mark: Mark,
        work: &mut Work<'_>,
    ) -> Result<(), Blocked> {
        let class = self.class_of_company(company);
        if class.is_some_and(|class| work.nowhere.contains(&class)) {
            return Err(None);
        }
        if !self.lodge(company, machine, |index, to| index.seat_company(company, to)) {
            if let Some(class) = class {
                work.nowhere.insert(class, ());
            }
            return Err(None);
        }
        // Who had to make room for them is not up for a while either.
        let lost = self.loss(&work.ups, self.moved_since(mark).into_iter());
        if let Some(held) = self.held_by_minimum(&mut work.ups, &lost) {
            return Err(Some(held));
        }
        work.ups.lose(&lost);
        work.moved = work.moved.saturating_add(count(company));
        work.nowhere.clear();
        Ok(())
    }

    /// Whether a company that has left its machine may do so.
    fn may_leave(&self, company: &[UnitNo], work: &mut Work<'_>) -> Result<(), HoldReason> {
        let unreadable = |unit: &&UnitNo| self.units.slots[**unit].kind == Kind::Unreadable;
        if let Some(unit) = company.iter().find(unreadable) {
            return Err(HoldReason::Unreadable(self.units.name(*unit).clone()));
        }
        let lost = self.loss(&work.ups, company.iter().copied());
        if let Some(held) = self.held_by_minimum(&mut work.ups, &lost) {
            return Err(held);
        }
        let most = work.max_moves;
        let together = work.moved.saturating_add(count(company));
        if together > most && (work.moved > 0 || most == 0) {
            return Err(HoldReason::MaxMoves { max_moves: most });
        }
        Ok(())
    }

    /// Why each of these units stays.
    fn told_of(
        &mut self,
        left: &[(UnitNo, MachineNo)],
        mut held: BTreeMap<UnitNo, HoldReason>,
    ) -> BTreeMap<UnitName, HoldReason> {
        let mut by_class: Lookup<ClassNo, Arc<Reason>> = Lookup::default();
        let mut told = BTreeMap::new();
        for (unit, machine) in left {
            let why = held.remove(unit).unwrap_or_else(|| {
                let class = self.class_of_company(&self.company(*unit, *machine));
                let known = class.and_then(|class| by_class.get(&class).cloned());
                let reason = known.unwrap_or_else(|| self.why_nowhere(*unit, *machine).into());
                if let Some(class) = class {
                    by_class.insert(class, reason.clone());
                }
                HoldReason::NowhereElse(reason)
            });
            told.insert(self.units.name(*unit).clone(), why);
        }
        told
    }

    /// Why no other machine takes a unit with all that must go along.
    fn why_nowhere(&mut self, unit: UnitNo, machine: MachineNo) -> Reason {
        let trial = self.begin();
        let company = self.see_off(self.company(unit, machine), machine, Errand::Drain);
        let reason = self.reason_without_machines(unit);
        let reason = reason.unwrap_or_else(|| self.reason_by_machines(&company));
        self.take_back(&trial);
        reason
    }
}

fn count(units: &[UnitNo]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}
