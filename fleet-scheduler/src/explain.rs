//! Explanations: what every machine says to one unit.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fleet_core::{MachineId, Reason, Refusal, Snapshot};
use fleet_unitfile::UnitName;

use crate::index::{Answers, Index, Kind, MachineNo, PeerRef, Pending, Tie, UnitNo, Why};
use crate::policy::Policy;
use crate::rules::{Denial, Question, Rank, Teller, replaces};

type Verdicts = Vec<(MachineNo, PlacementVerdict)>;

/// What every machine says to one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The unit.
    pub unit: UnitName,
    /// The units that `MachineOf=` ties together with it, itself included, in order.
    pub group: Vec<UnitName>,
    /// Every machine that is present, in the order of their IDs, and what it says.
    pub machines: Vec<(MachineId, PlacementVerdict)>,
    /// Why the unit is nowhere, if it is nowhere and no machine would take it, or if it waits for a
    /// machine of its own.
    pub reason: Option<Reason>,
}

/// What a machine says to a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementVerdict {
    /// The unit is there and may stay; a global unit is in the machine's share.
    Here,
    /// The machine would take it.
    Eligible {
        /// How many wanted units are there.
        load: u32,
    },
    /// The machine does not take it, or not along with all that it must be beside.
    Refused(Arc<Refusal>),
}

/// What is seen of a machine's verdict without putting anybody there.
enum Glance {
    Refused(Rank, Arc<Refusal>),
    Taken,
    Unclear,
}

/// Explains where a unit is, where it could be, and why not elsewhere.
///
/// All other units are taken to stay where they are, except those that a plan would take off their
/// machines. A unit that is not wanted is explained as if it were. `None` if there is no such unit,
/// or if its record cannot be read: nobody knows what it asks for.
#[must_use]
pub fn explain(snapshot: &Snapshot, unit: &UnitName) -> Option<Explanation> {
    Index::load(Policy::default(), snapshot).explain(unit)
}

impl Index {
    /// Explains where a unit is, where it could be, and why not elsewhere; see
    /// [`explain`](crate::explain()).
    pub fn explain(&mut self, unit: &UnitName) -> Option<Explanation> {
        self.rewind();
        let number = self.units.find(unit.as_str())?;
        let slot = &self.units.slots[number];
        match slot.kind {
            Kind::Unknown | Kind::Unreadable => None,
            Kind::Single | Kind::Global => Some(self.explain_wanted(number)),
            Kind::Inactive => {
                let changes = self.pretend_wanted(number);
                let told = self.explain_wanted(number);
                self.rewind();
                changes.iter().for_each(|change| self.change(change));
                Some(told)
            }
        }
    }

    fn explain_wanted(&mut self, unit: UnitNo) -> Explanation {
        let unsettled = self.settle();
        let (verdicts, answers) = match self.units.slots[unit].kind {
            Kind::Global => (self.verdicts_for_global(unit), None),
            _ => self.verdicts_for_single(unit),
        };
        let is_refused =
            |(_, verdict): &(_, PlacementVerdict)| matches!(verdict, PlacementVerdict::Refused(_));
        let nowhere = verdicts.iter().all(is_refused);
        let unexplained = nowhere || self.stranded.contains(&unit);
        let told = Explanation {
            unit: self.units.name(unit).clone(),
            group: self.tied_names(unit),
            reason: unexplained.then(|| self.reason(unit, answers.as_ref())),
            machines: verdicts.into_iter().map(|(m, v)| (self.machines.id(m).clone(), v)).collect(),
        };
        self.pending = Some(Pending { unsettled, ..Pending::default() });
        told
    }

    fn verdicts_for_global(&self, unit: UnitNo) -> Verdicts {
        let verdict = |machine: MachineNo| {
            if self.is_on(unit, machine) {
                return PlacementVerdict::Here;
            }
            let question = Question::new(self, unit, machine);
            match question.denial_of_global() {
                Some(denial) => PlacementVerdict::Refused(Arc::new(question.refusal(denial))),
                None => PlacementVerdict::Eligible { load: question.desk.load() },
            }
        };
        self.machines.present().map(|machine| (machine, verdict(machine))).collect()
    }

    /// The verdicts; with what machines answer in all if the unit was nowhere all the time.
    fn verdicts_for_single(&mut self, unit: UnitNo) -> (Verdicts, Option<Answers<Rank>>) {
        let trial = self.begin();
        let here = self.units.slots[unit].seat;
        if let Some(here) = here.some() {
            // Elsewhere it would not be in its own way.
            self.unseat(unit, here, Why::Follows(unit));
        }
        let group = self.group_of(unit);
        let (verdicts, answers) = self.verdicts_for_group(&group, here);
        self.take_back(&trial);
        (verdicts, Some(answers).filter(|_| here == MachineNo::NONE))
    }

    fn verdicts_for_group(
        &mut self,
        group: &[UnitNo],
        here: MachineNo,
    ) -> (Verdicts, Answers<Rank>) {
        if let Some(unit) = self.alone(group) {
            return self.verdicts_for_one(unit, here);
        }
        let (mut verdicts, mut answers) = (Verdicts::new(), Answers::new());
        for (machine, glance) in self.glances(group) {
            let load = self.machines.slots[machine].desk.load();
            let refused = match glance {
                _ if here == machine => {
                    verdicts.push((machine, PlacementVerdict::Here));
                    continue;
                }
                Glance::Refused(rank, refusal) => Some((rank, refusal)),
                Glance::Taken => None,
                Glance::Unclear => {
                    let refused = self.refused(group, machine);
                    refused.map(|(_, rank, refusal)| (rank, Arc::new(refusal)))
                }
            };
            let verdict = match refused {
                Some((rank, refusal)) => {
                    answers.add(rank, load, machine);
                    PlacementVerdict::Refused(refusal)
                }
                None => PlacementVerdict::Eligible { load },
            };
            verdicts.push((machine, verdict));
        }
        (verdicts, answers)
    }

    /// The verdicts for a unit that is alone and replaces nobody.
    fn verdicts_for_one(&self, unit: UnitNo, here: MachineNo) -> (Verdicts, Answers<Rank>) {
        let mut answers = Answers::new();
        let asked = self.asked(|machine| self.denial(unit, machine));
        let mut teller = Teller::new(self, unit, &asked);
        let verdict = |(machine, denial): (MachineNo, Option<Denial>)| {
            let load = self.machines.slots[machine].desk.load();
            let verdict = match denial {
                _ if here == machine => PlacementVerdict::Here,
                None => PlacementVerdict::Eligible { load },
                Some(denial) => {
                    answers.add(denial.rank(), load, machine);
                    PlacementVerdict::Refused(teller.tell(machine, denial))
                }
            };
            (machine, verdict)
        };
        (asked.into_iter().map(verdict).collect(), answers)
    }

    /// What every machine that is present answers.
    fn asked(&self, ask: impl Fn(MachineNo) -> Option<Denial>) -> Vec<(MachineNo, Option<Denial>)> {
        let mut asked = Vec::with_capacity(self.machines.count());
        asked.extend(self.machines.present().map(|machine| (machine, ask(machine))));
        asked
    }

    /// What can be said of every machine without putting anybody there: what it says to the first
    /// unit of a group, where that would replace nobody.
    fn glances(&self, group: &[UnitNo]) -> Vec<(MachineNo, Glance)> {
        let Some(first) = group.first().copied() else { return Vec::new() };
        let replaces = |machine| !replaces::replaced(self, first, machine).is_empty();
        let asked =
            self.asked(|machine| self.denial(first, machine).filter(|_| !replaces(machine)));
        let mut teller = Teller::new(self, first, &asked);
        let glance = |(machine, denial): (MachineNo, Option<Denial>)| {
            let glance = match denial {
                Some(denial) => Glance::Refused(denial.rank(), teller.tell(machine, denial)),
                None if group.len() == 1 && !replaces(machine) => Glance::Taken,
                None => Glance::Unclear,
            };
            (machine, glance)
        };
        asked.into_iter().map(glance).collect()
    }

    /// The units that `MachineOf=` ties to one, directly or through others. A global unit ties
    /// nobody.
    fn tied_names(&self, unit: UnitNo) -> Vec<UnitName> {
        let mut all = BTreeSet::from([unit]);
        let mut next = vec![unit];
        while let Some(unit) = next.pop() {
            let slot = &self.units.slots[unit];
            if slot.kind != Kind::Single {
                continue;
            }
            let named =
                slot.peers().iter().filter_map(|peer| match (*peer, self.tie(unit, *peer)) {
                    (PeerRef::Named(other), _) | (_, Tie::To(other)) => Some(other),
                    _ => None,
                });
            let tied = named.chain(slot.followers().iter().copied());
            let single = |other: &UnitNo| self.units.slots[*other].kind == Kind::Single;
            next.extend(tied.filter(single).filter(|other| all.insert(*other)));
        }
        let mut names: Vec<UnitName> = all.iter().map(|u| self.units.name(*u).clone()).collect();
        names.sort();
        names
    }
}

/// A table for people: a line for each machine.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.unit)?;
        if self.group.len() > 1 {
            let others = self.group.iter().filter(|unit| **unit != self.unit);
            let others: Vec<&str> = others.map(UnitName::as_str).collect();
            write!(f, ", together with {}", others.join(", "))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, "\n  no machine: {reason}")?;
        }
        let width = self.machines.iter().map(|(id, _)| id.as_str().len()).max().unwrap_or(0);
        for (id, verdict) in &self.machines {
            write!(f, "\n  {:width$}  {verdict}", id.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Display for PlacementVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("here"),
            Self::Eligible { load } => write!(f, "eligible, load {load}"),
            Self::Refused(refusal) => write!(f, "refused by {}: {refusal}", refusal.rule_name()),
        }
    }
}
