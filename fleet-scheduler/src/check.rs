//! The plan linter: carries a plan out on paper and looks for broken rules.
//!
//! It shares no data structure with the planner, only the questions that can be asked of one unit
//! and one machine, or of two units. It is slower than the planner and meant for tests, simulations
//! and debug builds.

use std::collections::BTreeSet;
use std::fmt;

use fleet_core::{Machine, MachineId, Refusal, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::apply::apply;
use crate::plan::Plan;
use crate::rules::{NOTHING, Party, conflicts, machine_id, metadata, replaces};
use crate::share::share;
use crate::step::{Action, Step};

/// Something that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The plan was made of another state.
    WrongRevision {
        /// The revision that the plan was made of.
        based_on: Revision,
        /// The revision of the snapshot.
        snapshot: Revision,
    },
    /// A step does not start from where the unit is: it places a unit that has a placement, moves
    /// or removes one from where it is not, or moves it to where it is.
    WrongStart(Step),
    /// There is more than one step for the unit.
    SeveralSteps(UnitName),
    /// A step places a unit that should have no placement, or whose record cannot be read.
    MustNotMove(UnitName),
    /// A unit has a placement afterwards that should have none.
    MustNotBePlaced(UnitName),
    /// A unit is placed afterwards on a machine that is not present.
    NoSuchMachine(UnitName, MachineId),
    /// A machine that a unit is placed on afterwards does not pass a rule.
    Broken {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
        /// The rule, and what it saw.
        refusal: Refusal,
    },
    /// A wanted unit has neither a machine nor a reason.
    NoReason(UnitName),
    /// A unit has a reason for having no machine, and has one or wants none.
    NeedlessReason(UnitName),
}

/// Looks for everything that is wrong with a plan for a snapshot; empty if nothing is.
#[must_use]
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    if plan.based_on != snapshot.revision {
        let (based_on, snapshot) = (plan.based_on, snapshot.revision);
        found.push(Violation::WrongRevision { based_on, snapshot });
    }
    check_steps(snapshot, plan, &mut found);
    let after = apply(snapshot, plan);
    check_books(&after, plan, &mut found);
    check_rules(snapshot, &after, &mut found);
    found
}

fn check_steps(snapshot: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for step in &plan.steps {
        let unit = &step.unit;
        if !seen.insert(unit) {
            found.push(Violation::SeveralSteps(unit.clone()));
        }
        let at = snapshot.placement(unit.as_str()).map(|placement| &placement.machine);
        let starts_right = match &step.action {
            Action::Place { .. } => at.is_none(),
            Action::Move { from, to } => at == Some(from) && from != to,
            Action::Remove { from } => at == Some(from),
        };
        if !starts_right {
            found.push(Violation::WrongStart(step.clone()));
        }
        let comes = !matches!(step.action, Action::Remove { .. });
        let readable = snapshot.fault(unit.as_str()).is_none();
        if !readable || (comes && placeable(snapshot, unit).is_none()) {
            found.push(Violation::MustNotMove(unit.clone()));
        }
    }
}

/// The unit of that name, if the plan has to find a machine for it.
fn placeable<'a>(snapshot: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    let unit = snapshot.unit(name.as_str())?;
    (unit.is_wanted() && !unit.is_global()).then_some(unit)
}

/// Who should be placed or have a reason is, and nobody else.
fn check_books(after: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    for unit in after.units() {
        let name = &unit.name;
        let wanted = placeable(after, name).is_some();
        let is_placed = after.placement(name.as_str()).is_some();
        let has_reason = plan.unplaced.contains_key(name);
        if wanted && !is_placed && !has_reason {
            found.push(Violation::NoReason(name.clone()));
        }
    }
    for name in plan.unplaced.keys() {
        if placeable(after, name).is_none() || after.placement(name.as_str()).is_some() {
            found.push(Violation::NeedlessReason(name.clone()));
        }
    }
    for (name, placement) in after.placements() {
        if after.fault(name.as_str()).is_some() {
            continue;
        }
        if placeable(after, name).is_none() {
            found.push(Violation::MustNotBePlaced(name.clone()));
        } else if after.machine(placement.machine.as_str()).is_none() {
            found.push(Violation::NoSuchMachine(name.clone(), placement.machine.clone()));
        }
    }
}

/// Every machine passes every rule of every unit placed there.
fn check_rules(before: &Snapshot, after: &Snapshot, found: &mut Vec<Violation>) {
    for machine in after.machines() {
        let there = placed_on(after, &machine.id);
        let globals = share(after, &machine.id).units.into_keys();
        let names = there.iter().map(|party| party.name.clone());
        let present: BTreeSet<UnitName> = globals.chain(names).collect();
        for unit in there.iter().filter_map(|party| placeable(after, party.name)) {
            let mut refusals = own_refusals(unit, machine, &present);
            refusals.extend(conflicts::refusal(party(unit), &there));
            refusals.extend(not_replaced(before, unit, machine, &there));
            found.extend(refusals.into_iter().map(|refusal| Violation::Broken {
                unit: unit.name.clone(),
                machine: machine.id.clone(),
                refusal,
            }));
        }
    }
}

/// The units that are placed on a machine, in order; those that cannot be read demand nothing.
fn placed_on<'a>(snapshot: &'a Snapshot, machine: &MachineId) -> Vec<Party<'a>> {
    let placed = snapshot.placements().filter(|(_, placement)| placement.machine == *machine);
    let parties = placed.filter_map(|(name, _)| match placeable(snapshot, name) {
        Some(unit) => Some(party(unit)),
        None => snapshot.fault(name.as_str()).map(|_| Party { name, requirements: &NOTHING }),
    });
    parties.collect()
}

fn party(unit: &Unit) -> Party<'_> {
    Party { name: &unit.name, requirements: &unit.requirements }
}

/// What a unit misses on its machine.
fn own_refusals(unit: &Unit, machine: &Machine, present: &BTreeSet<UnitName>) -> Vec<Refusal> {
    let requirements = &unit.requirements;
    let missing =
        requirements.machine_of.iter().filter(|peer| !present.iter().any(|unit| peer.covers(unit)));
    let missing = missing.map(|peer| Refusal::MachineOf { peer: peer.clone() });
    let lasting = machine_id::refusal(requirements, machine).into_iter();
    lasting.chain(metadata::refusal(requirements, machine)).chain(missing).collect()
}

/// Whom a unit replaces and is beside all the same. Where both were placed there before, the other
/// had nowhere to go.
fn not_replaced(
    before: &Snapshot,
    unit: &Unit,
    machine: &Machine,
    there: &[Party<'_>],
) -> Vec<Refusal> {
    let was_here = |name: &UnitName| {
        before.placement(name.as_str()).is_some_and(|placement| placement.machine == machine.id)
    };
    let broken = there.iter().filter(|other| {
        let both = was_here(&unit.name) && was_here(other.name);
        replaces::replaces(party(unit), **other) && !both
    });
    broken.map(|other| Refusal::Replaces { with: other.name.clone(), theirs: false }).collect()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongRevision { based_on, snapshot } => {
                write!(f, "the plan is for revision {based_on}, the snapshot is of {snapshot}")
            }
            Self::WrongStart(step) => write!(f, "the unit is not where the step starts: {step}"),
            Self::SeveralSteps(unit) => write!(f, "there is more than one step for {unit}"),
            Self::MustNotMove(unit) => write!(f, "no step may move {unit}"),
            Self::MustNotBePlaced(unit) => write!(f, "{unit} must not be placed"),
            Self::NoSuchMachine(unit, machine) => {
                write!(f, "{unit} is on {machine}, which is not present")
            }
            Self::Broken { unit, machine, refusal } => {
                write!(f, "{unit} is on {machine}, refused by {}: {refusal}", refusal.rule())
            }
            Self::NoReason(unit) => write!(f, "{unit} has neither a machine nor a reason"),
            Self::NeedlessReason(unit) => write!(f, "{unit} needs no reason"),
        }
    }
}
