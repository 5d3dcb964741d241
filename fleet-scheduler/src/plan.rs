//! Plans: the changes that bring the placements in line with the wanted units.

use std::collections::BTreeMap;
use std::fmt;

use std::sync::Arc;

use fleet_core::{Reason, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::index::Index;
use crate::policy::Policy;
use crate::step::Step;

/// The placement changes to carry out, and the units that cannot be placed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The revision of the snapshot from which the plan was made. The plan is valid only for the
    /// state at that revision.
    pub based_on: Revision,
    /// The changes, in the order in which they must be applied. The state after the last step
    /// satisfies the rules, but a state between two steps may break a rule.
    pub steps: Vec<Step>,
    /// The wanted units that have no machine after the last step, each with its reason. The plan of
    /// a long-lived [`Index`] lists only the units that it had to try, such as those affected by a
    /// change.
    pub unplaced: BTreeMap<UnitName, Arc<Reason>>,
}

impl Plan {
    /// Returns whether the plan has no steps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Decides which machine runs which unit.
///
/// A unit is wanted if its desired state is loaded or launched and it is not a template. The
/// decision has four stages:
///
/// 1. Removes placements of units that are no longer wanted or are global.
/// 2. Keeps a placement if its machine is present and still passes every rule. To move units for
///    other reasons, use [`Index::rebalance`] or [`Index::drain`].
/// 3. Places wanted units without a machine, in the order of their names. Units that `MachineOf=`
///    ties together go to one machine. Of the machines that pass every [`Rule`](fleet_core::Rule),
///    the one with the fewest wanted units is chosen, global units included. Among equal machines,
///    it is the one with the lowest ID. If the new unit replaces units there, they move to another
///    machine that passes every rule. If one of them cannot move, the machine refuses the new unit.
/// 4. Separates units that were placed on the same machine before one of them began to replace the
///    other. The replaced unit moves if another machine accepts it.
///
/// The plan depends only on the snapshot, so equal snapshots give equal plans. If a plan was
/// [applied](crate::apply), the plan of the resulting state has no steps.
///
/// A placed unit with an unreadable record stays, because it is unknown whether the unit is wanted.
/// Other units are placed as if the unreadable unit were running.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    Index::load(Policy::default(), snapshot).plan()
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
