//! Drains: the request to empty machines, and the resulting plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fleet_core::{ActiveState, Machine, MachineId, Reason, Snapshot, UnitState};
use fleet_unitfile::UnitName;

use crate::plan::Plan;

/// A request to empty machines, with its limits.
///
/// ```
/// use fleet_scheduler::Drain;
///
/// let gently = Drain { min_available: 2, ..Drain::new(["m1".parse()?]) };
/// assert_eq!(gently.max_moves, u32::MAX);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// The machines to empty. Machines that are not present are skipped.
    pub machines: BTreeSet<MachineId>,
    /// Number of instances of a template that must stay up while units move for the drain. 0 sets
    /// no minimum. If a template has no more instances than this number, none of its instances is
    /// moved.
    pub min_available: u32,
    /// Maximum number of units that one plan moves away. A group of units that can only move
    /// together may exceed the maximum, but then nothing else moves.
    pub max_moves: u32,
    /// Units that are placed but not up. A unit that was moved is not up until it runs on its new
    /// machine, so list it here until then.
    pub down: BTreeSet<UnitName>,
}

/// The steps to take now to empty machines, and the units that have to wait.
///
/// When there are neither steps nor held units, the machines hold no single units any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainPlan {
    /// The plan to carry out. It contains the changes that would be needed anyway if the machines
    /// were cordoned, and the moves away from these machines. The plan's reasons describe the state
    /// before these moves.
    pub plan: Plan,
    /// The units that stay on these machines for now, each with its reason.
    pub held: BTreeMap<UnitName, HoldReason>,
}

/// Reason for which a unit is not moved away from a drained machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldReason {
    /// Too few instances of a template would be up. The template is that of the unit itself, of a
    /// unit that must move with it, or of a unit that must make room.
    MinAvailable {
        /// The template.
        template: UnitName,
        /// Number of instances of the template that are up, without those that this plan moves
        /// already.
        up: u32,
        /// Number of instances that must stay up.
        min_available: u32,
    },
    /// The plan already moves as many units as it may.
    MaxMoves {
        /// That maximum.
        max_moves: u32,
    },
    /// The record of this unit cannot be read. The unit is the held unit itself or one that must be
    /// on the same machine.
    Unreadable(UnitName),
    /// No other machine accepts the unit together with the units that must be on the same machine.
    NowhereElse(Arc<Reason>),
}

impl Drain {
    /// Creates a drain of these machines without a minimum and without a maximum.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = MachineId>) -> Self {
        let machines = machines.into_iter().collect();
        Self { machines, min_available: 0, max_moves: u32::MAX, down: BTreeSet::new() }
    }

    /// Creates the drain of those `machines` that have a drain intent and at least one placed unit.
    /// Returns `None` if no machine has both. Other machines of the snapshot are ignored.
    ///
    /// One plan empties all machines, so it uses the highest minimum of all drain intents. A unit
    /// counts as up if its machine reports it as active. The reported states are read only if the
    /// minimum is not 0. The cost is proportional to the number of placements.
    pub fn from_intents<'a>(
        snapshot: &Snapshot,
        machines: impl IntoIterator<Item = &'a Machine>,
    ) -> Option<Self> {
        let is_used = |id| snapshot.placements_on(id).next().is_some();
        let min_available =
            |machine: &'a Machine| Some((&machine.id, machine.intent?.min_available()?));
        let wanted = machines.into_iter().filter_map(min_available).filter(|(id, _)| is_used(id));
        let wanted: BTreeMap<&MachineId, u32> = wanted.collect();
        let min_available = wanted.values().max().copied()?;
        let down = if min_available > 0 { down(snapshot) } else { BTreeSet::new() };
        Some(Self { min_available, down, ..Self::new(wanted.into_keys().cloned()) })
    }
}

/// Returns the placed units that are not reported as active on their machine.
pub(crate) fn down(snapshot: &Snapshot) -> BTreeSet<UnitName> {
    let is_up = |state: &Arc<UnitState>| {
        matches!(state.systemd.active, ActiveState::Active | ActiveState::Reloading)
    };
    let down = snapshot.placements().filter(|(unit, at)| {
        !snapshot.state(unit.as_str(), at.machine.as_str()).is_some_and(is_up)
    });
    down.map(|(unit, _)| unit.clone()).collect()
}

/// Formats the plan, followed by a line for each held unit.
impl fmt::Display for DrainPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)?;
        for (unit, reason) in &self.held {
            write!(f, "\n  {unit} stays for now: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinAvailable { template, up, min_available } => {
                let instances = if *up == 1 { "instance" } else { "instances" };
                let are = if *up == 1 { "is" } else { "are" };
                write!(
                    f,
                    "{up} {instances} of {template} {are} up and {min_available} must stay up"
                )
            }
            Self::MaxMoves { max_moves } => write!(f, "one plan moves at most {max_moves} units"),
            Self::Unreadable(unit) => write!(f, "the record of {unit} cannot be read"),
            Self::NowhereElse(reason) => reason.fmt(f),
        }
    }
}
