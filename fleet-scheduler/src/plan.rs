//! The plan: from what is wanted and what is placed to who should run what.

use std::collections::BTreeMap;
use std::fmt;

use std::sync::Arc;

use fleet_core::{Reason, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::index::Index;
use crate::policy::Policy;
use crate::step::Step;

/// What has to change, and what cannot be had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The revision of the snapshot that the plan was made of. It is right for that state alone.
    pub based_on: Revision,
    /// The changes, in the order in which they must be applied. The state after the last one is
    /// what was decided; a state between two of them may break a rule for the moment.
    pub steps: Vec<Step>,
    /// The wanted units that will have no machine after the last step, and why. The plan of an
    /// [`Index`] that has lived on tells only of those that it had to try.
    pub unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

impl Plan {
    /// Whether nothing has to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Decides which machine runs which unit.
///
/// A unit is wanted if its desired state is not inactive and it is not a template. In this order:
///
/// 1. Placed units that are not wanted any more, or are global now, are removed.
/// 2. Placed units stay where they are if their machine is present and still passes every rule.
///    Nothing else makes a unit move, unless [`Index::rebalance`] or [`Index::drain`] is asked.
/// 3. Wanted units without a machine are placed, in the order of their names; those that
///    `MachineOf=` ties together are placed together. Of the machines that pass every
///    [`Rule`](fleet_core::Rule), the one with the fewest wanted units is taken, global ones
///    counted; of several such, the one with the lowest ID. What a unit replaces there moves to
///    another machine that passes every rule; where there is none, the unit is refused.
/// 4. A unit that was placed beside another one before that began to replace it moves away, too, if
///    it has somewhere to go.
///
/// The plan depends on nothing but the snapshot: the same snapshot gives the same plan, and the
/// plan of a state to which a plan was [applied](crate::apply) is empty.
///
/// A placed unit whose record cannot be read is left alone, for nobody knows whether it is wanted;
/// others respect that it is there.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    Index::load(Policy::default(), snapshot).plan()
}

/// A report for people: a line for each step and for each unit without a machine.
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
