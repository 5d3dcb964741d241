//! The steps of a plan, each with its cause.

use std::fmt;
use std::sync::Arc;

use fleet_core::{MachineId, Refusal};
use fleet_unitfile::UnitName;

/// A change of one unit's placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The unit.
    pub unit: UnitName,
    /// The change.
    pub action: StepAction,
    /// The cause of the change.
    pub cause: StepCause,
}

/// A change of a unit's placement.
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
    /// Removes the placement of a unit.
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
/// [`MachineOf`]: fleet_core::Rule::MachineOf
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepCause {
    /// The unit is wanted and had no machine.
    Wanted,
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
    /// The unit's machine is drained; see [`Index::drain`](crate::Index::drain).
    Drained,
    /// The unit's machine has more units than others; see
    /// [`Index::rebalance`](crate::Index::rebalance).
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
