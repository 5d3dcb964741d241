//! The plan linter: carries a plan out on paper and looks for broken rules.
//!
//! It shares nothing with the planner: every rule is written once more in [`rules`], and looks at
//! the snapshots alone. It is slower than the planner and meant for tests, simulations and debug
//! builds.

mod custom;
mod rules;

use std::collections::BTreeSet;
use std::fmt;

use fleet_core::{MachineId, Refusal, Reschedule, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use self::rules::PlannedMachine;
use crate::apply::apply;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::step::{Step, StepAction};

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
    /// A step places a unit that should have no placement, or takes one off its machine whose
    /// record cannot be read, or which is to wait for its machine to come back.
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
///
/// The plan of an [`Index`](crate::Index) that lives on tells only of the units that it had to
/// try. Put all [`reasons`](crate::Index::reasons) of the index into it first, or some will be
/// missed.
#[must_use]
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    check_with(&Policy::default(), snapshot, plan)
}

/// The same, with your own rules.
///
/// Each of them is asked of every unit that the plan brought to its machine, as if the unit came
/// last: beside all who are there after the plan. Who was there before stays, whatever the rule
/// says. The planner asks at the moment at which the unit comes, and does not ask again when others
/// come after it. So a rule that those can break is reported here, and should be said of
/// both sides, as `Conflicts=` is.
///
/// ```
/// use fleet_core::{Machine, Snapshot};
/// use fleet_scheduler::{Plan, Policy, check_with};
///
/// let (policy, cluster) = (Policy::default(), Snapshot::default());
/// assert!(check_with(&policy, &cluster, &Plan::default()).is_empty());
/// ```
#[must_use]
pub fn check_with(policy: &Policy, snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    if plan.based_on != snapshot.revision {
        let (based_on, snapshot) = (plan.based_on, snapshot.revision);
        found.push(Violation::WrongRevision { based_on, snapshot });
    }
    check_steps(snapshot, plan, &mut found);
    let after = apply(snapshot, plan);
    check_reasons(snapshot, &after, plan, &mut found);
    check_rules(policy, snapshot, &after, &mut found);
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
            StepAction::Place { .. } => at.is_none(),
            StepAction::Move { from, to } => at == Some(from) && from != to,
            StepAction::Remove { from } => at == Some(from),
        };
        if !starts_right {
            found.push(Violation::WrongStart(step.clone()));
        }
        let comes = !matches!(step.action, StepAction::Remove { .. });
        let readable = snapshot.fault(unit.as_str()).is_none();
        let unwanted = comes && placeable(snapshot, unit).is_none();
        if !readable || unwanted || is_stranded(snapshot, unit) {
            found.push(Violation::MustNotMove(unit.clone()));
        }
    }
}

/// The unit of that name, if the plan has to find a machine for it.
fn placeable<'a>(snapshot: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    let unit = snapshot.unit(name.as_str())?;
    (unit.is_wanted() && !unit.is_global()).then_some(unit)
}

/// Whether a unit waits for its machine to come back, and for no other.
fn is_stranded(snapshot: &Snapshot, name: &UnitName) -> bool {
    let unit = placeable(snapshot, name);
    let never = unit.is_some_and(|unit| unit.requirements.reschedule == Reschedule::Never);
    let placement = snapshot.placement(name.as_str());
    never && placement.is_some_and(|it| snapshot.machine(it.machine.as_str()).is_none())
}

/// Who should be placed or have a reason is, and nobody else.
fn check_reasons(before: &Snapshot, after: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    // Who waits for its machine to come back is placed there, and needs a reason all the same.
    let has_machine =
        |unit| after.placement(UnitName::as_str(unit)).is_some() && !is_stranded(before, unit);
    for unit in after.units() {
        let needs_one = placeable(after, &unit.name).is_some() && !has_machine(&unit.name);
        if needs_one && !plan.unplaced.contains_key(&unit.name) {
            found.push(Violation::NoReason(unit.name.clone()));
        }
    }
    for name in plan.unplaced.keys() {
        if placeable(after, name).is_none() || has_machine(name) {
            found.push(Violation::NeedlessReason(name.clone()));
        }
    }
    let readable = after.placements().filter(|(name, _)| after.fault(name.as_str()).is_none());
    for (name, placement) in readable {
        let is_present = after.machine(placement.machine.as_str()).is_some();
        if placeable(after, name).is_none() {
            found.push(Violation::MustNotBePlaced(name.clone()));
        } else if !is_present && !is_stranded(before, name) {
            found.push(Violation::NoSuchMachine(name.clone(), placement.machine.clone()));
        }
    }
}

/// Every machine passes every rule of every unit placed there.
fn check_rules(policy: &Policy, before: &Snapshot, after: &Snapshot, found: &mut Vec<Violation>) {
    for machine in after.machines() {
        let planned = PlannedMachine::new(before, after, machine);
        for unit in planned.units() {
            let own = custom::refusals(policy, (before, after), unit, machine);
            let refusals = planned.refusals(unit).into_iter().chain(own);
            found.extend(refusals.map(|refusal| Violation::Broken {
                unit: unit.name.clone(),
                machine: machine.id.clone(),
                refusal,
            }));
        }
    }
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
                write!(f, "{unit} is on {machine}, refused by {}: {refusal}", refusal.rule_name())
            }
            Self::NoReason(unit) => write!(f, "{unit} has neither a machine nor a reason"),
            Self::NeedlessReason(unit) => write!(f, "{unit} needs no reason"),
        }
    }
}
