//! The plan linter: applies a plan to a snapshot and looks for broken rules.
//!
//! The linter shares no code with the planner, so that it can find the planner's mistakes. The
//! module [`rules`] implements every rule a second time, on the snapshots alone. The linter is
//! slower than the planner, and meant for tests, simulations and debug builds.

mod rules;

use std::collections::BTreeSet;
use std::fmt;

use fleet_core::requirements::Reschedule;
use fleet_core::{MachineId, Refusal, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use self::rules::PlannedMachine;
use crate::plan::Plan;
use crate::plan::apply;
use crate::plan::{Step, StepAction};
use crate::policy::Policy;

/// A defect of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The plan was made from another state.
    WrongRevision {
        /// The revision from which the plan was made.
        based_on: Revision,
        /// The revision of the snapshot.
        snapshot: Revision,
    },
    /// A step does not fit the placement of its unit, for one of these reasons:
    ///
    /// - It places a unit that already has a placement.
    /// - It moves or removes a unit from a machine where the unit is not placed.
    /// - It moves a unit to its own machine.
    WrongStart(Step),
    /// The unit has more than one step.
    SeveralSteps(UnitName),
    /// The unit has a step that it must not have, for one of these reasons:
    ///
    /// - The unit's record is unreadable, so its placement must not change.
    /// - The unit waits for its machine to return (`Reschedule=never`), so its placement must not
    ///   change.
    /// - The step places or moves the unit, but the unit is not wanted or is global.
    MustNotMove(UnitName),
    /// The unit has a placement after the plan and must not have one.
    MustNotBePlaced(UnitName),
    /// After the plan, the unit is placed on a machine that is not present.
    NoSuchMachine(UnitName, MachineId),
    /// After the plan, the machine of a placed unit does not pass a rule.
    Broken {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
        /// The broken rule with its details.
        refusal: Refusal,
    },
    /// A wanted unit has neither a machine nor a reason.
    NoReason(UnitName),
    /// A unit has a reason although it has a machine or needs none.
    NeedlessReason(UnitName),
}

/// Returns all violations of a plan for a snapshot. The result is empty if the plan is correct.
///
/// A plan made by [`Cluster::plan_affected`](crate::Cluster::plan_affected) lists only some of the
/// reasons, so the result contains a violation for every other waiting unit.
#[must_use]
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    check_with(&Policy::default(), snapshot, plan)
}

/// Returns all violations of a plan, including violations of custom rules.
///
/// A custom rule is checked for every unit that the plan brought to its machine, as if that unit
/// came last. The rule sees all units that are on the machine after the plan. Units that were on
/// the machine before may stay, even if the rule refuses them.
///
/// The planner checks the rule only when the unit comes, not when further units come. If a later
/// unit breaks the rule of an earlier one, this function therefore reports a violation. To avoid
/// that, write the rule so that it also refuses the later unit, as `Conflicts=` does.
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
    let mut stepped = BTreeSet::new();
    for step in &plan.steps {
        let unit = &step.unit;
        if !stepped.insert(unit) {
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

/// Returns the unit of this name if it is wanted and not global, so that the plan has to find a
/// machine for it.
fn placeable<'a>(snapshot: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    let unit = snapshot.unit(name.as_str())?;
    (unit.is_wanted() && !unit.is_global()).then_some(unit)
}

/// Returns whether a unit waits for its own machine to return.
fn is_stranded(snapshot: &Snapshot, name: &UnitName) -> bool {
    let unit = placeable(snapshot, name);
    let never = unit.is_some_and(|unit| unit.requirements.reschedule == Reschedule::Never);
    let placement = snapshot.placement(name.as_str());
    never && placement.is_some_and(|it| snapshot.machine(it.machine.as_str()).is_none())
}

/// Checks that every wanted single unit has either a machine or a reason, and that no other unit
/// has a machine or a reason. Also checks that each of these machines is present.
fn check_reasons(before: &Snapshot, after: &Snapshot, plan: &Plan, found: &mut Vec<Violation>) {
    // A unit that waits for its own machine is placed there, and needs a reason as well.
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

/// Checks every rule of every placed unit on its machine.
fn check_rules(policy: &Policy, before: &Snapshot, after: &Snapshot, found: &mut Vec<Violation>) {
    for machine in after.machines() {
        let planned = PlannedMachine::new(before, after, machine);
        for unit in planned.units() {
            let own = rules::custom_refusals(policy, (before, after), unit, machine);
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
                write!(
                    f,
                    "the plan is for revision {based_on}, but the snapshot has revision {snapshot}"
                )
            }
            Self::WrongStart(step) => {
                write!(f, "the step does not start at the placement of its unit: {step}")
            }
            Self::SeveralSteps(unit) => write!(f, "the plan has more than one step for {unit}"),
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
