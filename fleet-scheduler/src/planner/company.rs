//! Companies: the units of a machine that can only leave it together, and how they move elsewhere
//! though nothing forces them.

use std::collections::BTreeSet;

use crate::index::{ClassNo, Index, MachineNo, PeerRef, UnitNo, Why};
use crate::rules::{Denial, machine_of, replaces};

/// What a company is moved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    Drain,
    Rebalance,
}

impl Errand {
    fn why(self) -> Why {
        match self {
            Self::Drain => Why::Drained,
            Self::Rebalance => Why::Rebalanced,
        }
    }
}

impl Index {
    /// The single and unreadable units on a machine, by name.
    pub(super) fn units_by_name(&self, machine: MachineNo) -> Vec<UnitNo> {
        let mut units = self.machines.slots[machine].desk.units.clone();
        self.units.sort(&mut units);
        units
    }

    /// The units that leave a machine if this one does, itself included: those there that it names,
    /// those that would lack one of them, and so on. Each after those that it names, then by name.
    pub(super) fn company(&self, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
        self.closed(BTreeSet::from([head]), machine)
    }

    fn closed(&self, mut all: BTreeSet<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        let desk = &self.machines.slots[machine].desk;
        let mut before = 0;
        while before < all.len() && desk.tied > 0 {
            before = all.len();
            let named: Vec<UnitNo> =
                all.iter().flat_map(|unit| self.named_on(*unit, machine)).collect();
            all.extend(named);
            let follows =
                |unit: &&UnitNo| !all.contains(*unit) && self.lacks(**unit, machine, &all);
            let following: Vec<UnitNo> = desk.units.iter().filter(follows).copied().collect();
            all.extend(following);
        }
        self.in_company_order(all, machine)
    }

    /// The units on a machine, global ones left out, that a unit names.
    fn named_on(&self, unit: UnitNo, machine: MachineNo) -> impl Iterator<Item = UnitNo> {
        let peers = self.units.slots[unit].peers().iter();
        peers.filter_map(move |peer| match peer {
            PeerRef::Named(other) if self.units.slots[*other].seat == machine => Some(*other),
            _ => None,
        })
    }

    fn in_company_order(&self, all: BTreeSet<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        let mut left: Vec<UnitNo> = all.into_iter().collect();
        self.units.sort(&mut left);
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let is_next = |unit: &UnitNo| !self.named_on(*unit, machine).any(|n| left.contains(&n));
            // Where they name each other in a circle, nobody will take them in any order.
            let next = left.iter().position(is_next).unwrap_or(0);
            order.push(left.remove(next));
        }
        order
    }

    /// Takes a company off its machine, with those who would lack somebody since other global units
    /// fit there then. Returns all that left.
    pub(super) fn see_off(
        &mut self,
        mut company: Vec<UnitNo>,
        machine: MachineNo,
        errand: Errand,
    ) -> Vec<UnitNo> {
        loop {
            let trial = self.begin();
            for unit in &company {
                self.unseat(*unit, machine, errand.why());
            }
            self.refit(machine);
            let behind = machine_of::left_behind(self, machine);
            if behind.is_empty() {
                return company;
            }
            self.take_back(&trial);
            let more = behind.into_iter().map(|(unit, _)| unit);
            company = self.closed(company.into_iter().chain(more).collect(), machine);
        }
    }

    /// Finds a machine, other than the one that it left, for a company; in the order of its first
    /// unit. `takes` seats it there.
    pub(super) fn lodge(
        &mut self,
        company: &[UnitNo],
        from: MachineNo,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> bool {
        let Some(first) = company.first().copied() else { return false };
        let mut takes = |index: &mut Self, machine| machine != from && takes(index, machine);
        let replacing = company.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        match self.tied_machine(company) {
            Err(_) => false,
            Ok(Some(machine)) => self.machines.slots[machine].is_present() && takes(self, machine),
            // Who replaces others makes them look for machines in the same lane meanwhile.
            Ok(None) if replacing || !self.policy.scores.is_empty() => {
                self.all_in_order(first).into_iter().any(|machine| takes(self, machine))
            }
            Ok(None) => self.hunt(first, takes).is_some(),
        }
    }

    /// Seats a company on a machine that takes all of it, in whichever order; or none of it.
    pub(super) fn seat_company(&mut self, company: &[UnitNo], machine: MachineNo) -> bool {
        let trial = self.begin();
        // Who is let in may have made somebody leave who was in another one's way.
        let replacing = company.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        let (mut come, mut left) = (Vec::with_capacity(company.len()), company.to_vec());
        while !left.is_empty() {
            let before = left.len();
            let mut rest = Vec::new();
            for unit in left {
                match self.join(unit, machine, &come, &mut 0) {
                    Ok(()) => come.push(unit),
                    Err(Denial::MachineOf(_) | Denial::Custom(_)) => rest.push(unit),
                    Err(_) if replacing => rest.push(unit),
                    Err(_) => {
                        self.take_back(&trial);
                        return false;
                    }
                }
            }
            if rest.len() == before {
                self.take_back(&trial);
                return false;
            }
            left = rest;
        }
        true
    }

    /// Whether any of a company would replace somebody on a machine.
    pub(super) fn would_replace(&self, company: &[UnitNo], machine: MachineNo) -> bool {
        company.iter().any(|unit| !replaces::replaced(self, *unit, machine).is_empty())
    }

    /// The class of a company of one that every machine treats as it does the others of its class.
    pub(super) fn class_of_company(&self, company: &[UnitNo]) -> Option<ClassNo> {
        let [unit] = company else { return None };
        (!self.is_tied(*unit)).then(|| self.units.slots[*unit].class)
    }
}
