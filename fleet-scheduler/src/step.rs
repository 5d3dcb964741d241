//! The steps of a plan: what happens to which unit, and why.

use std::fmt;
use std::sync::Arc;

use fleet_core::{MachineId, Refusal};
use fleet_unitfile::UnitName;

/// One change of one unit's placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The unit.
    pub unit: UnitName,
    /// What happens to it.
    pub action: StepAction,
    /// Why.
    pub cause: StepCause,
}

/// What happens to a unit's placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAction {
    /// It has none and gets one.
    Place {
        /// The machine chosen.
        machine: MachineId,
    },
    /// It leaves one machine for another.
    Move {
        /// The machine that it leaves, present or not.
        from: MachineId,
        /// The machine chosen.
        to: MachineId,
    },
    /// It loses its placement and gets no other.
    Remove {
        /// The machine that it leaves, present or not.
        from: MachineId,
    },
}

/// Why a step is taken: what made the unit leave where it was, as things stood when it left.
///
/// What is said of other units may be otherwise after the plan. A unit that [`MachineOf`] made
/// leave may find the missing one back in its place, and no room there for itself.
///
/// [`MachineOf`]: fleet_core::Rule::MachineOf
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepCause {
    /// The unit is wanted and had no machine.
    Wanted,
    /// The unit should have no placement.
    NotWanted(RemovalReason),
    /// The machine that it was on is not present.
    MachineGone,
    /// The machine that it was on no longer passes a rule.
    Refused(Arc<Refusal>),
    /// It goes where this unit is, which it must be beside.
    FollowsPeer(UnitName),
    /// This unit, on the machine that it was on, replaces it.
    ReplacedBy(UnitName),
    /// The machine that it was on is drained; see [`Index::drain`](crate::Index::drain).
    Drained,
    /// The machine that it was on has more to do than others; see
    /// [`Index::rebalance`](crate::Index::rebalance).
    Rebalanced,
}

/// Why a unit should have no placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalReason {
    /// Its desired state is inactive.
    Inactive,
    /// The cluster does not know it any more.
    Destroyed,
    /// It is a template, which never runs itself.
    Template,
    /// It is a global unit, which runs without being placed.
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
