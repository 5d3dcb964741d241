//! The queue of attempts. The next attempt is always for the first unit, by name, that may get a
//! machine.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use super::attempt_limit::AttemptCounter;
use crate::index::{Cluster, MachineNo, RankContext, UnitNo, WaitState, WaitingGroup};
use crate::rules::PlacementQuery;

/// The units to try in a plan.
#[derive(Debug, Default)]
pub(super) struct AttemptQueue {
    /// The units known at the start, sorted by name.
    first: Vec<UnitNo>,
    at: usize,
    /// The units added later.
    later: BTreeMap<UnitName, UnitNo>,
    /// The units that were tried without success. Some units may occur twice, or may have been
    /// placed since.
    pub(super) tried: Vec<UnitNo>,
    /// The units that were parked without an attempt, because the plan reached its limit.
    pub(super) given_up: Vec<UnitNo>,
    pub(super) counter: AttemptCounter,
}

impl Cluster {
    /// Returns the next unit to try.
    pub(super) fn next_attempt(&mut self, queue: &mut AttemptQueue) -> Option<UnitNo> {
        loop {
            self.take_untried(queue);
            let first = queue.first.get(queue.at).copied();
            let later = queue.later.first_key_value().map(|(_, unit)| *unit);
            let unit = match (first, later) {
                (Some(one), Some(other)) if self.units.name(other) <= self.units.name(one) => other,
                (Some(one), _) => one,
                (None, later) => later?,
            };
            if Some(unit) == later {
                queue.later.pop_first();
            } else {
                queue.at += 1;
            }
            if self.units.slots[unit].wait == WaitState::Queued {
                return Some(unit);
            }
        }
    }

    /// Moves all untried units into the queue.
    fn take_untried(&mut self, queue: &mut AttemptQueue) {
        self.requeue_for_loosened_machines();
        while !self.retry_queue.is_empty() {
            let mut untried = self.retry_queue.take();
            untried.retain(|unit| self.take_one(*unit, queue));
            self.log.reserve(untried.len()); // Most of them will be placed.
            if queue.first.is_empty() {
                self.units.sort(&mut untried);
                queue.first = untried;
            } else {
                let named = untried.into_iter().map(|unit| (self.units.name(unit).clone(), unit));
                queue.later.extend(named);
            }
        }
    }

    /// Handles an untried unit. Returns whether it still has to be queued.
    fn take_one(&mut self, unit: UnitNo, queue: &mut AttemptQueue) -> bool {
        match self.units.slots[unit].wait {
            WaitState::Stranded => queue.tried.push(unit),
            WaitState::Untried if self.is_tied(unit) => self.enqueue_tied(unit, queue),
            WaitState::Untried => {
                self.units.slots[unit].wait = WaitState::Queued;
                return true;
            }
            _ => {}
        }
        false
    }

    /// Queues the groups that this unit and all units tied to it form. Each group is represented by
    /// its first unit by name. Units with an unsatisfiable `MachineOf=` are parked instead.
    fn enqueue_tied(&mut self, unit: UnitNo, queue: &mut AttemptQueue) {
        let component = self.component(unit);
        for unit in component.unsatisfiable {
            self.forget_waiting(unit);
            self.park_unsatisfiable(unit);
            queue.tried.push(unit);
        }
        for group in component.groups {
            for member in &group {
                self.forget_waiting(*member);
            }
            let first = group.iter().min_by_key(|unit| self.units.name(**unit));
            if let Some(first) = first {
                queue.later.insert(self.units.name(*first).clone(), *first);
            }
            self.queue_group(group);
        }
    }

    /// Queues again the units that a changed machine may accept now although it refused them
    /// before. For example, another unit may have left the machine.
    fn requeue_for_loosened_machines(&mut self) {
        let end = self.orders.loosened_machines.end();
        if end == self.loosened_seen {
            return;
        }
        let since = self.orders.loosened_machines.since(self.loosened_seen);
        let mut machines: Option<Vec<MachineNo>> = since.map(<[_]>::to_vec);
        self.loosened_seen = end;
        if let Some(machines) = &mut machines {
            machines.sort_unstable();
            machines.dedup();
            machines.retain(|machine| self.machines.slots[*machine].is_present());
        }
        self.refresh_retryable(machines.as_deref());
        self.requeue_classes(machines.as_deref());
        self.requeue_groups(machines.as_deref());
    }

    /// Updates the set of classes that are worth retrying. Classes for which a filter or a cordon
    /// excludes every machine are left out. `machines` lists the machines that may have changed;
    /// `None` stands for all machines.
    fn refresh_retryable(&mut self, machines: Option<&[MachineNo]>) {
        let (machine_slots, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        let ranking = self.policy.ranking;
        let context = RankContext { machines: machine_slots, filters, patterns, ranking };
        self.classes.refresh_retryable(self.orders.facts_version, |class| {
            let takes = |machine: &MachineNo| context.takes(class.filter, *machine);
            machines.is_some_and(|all| !all.iter().any(takes))
        });
    }

    fn requeue_classes(&mut self, machines: Option<&[MachineNo]>) {
        let mut requeued = Vec::new();
        let round = self.classes.round;
        for number in self.classes.retryable() {
            let class = &self.classes.slots[number];
            let first = class.parked.values().next().filter(|_| class.requeued_in != round);
            let Some(first) = first else { continue };
            let takes = |machine: &MachineNo| {
                PlacementQuery::new(self, *first, *machine).denial().is_none()
            };
            if machines.is_none_or(|machines| machines.iter().any(takes)) {
                requeued.push((number, *first));
            }
        }
        for (class, first) in requeued {
            self.classes.slots[class].requeued_in = round;
            self.requeue(first);
        }
    }

    fn requeue_groups(&mut self, machines: Option<&[MachineNo]>) {
        let may_take = |machine: &MachineNo, members: &[UnitNo]| {
            let mut queries = members.iter().map(|unit| PlacementQuery::new(self, *unit, *machine));
            queries.all(|query| query.denial_within_group().is_none())
        };
        let is_affected = |(first, group): &(&UnitNo, &WaitingGroup)| {
            machines.is_none_or(|all| match self.sensitive_groups.contains(first) {
                true => self.may_help(group, all),
                false => all.iter().any(|machine| may_take(machine, &group.members)),
            })
        };
        let requeued: Vec<UnitNo> =
            self.groups.iter().filter(is_affected).map(|(first, _)| *first).collect();
        requeued.into_iter().for_each(|first| self.requeue(first));
    }

    /// Queues again the units that may find a machine because this unit has come to one.
    pub(super) fn requeue_after_arrival(&mut self, unit: UnitNo) {
        let tied = self.is_tied(unit);
        if tied {
            self.requeue_tied(unit);
        }
        if !self.sensitive_groups.is_empty() {
            let touched = |first: &&UnitNo| tied || self.groups[*first].helped_by_any_arrival;
            let requeued: Vec<UnitNo> =
                self.sensitive_groups.iter().filter(touched).copied().collect();
            requeued.into_iter().for_each(|first| self.requeue(first));
        }
    }
}
