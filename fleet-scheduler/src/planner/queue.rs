//! Who is tried next: always the first by name of those that may have a machine.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use crate::index::{Ground, Group, Index, MachineNo, UnitNo, Wait};
use crate::rules::Question;

/// The units to be tried in a plan.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The units that were to be tried from the beginning, by name.
    first: Vec<UnitNo>,
    at: usize,
    /// Those that came later.
    later: BTreeMap<UnitName, UnitNo>,
    /// The units that were tried in vain, some perhaps twice or placed since.
    pub(super) tried: Vec<UnitNo>,
}

impl Index {
    /// The next unit to be tried.
    pub(super) fn next_in(&mut self, queue: &mut Queue) -> Option<UnitNo> {
        loop {
            self.absorb(queue);
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
            if self.units.slots[unit].wait == Wait::Queued {
                return Some(unit);
            }
        }
    }

    /// Takes all fresh units into the queue.
    fn absorb(&mut self, queue: &mut Queue) {
        self.wake_lifted();
        while !self.fresh.is_empty() {
            let mut fresh = self.fresh.take();
            fresh.retain(|unit| self.take_in(*unit, queue));
            self.log.reserve(fresh.len()); // Most of them will come to a machine.
            if queue.first.is_empty() {
                self.units.sort(&mut fresh);
                queue.first = fresh;
            } else {
                let named = fresh.into_iter().map(|unit| (self.units.name(unit).clone(), unit));
                queue.later.extend(named);
            }
        }
    }

    /// Takes a fresh unit in; whether it must be put into the queue yet.
    fn take_in(&mut self, unit: UnitNo, queue: &mut Queue) -> bool {
        match self.units.slots[unit].wait {
            Wait::Stranded => queue.tried.push(unit),
            Wait::Fresh if self.is_tied(unit) => self.take_in_tied(unit, queue),
            Wait::Fresh => {
                self.units.slots[unit].wait = Wait::Queued;
                return true;
            }
            _ => {}
        }
        false
    }

    /// Takes in all that a unit is tied to; of each group the first one by name stands for it.
    fn take_in_tied(&mut self, unit: UnitNo, queue: &mut Queue) {
        let component = self.component(unit);
        for unit in component.vain {
            self.forget_waiting(unit);
            self.park_vain(unit);
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

    /// Wakes those whom machines might take now that refused them before.
    fn wake_lifted(&mut self) {
        let end = self.lanes.lifts.end();
        if end == self.lifts_seen {
            return;
        }
        let since = self.lanes.lifts.since(self.lifts_seen);
        let mut machines: Option<Vec<MachineNo>> = since.map(<[_]>::to_vec);
        self.lifts_seen = end;
        if let Some(machines) = &mut machines {
            machines.sort_unstable();
            machines.dedup();
            machines.retain(|machine| self.machines.slots[*machine].is_present());
        }
        self.learn(machines.as_deref());
        self.wake_classes(machines.as_deref());
        self.wake_groups(machines.as_deref());
    }

    /// Finds out which classes no machine can take, now that some machines may be others.
    fn learn(&mut self, machines: Option<&[MachineNo]>) {
        let (machine_slots, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        let ranking = self.policy.ranking;
        let ground = Ground { machines: machine_slots, filters, patterns, ranking };
        self.classes.learn(self.lanes.facts, |class| {
            let takes = |machine: &MachineNo| ground.takes(class.filter, *machine);
            machines.is_some_and(|all| !all.iter().any(takes))
        });
    }

    fn wake_classes(&mut self, machines: Option<&[MachineNo]>) {
        let mut woken = Vec::new();
        let turn = self.classes.turn;
        for number in self.classes.hopeful() {
            let class = &self.classes.slots[number];
            let first = class.parked.values().next().filter(|_| class.awake != turn);
            let Some(first) = first else { continue };
            let takes =
                |machine: &MachineNo| Question::new(self, *first, *machine).denial().is_none();
            if machines.is_none_or(|machines| machines.iter().any(takes)) {
                woken.push((number, *first));
            }
        }
        for (class, first) in woken {
            self.classes.slots[class].awake = turn;
            self.wake(first);
        }
    }

    fn wake_groups(&mut self, machines: Option<&[MachineNo]>) {
        let may_take = |machine: &MachineNo, members: &[UnitNo]| {
            let mut questions = members.iter().map(|unit| Question::new(self, *unit, *machine));
            questions.all(|question| question.denial_in_company().is_none())
        };
        let wakes = |(first, group): &(&UnitNo, &Group)| {
            machines.is_none_or(|all| match self.restless.contains(first) {
                true => self.may_help(group, all),
                false => all.iter().any(|machine| may_take(machine, &group.members)),
            })
        };
        let woken: Vec<UnitNo> =
            self.groups.iter().filter(wakes).map(|(first, _)| *first).collect();
        woken.into_iter().for_each(|first| self.wake(first));
    }

    /// A unit came to a machine: wakes those for whom this may change anything.
    pub(super) fn wake_after_coming(&mut self, unit: UnitNo) {
        let tied = self.is_tied(unit);
        if tied {
            self.wake_around(unit);
        }
        if !self.restless.is_empty() {
            let touched = |first: &&UnitNo| tied || self.groups[*first].touchy;
            let woken: Vec<UnitNo> = self.restless.iter().filter(touched).copied().collect();
            woken.into_iter().for_each(|first| self.wake(first));
        }
    }
}
