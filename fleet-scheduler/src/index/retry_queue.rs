//! Waiting: which units are to be tried again, and when.
//!
//! A unit that every machine refuses is set aside, and tried again only after something that may
//! have lifted a refusal. To try too often costs time; to try too seldom would be a mistake.

use super::lookup::Lookup;
use super::units::{UnitKind, WaitState};
use super::{Index, UnitNo};

/// Units that are tied together, or replace others, and that no machine takes.
#[derive(Debug)]
pub(crate) struct WaitingGroup {
    /// The units, in the order in which they are put on a machine.
    pub(crate) members: Vec<UnitNo>,
    /// Whether one of them replaces others, and even a unit that comes anywhere may help it: where
    /// several units have to leave, who comes may make the first go elsewhere.
    pub(crate) helped_by_any_arrival: bool,
}

/// Units that are to be tried, none of them twice. However often units change before the next plan,
/// there are no more than there are numbers.
#[derive(Debug, Default)]
pub(crate) struct RetryQueue {
    units: Vec<UnitNo>,
    /// Whether a number is there. It may belong to another unit by now, which does no harm.
    is_there: Vec<bool>,
}

impl RetryQueue {
    pub(crate) fn push(&mut self, unit: UnitNo) {
        if self.is_there.len() <= unit.at() {
            self.is_there.resize(unit.at() + 1, false);
        }
        if !std::mem::replace(&mut self.is_there[unit.at()], true) {
            self.units.push(unit);
        }
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Vec<UnitNo> {
        let units = std::mem::take(&mut self.units);
        units.iter().for_each(|unit| self.is_there[unit.at()] = false);
        units
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Makes room for the units of a loading.
    pub(super) fn reserve(&mut self, count: usize) {
        self.units.reserve(count);
        self.is_there.reserve(count);
    }
}

impl Index {
    /// A unit that waits is to be tried.
    pub(crate) fn enqueue(&mut self, unit: UnitNo) {
        self.units.slots[unit].wait = WaitState::Untried;
        self.retry_queue.push(unit);
    }

    /// A unit that was set aside is to be tried again, and with it its whole group.
    pub(crate) fn wake(&mut self, unit: UnitNo) {
        match self.units.slots[unit].wait {
            WaitState::No | WaitState::Untried | WaitState::Stranded => {}
            WaitState::Queued => {
                if self.is_tied(unit) {
                    self.wake_group(unit);
                }
            }
            WaitState::Parked => {
                self.unpark(unit);
                self.enqueue(unit);
            }
            WaitState::Unsatisfiable => {
                self.unsatisfiable.remove(&unit);
                self.enqueue(unit);
            }
            WaitState::Tied => self.wake_group(unit),
        }
    }

    /// Wakes all of the group that a unit was queued or set aside with.
    fn wake_group(&mut self, unit: UnitNo) {
        let first = self.units.affinity_mut(unit).group;
        self.sensitive_groups.remove(&first);
        let members = self.groups.remove(&first).map_or_else(Vec::new, |group| group.members);
        for member in members.into_iter().chain([unit]) {
            if matches!(self.units.slots[member].wait, WaitState::Tied | WaitState::Queued) {
                self.enqueue(member);
            }
        }
    }

    fn unpark(&mut self, unit: UnitNo) {
        let slot = &self.units.slots[unit];
        let class = &mut self.classes.slots[slot.class];
        class.parked.remove(slot.name());
        if class.parked.is_empty() {
            self.classes.unpark(slot.class);
        }
    }

    /// A unit does not wait any more; those that waited with it are tried again.
    pub(crate) fn forget_waiting(&mut self, unit: UnitNo) {
        self.wake(unit);
        if self.units.slots[unit].wait == WaitState::Stranded {
            self.stranded.remove(&unit);
        }
        self.units.slots[unit].wait = WaitState::No;
    }

    /// Something changed about a unit: whoever is tied to it is tried again.
    pub(crate) fn wake_tied(&mut self, unit: UnitNo) {
        if !self.is_tied(unit) {
            return;
        }
        self.ties_changed = true;
        let mut seen: Lookup<UnitNo, ()> = Lookup::default();
        seen.insert(unit, ());
        let mut all = vec![unit];
        let mut next = 0;
        while let Some(at) = all.get(next).copied() {
            next += 1;
            let named =
                self.waiting_peers(at).filter(|_| self.units.slots[at].kind == UnitKind::Single);
            let others: Vec<UnitNo> = named.chain(self.possible_followers(at)).collect();
            for other in others {
                if self.units.slots[other].is_waiting() && seen.insert(other, ()) {
                    all.push(other);
                }
            }
        }
        all.into_iter().for_each(|unit| self.wake(unit));
    }

    /// Sets a unit aside that every machine refuses.
    pub(crate) fn park(&mut self, unit: UnitNo) {
        let slot = &mut self.units.slots[unit];
        slot.wait = WaitState::Parked;
        let class = &mut self.classes.slots[slot.class];
        class.parked.insert(slot.name().clone(), unit);
        self.classes.park(slot.class, self.orders.facts_version);
    }

    /// Sets a group aside that no machine takes.
    pub(crate) fn park_group(
        &mut self,
        members: Vec<UnitNo>,
        sensitive: bool,
        helped_by_any_arrival: bool,
    ) {
        let first = self.put_group(members, WaitState::Tied, helped_by_any_arrival);
        if sensitive {
            self.sensitive_groups.extend(first);
        }
    }

    /// A group is to be tried.
    pub(crate) fn queue_group(&mut self, members: Vec<UnitNo>) {
        self.put_group(members, WaitState::Queued, false);
    }

    fn put_group(
        &mut self,
        members: Vec<UnitNo>,
        wait: WaitState,
        helped_by_any_arrival: bool,
    ) -> Option<UnitNo> {
        let first = members.iter().copied().min()?;
        for member in &members {
            self.units.slots[*member].wait = wait;
            self.units.affinity_mut(*member).group = first;
        }
        self.groups.insert(first, WaitingGroup { members, helped_by_any_arrival });
        Some(first)
    }

    /// Sets a unit aside that waits in unsatisfiable.
    pub(crate) fn park_unsatisfiable(&mut self, unit: UnitNo) {
        self.units.slots[unit].wait = WaitState::Unsatisfiable;
        self.unsatisfiable.insert(unit);
    }
}
