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
/// let gently = Drain::new(["m1".parse()?]).keep_available(2);
/// assert_eq!(gently.max_moves, u32::MAX);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drain {
    /// The machines to empty. Machines that are not present are skipped.
    pub machines: BTreeSet<MachineId>,
    /// Number of instances of each template that must stay up while units move for the drain. For
    /// example, if the number is 2 and three instances are up, one plan moves one of them. If only
    /// two are up, the plan moves neither. 0 sets no minimum.
    pub min_available: u32,
    /// Maximum number of units that one plan moves away. A group of units that must move together
    /// may exceed the maximum if the plan moves no other unit. 0 forbids all moves.
    pub max_moves: u32,
    /// Placed units that are not up. List a moved unit here until it runs on its new machine.
    pub down: BTreeSet<UnitName>,
}

/// The steps to take now to empty machines, and the units that have to wait.
///
/// If there are neither steps nor held units, no single (non-global) units are left on the
/// machines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainPlan {
    /// The plan to carry out. It contains the steps of an ordinary plan for which the drained
    /// machines count as cordoned, followed by the moves away from these machines. The reasons for
    /// unplaced units describe the state before these moves.
    pub plan: Plan,
    /// The units that stay on these machines for now, each with its reason.
    pub held: BTreeMap<UnitName, HoldReason>,
}

/// Reason for which a unit is not moved away from a drained machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldReason {
    /// Too few instances of a template would stay up. The template is that of the held unit, of a
    /// unit that must move with it, or of a unit that must make room.
    MinAvailable {
        /// The template.
        template: UnitName,
        /// Number of instances of the template that are up, without those that this plan has
        /// already moved.
        up: u32,
        /// Number of instances that must stay up.
        min_available: u32,
    },
    /// The plan already moves as many units as it may.
    MaxMoves {
        /// Maximum number of units that one plan moves.
        max_moves: u32,
    },
    /// The stored record of this unit cannot be read. This is the held unit itself or a unit that
    /// must move with it.
    Unreadable(UnitName),
    /// No other machine accepts the unit together with the units that must move with it.
    NowhereElse(Arc<Reason>),
}

impl Drain {
    /// Creates a drain of these machines without a minimum and without a maximum.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = MachineId>) -> Self {
        let machines = machines.into_iter().collect();
        Self { machines, min_available: 0, max_moves: u32::MAX, down: BTreeSet::new() }
    }

    /// Keeps that many instances of each template up.
    #[must_use]
    pub fn keep_available(self, min_available: u32) -> Self {
        Self { min_available, ..self }
    }

    /// Moves at most that many units away in one plan.
    #[must_use]
    pub fn move_at_most(self, max_moves: u32) -> Self {
        Self { max_moves, ..self }
    }

    /// Sets the placed units that are not up.
    #[must_use]
    pub fn with_down(self, down: impl IntoIterator<Item = UnitName>) -> Self {
        Self { down: down.into_iter().collect(), ..self }
    }

    /// Creates the drain of those `machines` that have a drain intent and at least one placed unit.
    /// Returns `None` if there is no such machine.
    ///
    /// One plan drains all these machines, so the highest minimum of their intents applies to all
    /// of them. A unit counts as up if its machine reports it as active. The function checks this
    /// for every placement of the snapshot, but only if the minimum is not 0.
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
