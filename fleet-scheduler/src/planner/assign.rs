//! Assignment: finds a machine for every unit that fits somewhere.

use super::attempt_limit::PlanSize;
use super::queue::AttemptQueue;
use crate::index::{Cluster, LogPosition, MachineNo, UnitKind, UnitNo, WaitState};
use crate::rules::{Denial, PlacementQuery, machine_of};

/// Number of machines that are tried one by one before all machines are ranked at once.
pub(super) const MAX_PROBES: usize = 32;

impl Cluster {
    /// Places every unit that fits, then separates replaced units from their replacers. Repeats
    /// both until nothing changes.
    pub(super) fn place_and_separate(&mut self, queue: &mut AttemptQueue) {
        self.classes.round += 1; // No class has been requeued in this round.
        self.requeue_sensitive_groups();
        loop {
            while let Some(unit) = self.next_attempt(queue) {
                match queue.counter.count(self.plan_size()) {
                    true => self.attempt(unit, queue),
                    false => self.give_up(unit, queue),
                }
            }
            // Last, because an assignment above may have moved one of the two units already.
            let start = self.log_position();
            if queue.counter.is_exhausted() || !self.separate_replaced() {
                self.ties_changed = false; // All units that it may help have been tried.
                return;
            }
            self.requeue_sensitive_groups();
            self.requeue_after(start);
        }
    }

    /// Queues again the units that may find a machine because of the arrivals since this log
    /// position.
    fn requeue_after(&mut self, start: LogPosition) {
        let came = self.since(start).iter().filter(|entry| entry.left.is_none());
        let mut came: Vec<UnitNo> = came.map(|entry| entry.unit).collect();
        came.sort_unstable();
        came.dedup();
        came.into_iter().for_each(|unit| self.requeue_after_arrival(unit));
    }

    fn plan_size(&self) -> PlanSize {
        let globals = self.globals.len().saturating_mul(self.machines.slots.len());
        let assignments = self.units.slots.len().saturating_add(globals);
        PlanSize { assignments, log_length: self.log.len() }
    }

    /// Parks a unit, or the whole group that the unit represents, without an attempt.
    fn give_up(&mut self, unit: UnitNo, queue: &mut AttemptQueue) {
        let group = self.group_of(unit);
        for member in &group {
            self.forget_waiting(*member);
        }
        queue.tried.extend(&group);
        queue.given_up.extend(&group);
        self.park_group(group, true, true);
    }

    /// Tries to find a machine for a unit, or for the whole group that the unit represents.
    fn attempt(&mut self, unit: UnitNo, queue: &mut AttemptQueue) {
        if self.is_tied(unit) {
            let component = self.component(unit);
            match component.groups.into_iter().find(|group| group.contains(&unit)) {
                Some(group) => self.attempt_group(group, queue),
                None => {
                    self.forget_waiting(unit);
                    self.park_unsatisfiable(unit);
                    queue.tried.push(unit);
                }
            }
        } else if self.class(unit).replaces.is_empty() && !self.policy.retries_on_any_change() {
            self.attempt_one(unit, queue);
        } else {
            self.attempt_group(vec![unit], queue);
        }
    }

    fn attempt_one(&mut self, unit: UnitNo, queue: &mut AttemptQueue) {
        let class = self.units.slots[unit].class;
        let Some(machine) = self.find_machine(unit) else {
            self.classes.slots[class].requeued_in = 0;
            self.park(unit);
            queue.tried.push(unit);
            return;
        };
        self.units.slots[unit].wait = WaitState::No;
        self.assign(unit, machine);
        self.requeue_after_arrival(unit);
        let round = self.classes.round;
        let class = &mut self.classes.slots[class];
        if class.requeued_in == round {
            match class.parked.values().next().copied() {
                Some(next) => self.requeue(next),
                None => class.requeued_in = 0,
            }
        }
    }

    fn attempt_group(&mut self, group: Vec<UnitNo>, queue: &mut AttemptQueue) {
        let (mut displaced, start) = (0, self.log_position());
        if self.place_group(&group, &mut displaced) {
            group.into_iter().for_each(|unit| self.forget_waiting(unit));
            self.requeue_after(start);
            return;
        }
        for member in &group {
            self.forget_waiting(*member);
        }
        queue.tried.extend(&group);
        let any_change = self.policy.retries_on_any_change();
        let sensitive =
            any_change || group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        self.park_group(group, sensitive, any_change || displaced > 1 || !self.globals.is_empty());
    }

    /// Places a group on the first machine that accepts it. Returns whether there is such a
    /// machine.
    ///
    /// If the group contains replacers, the attempt on a machine first moves displaced groups away
    /// from it. `displaced` is raised to the highest number of displaced groups that the attempt on
    /// one machine had to move.
    fn place_group(&mut self, group: &[UnitNo], displaced: &mut usize) -> bool {
        let Some(first) = group.first().copied() else { return false };
        match self.required_machine(group) {
            Err(NoCommonMachine) => return false,
            Ok(Some(machine)) => {
                let present = self.machines.slots[machine].is_present();
                return present && self.try_assign_all(group, machine, displaced).is_ok();
            }
            Ok(None) => {}
        }
        let replaces = group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        if replaces || !self.policy.scores.is_empty() {
            // Ranking all machines is slow, and the first one is usually sufficient.
            let top = self.top_machine(first);
            if top.is_some_and(|machine| self.try_assign_all(group, machine, displaced).is_ok()) {
                return true;
            }
            let all = self.ranked_machines(first).into_iter();
            return all
                .into_iter()
                .any(|machine| self.try_assign_all(group, machine, displaced).is_ok());
        }
        self.search(first, |index, machine| index.try_assign_all(group, machine, &mut 0).is_ok())
            .is_some()
    }

    /// Returns the machine that the units of a group require by `MachineID=` or by a `MachineOf=`
    /// peer that has a machine. Returns `Ok(None)` if they require none, and an error if they
    /// require different machines.
    pub(super) fn required_machine(
        &self,
        group: &[UnitNo],
    ) -> Result<Option<MachineNo>, NoCommonMachine> {
        let mut found = None;
        for unit in group {
            let pin = self.class(*unit).pin.some();
            for machine in pin.into_iter().chain(machine_of::machine_of_peer(self, *unit)) {
                if found.is_some_and(|other| other != machine) {
                    return Err(NoCommonMachine);
                }
                found = Some(machine);
            }
        }
        Ok(found)
    }

    /// Assigns a group to a machine. If the machine refuses one of the units, the function changes
    /// nothing and returns that unit and the denial.
    pub(crate) fn try_assign_all(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
        displaced: &mut usize,
    ) -> Result<(), (UnitNo, Denial)> {
        let savepoint = self.savepoint();
        let mut moved = 0;
        let mut result = Ok(());
        for (index, unit) in group.iter().enumerate() {
            if let Err(denial) = self.try_assign(*unit, machine, &group[..index], &mut moved) {
                self.roll_back(&savepoint);
                result = Err((*unit, denial));
                break;
            }
        }
        *displaced = moved.max(*displaced);
        result
    }

    /// Returns the first rule by which a machine refuses a unit. The unit must not replace other
    /// units, because the function does not assume that any unit leaves.
    pub(crate) fn denial(&self, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
        PlacementQuery::new(self, unit, machine).denial()
    }

    /// Returns whether the unit is a single unit, which may be moved.
    pub(super) fn is_single(&self, unit: UnitNo) -> bool {
        self.units.slots[unit].kind == UnitKind::Single
    }
}

/// No machine can accept a group, because its units require different machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoCommonMachine;
