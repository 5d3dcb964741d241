//! Why a unit has no machine: what is true when all is placed that can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{MachineId, NearestMachine, Reason, Refusal, Tally};
use fleet_unitfile::UnitName;

use crate::index::{Answers, ClassNo, Index, Kind, Lookup, MachineNo, PeerRef, Tie, UnitNo, Wait};
use crate::rules::{Denial, Question, Rank, replaces};

/// How many units a reason spells out at most. Of a longer circle only the next unit is told, and
/// the units of a larger group are not listed.
pub(crate) const MOST_TOLD: usize = 64;

/// Reasons that are those of several units.
#[derive(Default)]
struct Shared {
    by_class: Lookup<ClassNo, Arc<Reason>>,
    by_group: Lookup<UnitNo, Arc<Reason>>,
}

/// Who of a group a machine refuses first, and why.
type Answer = (UnitNo, Denial);

impl Index {
    /// The reasons of units that have no machine.
    pub(super) fn reasons_of(&mut self, units: &[UnitNo]) -> BTreeMap<UnitName, Arc<Reason>> {
        let mut shared = Shared::default();
        let mut told = Vec::with_capacity(units.len());
        for unit in units {
            let reason = self.shared_reason(*unit, &mut shared);
            told.push((self.units.name(*unit).clone(), reason));
        }
        told.into_iter().collect()
    }

    fn shared_reason(&mut self, unit: UnitNo, shared: &mut Shared) -> Arc<Reason> {
        if self.stranded.contains(&unit) || self.is_tied(unit) {
            if let Some(reason) = self.reason_without_machines(unit) {
                return Arc::new(reason);
            }
        } else {
            let class = self.units.slots[unit].class;
            if let Some(reason) = shared.by_class.get(&class) {
                return reason.clone();
            }
            let reason = Arc::new(self.reason_of_class(unit));
            shared.by_class.insert(class, reason.clone());
            return reason;
        }
        let key = self.parked_with(unit);
        if let Some(reason) = key.and_then(|key| shared.by_group.get(&key)) {
            return reason.clone();
        }
        let group = self.group_of(unit);
        let reason = Arc::new(self.reason_by_machines(&group));
        if let Some(key) = key {
            shared.by_group.insert(key, reason.clone());
        }
        reason
    }

    /// The group that a unit is set aside with, if it is.
    fn parked_with(&self, unit: UnitNo) -> Option<UnitNo> {
        let slot = &self.units.slots[unit];
        slot.ties.as_ref().filter(|_| slot.wait == Wait::Tied).map(|ties| ties.group)
    }

    /// The reason of one unit that no machine takes. What is wrong with its peers comes first, for
    /// that is so on any machine. What machines answer need not be asked again where it is known.
    pub(crate) fn reason(&mut self, unit: UnitNo, known: Option<&Answers<Rank>>) -> Reason {
        if let Some(reason) = self.reason_without_machines(unit) {
            return reason;
        }
        let group = self.group_of(unit);
        match known {
            Some(answers) => self.reason_from(&group, answers),
            None => self.reason_by_machines(&group),
        }
    }

    /// The waiting units that a waiting unit must be placed with, itself included.
    pub(crate) fn group_of(&self, unit: UnitNo) -> Vec<UnitNo> {
        let component = self.component(unit);
        let group = component.groups.into_iter().find(|group| group.contains(&unit));
        group.unwrap_or_else(|| vec![unit])
    }

    pub(super) fn reason_without_machines(&self, unit: UnitNo) -> Option<Reason> {
        if self.stranded.contains(&unit) {
            let machine = self.machines.id(self.units.slots[unit].placed).clone();
            return Some(Reason::NotRescheduled { machine });
        }
        self.missing_peer(unit)
            .or_else(|| self.told_circle(unit))
            .or_else(|| self.peers_apart(unit))
    }

    /// The first peer, in the order written, that is unknown or inactive.
    fn missing_peer(&self, unit: UnitNo) -> Option<Reason> {
        let slot = &self.units.slots[unit];
        let vain = |peer: &PeerRef| self.tie(unit, *peer) == Tie::Vain;
        let at = slot.peers().iter().position(vain)?;
        let peer = slot.requirements.as_ref()?.machine_of.get(at)?.clone();
        let is_inactive = |other: UnitNo| self.units.slots[other].kind == Kind::Inactive;
        let inactive = match slot.peers()[at] {
            PeerRef::Named(other) => is_inactive(other),
            PeerRef::Matching(pattern) => {
                self.matching(pattern).any(|other| other != unit && is_inactive(other))
            }
        };
        Some(if inactive { Reason::PeerInactive { peer } } else { Reason::PeerUnknown { peer } })
    }

    fn told_circle(&self, unit: UnitNo) -> Option<Reason> {
        let circle = self.circle(unit, MOST_TOLD)?;
        Some(Reason::Cycle { units: self.names_of(&circle) })
    }

    /// The first two peers, in the order written, that are on different machines.
    fn peers_apart(&self, unit: UnitNo) -> Option<Reason> {
        let mut seated = self.units.slots[unit].peers().iter().filter_map(|peer| match peer {
            PeerRef::Named(other) => Some((*other, self.units.slots[*other].seat.some()?)),
            PeerRef::Matching(_) => None,
        });
        let one = seated.next()?;
        let other = seated.find(|(_, machine)| *machine != one.1)?;
        let named = |(unit, machine): (UnitNo, MachineNo)| -> (UnitName, MachineId) {
            (self.units.name(unit).clone(), self.machines.id(machine).clone())
        };
        Some(Reason::PeersApart { one: named(one), other: named(other) })
    }

    fn names_of(&self, units: &[UnitNo]) -> Vec<UnitName> {
        units.iter().map(|unit| self.units.name(*unit).clone()).collect()
    }

    pub(super) fn reason_by_machines(&mut self, group: &[UnitNo]) -> Reason {
        let answers = self.count(group);
        self.reason_from(group, &answers)
    }

    /// The reason of units that nothing ties to others, of one class.
    fn reason_of_class(&mut self, unit: UnitNo) -> Reason {
        if let Some(answers) = self.count_few(unit) {
            return self.reason_from(&[unit], &answers);
        }
        match self.census(unit) {
            Some(answers) => self.reason_from(&[unit], &answers),
            None => self.reason_by_machines(&[unit]),
        }
    }

    /// The reason that comes of what machines answer.
    fn reason_from<R>(&mut self, group: &[UnitNo], answers: &Answers<R>) -> Reason {
        let Ok(machines @ 1..) = u32::try_from(self.machines.count()) else {
            return Reason::NoMachines;
        };
        let tallies = answers.tallies.values().filter_map(|(machines, machine)| {
            let (unit, refusal) = self.told(group, *machine)?;
            let example = self.machines.id(*machine).clone();
            Some(Tally { machines: *machines, example, unit, refusal })
        });
        let tallies = tallies.collect();
        let nearest = answers.nearest.as_ref().and_then(|(_, _, machine)| {
            let (unit, refusal) = self.told(group, *machine)?;
            Some(NearestMachine { machine: self.machines.id(*machine).clone(), unit, refusal })
        });
        if group.len() == 1 || group.len() > MOST_TOLD {
            return Reason::NoMachineFits { machines, tallies, nearest };
        }
        let mut names = self.names_of(group);
        names.sort();
        Reason::NoMachineFitsGroup { group: names, machines, tallies, nearest }
    }

    /// Asks all machines about a group.
    fn count(&mut self, group: &[UnitNo]) -> Answers<Rank> {
        let mut answers = Answers::new();
        let machines: Vec<MachineNo> = self.machines.present().collect();
        for machine in machines {
            if let Some((_, denial)) = self.answer(group, machine) {
                answers.add(denial.rank(), self.machines.slots[machine].desk.load(), machine);
            }
        }
        answers
    }

    /// What a machine says to a group, with names; and to whom of it, if there are several.
    fn told(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
    ) -> Option<(Option<UnitName>, Refusal)> {
        let (unit, _, refusal) = self.refused(group, machine)?;
        let whom = (group.len() > 1).then(|| self.units.name(unit).clone());
        Some((whom, refusal))
    }

    /// Who of a group a machine refuses first, by which rule, and what it says with names.
    pub(crate) fn refused(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
    ) -> Option<(UnitNo, Rank, Refusal)> {
        if let Some(unit) = self.alone(group) {
            let question = Question::new(self, unit, machine);
            let denial = question.denial()?;
            return Some((unit, denial.rank(), question.refusal(denial)));
        }
        self.trial(group, machine, |index, unit, denial| {
            let leaving = index.leaving(&replaces::replaced(index, unit, machine), machine);
            let question = Question { leaving: &leaving, ..Question::new(index, unit, machine) };
            (unit, denial.rank(), question.refusal(denial))
        })
    }

    fn answer(&mut self, group: &[UnitNo], machine: MachineNo) -> Option<Answer> {
        match self.alone(group) {
            Some(unit) => self.denial(unit, machine).map(|denial| (unit, denial)),
            None => self.trial(group, machine, |_, unit, denial| (unit, denial)),
        }
    }

    /// The unit of a group that is alone and replaces nobody: whether it is taken can be seen
    /// without trying.
    pub(crate) fn alone(&self, group: &[UnitNo]) -> Option<UnitNo> {
        let [unit] = group else { return None };
        self.class(*unit).replaces.is_empty().then_some(*unit)
    }

    /// Puts a group on a machine, and takes it back; what is made of the refusal, if it is refused,
    /// at the moment when it is.
    fn trial<T>(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
        made: impl FnOnce(&Self, UnitNo, Denial) -> T,
    ) -> Option<T> {
        let trial = self.begin();
        let mut refused = None;
        for (index, unit) in group.iter().enumerate() {
            if let Err(denial) = self.join(*unit, machine, &group[..index], &mut 0) {
                refused = Some((*unit, denial));
                break;
            }
        }
        let told = refused.map(|(unit, denial)| made(self, unit, denial));
        self.take_back(&trial);
        told
    }
}
