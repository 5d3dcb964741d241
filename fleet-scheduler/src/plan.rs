//! Plans: the changes that bring the placements in line with the wanted units.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fleet_core::{Epoch, MachineId, Reason, Refusal, Revision, Snapshot};
use fleet_unitfile::UnitName;

/// The placement changes to carry out, and the units that cannot be placed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The revision of the snapshot from which the plan was made. The plan is valid only for the
    /// state at that revision.
    pub based_on: Revision,
    /// The changes, in the order in which they must be applied. The state after the last step
    /// satisfies the rules, but a state between two steps may break a rule.
    pub steps: Vec<Step>,
    /// The wanted units that have no machine after the last step, each with its reason. A plan made
    /// by [`plan_affected`](crate::Cluster::plan_affected) lists only some of them.
    pub unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

impl Plan {
    /// Creates a plan without steps, for the state at a revision.
    #[must_use]
    pub fn new(based_on: Revision) -> Self {
        Self { based_on, ..Self::default() }
    }

    /// Returns whether the plan has no steps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// A change of one unit's placement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The unit.
    pub unit: UnitName,
    /// The change.
    pub action: StepAction,
    /// The cause of the change.
    pub cause: StepCause,
}

impl Step {
    /// Creates a step, for a plan of your own.
    #[must_use]
    pub fn new(unit: UnitName, action: StepAction, cause: StepCause) -> Self {
        Self { unit, action, cause }
    }

    /// Returns the machine that the unit leaves, if there is one.
    #[must_use]
    pub fn from(&self) -> Option<&MachineId> {
        match &self.action {
            StepAction::Place { .. } => None,
            StepAction::Move { from, .. } | StepAction::Remove { from } => Some(from),
        }
    }

    /// Returns the machine that the unit comes to, if there is one.
    #[must_use]
    pub fn to(&self) -> Option<&MachineId> {
        match &self.action {
            StepAction::Place { machine } | StepAction::Move { to: machine, .. } => Some(machine),
            StepAction::Remove { .. } => None,
        }
    }
}

/// A change of a unit's placement. An executor must know all of them, so there will be no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAction {
    /// Places a unit that has no placement.
    Place {
        /// The chosen machine.
        machine: MachineId,
    },
    /// Moves a unit to another machine.
    Move {
        /// The machine that the unit leaves, present or not.
        from: MachineId,
        /// The chosen machine.
        to: MachineId,
    },
    /// Removes the placement of a unit that must not have one, or that lost its machine and fits on
    /// no other. In the second case the unit is also one of [`Plan::unplaced`].
    Remove {
        /// The machine that the unit leaves, present or not.
        from: MachineId,
    },
}

/// The cause of a step. If the unit had a machine, this is the event that made the unit leave it.
///
/// The cause is true at the time when the unit leaves, but may no longer be true after the plan.
/// For example, a unit leaves because a peer of its [`MachineOf`] is missing. The peer may then
/// return to the machine, while the unit finds no room there.
///
/// [`MachineOf`]: fleet_core::refusal::Rule::MachineOf
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepCause {
    /// The unit is wanted and had no machine.
    Wanted,
    /// The unit is wanted and has no machine, because it has left one after repeated failures.
    Failed {
        /// Number of failures on the machines that the unit avoids.
        times: u32,
    },
    /// The unit must not have a placement.
    NotWanted(RemovalReason),
    /// The unit's machine is not present.
    MachineGone,
    /// The unit's machine no longer passes a rule.
    Refused(Arc<Refusal>),
    /// The unit moves together with the given unit, which its `MachineOf=` requires.
    FollowsPeer(UnitName),
    /// The given unit replaces the moved unit on the machine that the moved unit leaves.
    ReplacedBy(UnitName),
    /// The unit's machine is drained; see [`Cluster::drain`](crate::Cluster::drain).
    Drained,
    /// The unit's machine has more units than others; see
    /// [`Cluster::rebalance`](crate::Cluster::rebalance).
    Rebalanced,
}

/// Reason for which a unit must not have a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalReason {
    /// The unit's desired state is inactive.
    Inactive,
    /// The cluster no longer has the unit.
    Destroyed,
    /// The unit is a template, which never runs itself.
    Template,
    /// The unit is global and runs without a placement.
    Global,
}

/// Returns the snapshot that results from carrying out a plan on the given snapshot.
///
/// The function changes the placements, replaces the reasons, and sets the next revision. Each new
/// placement gets the plan's revision as its epoch.
///
/// The function does not verify that the steps fit the snapshot; [`check`](crate::check()) does.
#[must_use]
pub fn apply(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    let epoch = Epoch(plan.based_on.0);
    for step in &plan.steps {
        match step.to() {
            Some(machine) => after.place(step.unit.clone(), machine.clone(), epoch),
            None => after.unplace(step.unit.as_str()),
        }
    }
    let explained: Vec<UnitName> = after.reasons().map(|(unit, _)| unit.clone()).collect();
    for unit in explained.iter().filter(|unit| !plan.unplaced.contains_key(*unit)) {
        after.remove_reason(unit.as_str());
    }
    for (unit, reason) in &plan.unplaced {
        after.put_reason(unit.clone(), reason.as_ref().clone());
    }
    after.revision = plan.based_on.next();
    after
}

/// Formats a line for each step and for each unit without a machine.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan for revision {}", self.based_on)?;
        if self.steps.is_empty() && self.unplaced.is_empty() {
            return f.write_str(": nothing to do");
        }
        for step in &self.steps {
            write!(f, "\n  {step}")?;
        }
        for (unit, reason) in &self.unplaced {
            write!(f, "\n  no machine for {unit}: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, action, cause } = self;
        match action {
            StepAction::Place { machine } => write!(f, "place {unit} on {machine}: {cause}"),
            StepAction::Move { from, to } => write!(f, "move {unit} from {from} to {to}: {cause}"),
            StepAction::Remove { from } => write!(f, "remove {unit} from {from}: {cause}"),
        }
    }
}

impl fmt::Display for StepCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted => f.write_str("it is wanted"),
            Self::Failed { times: 1 } => f.write_str("it has failed once"),
            Self::Failed { times } => write!(f, "it has failed {times} times"),
            Self::NotWanted(reason) => reason.fmt(f),
            Self::MachineGone => f.write_str("the machine is gone"),
            Self::Refused(refusal) => write!(f, "{} refuses it: {refusal}", refusal.rule_name()),
            Self::FollowsPeer(peer) => write!(f, "it follows {peer}"),
            Self::ReplacedBy(unit) => write!(f, "{unit} replaces it"),
            Self::Drained => f.write_str("the machine is drained"),
            Self::Rebalanced => f.write_str("the other machine has fewer units"),
        }
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "it is inactive",
            Self::Destroyed => "it was destroyed",
            Self::Template => "it is a template",
            Self::Global => "it is global",
        })
    }
}
