//! Draining: what is asked for when machines are to be emptied, and what is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fleet_core::{ActiveState, Machine, MachineId, Reason, Snapshot, UnitState};
use fleet_unitfile::UnitName;

use crate::plan::Plan;

/// Machines that are to be emptied, and how careful one has to be.
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
    /// The machines. Those that are not present are passed over.
    pub machines: BTreeSet<MachineId>,
    /// How many instances of a template must be up at any time, if units are moved for the drain.
    /// 0 asks for nothing. A template that has no more instances than that is never moved.
    pub min_available: u32,
    /// How many units one plan moves away at most. Units that can only move together do so even if
    /// they are more, but then nobody else does.
    pub max_moves: u32,
    /// The units that are placed and not up just now. Whoever moves is not up either until it is
    /// left out here, so name the moved ones until they are seen to run.
    pub down: BTreeSet<UnitName>,
}

/// What is to be done now to empty machines, and what has to wait.
///
/// The machines are empty of single units once there are neither steps nor units held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainPlan {
    /// The plan that is to be carried out: what would have to change anyway if the machines were
    /// cordoned, and the units that move away from them. Its reasons are those that hold before
    /// the latter move.
    pub plan: Plan,
    /// The units that stay on these machines for now, and why.
    pub held: BTreeMap<UnitName, HoldReason>,
}

/// Why a unit is not moved away from a machine that is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldReason {
    /// Too few instances of a template would be up: of its own, of that of a unit that would have
    /// to come along, or of one that would have to make room.
    MinAvailable {
        /// The template.
        template: UnitName,
        /// How many of its instances are up, those not counted that this plan moves already.
        up: u32,
        /// How many must be.
        min_available: u32,
    },
    /// This plan moves as many units as it may.
    MaxMoves {
        /// How many that are.
        max_moves: u32,
    },
    /// The record of this unit cannot be read; it is the unit itself or must be beside it.
    Unreadable(UnitName),
    /// No other machine takes it, or not along with all that must be beside it.
    NowhereElse(Arc<Reason>),
}

impl Drain {
    /// These machines, all at once and without regard for who is up.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = MachineId>) -> Self {
        let machines = machines.into_iter().collect();
        Self { machines, min_available: 0, max_moves: u32::MAX, down: BTreeSet::new() }
    }

    /// The drain of those of the `machines` that people said are to be emptied, as far as somebody
    /// is placed there; nothing if there is none. The others of the snapshot are not looked at.
    ///
    /// Of several minimums the highest counts, since one plan empties all. Who is up is known from
    /// what was published: a unit is if its machine says that it is active. That is looked up only
    /// if there is a minimum, and costs what is placed.
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

/// The units that are placed and do not run there, as far as is known.
pub(crate) fn down(snapshot: &Snapshot) -> BTreeSet<UnitName> {
    let is_up = |state: &Arc<UnitState>| {
        matches!(state.systemd.active, ActiveState::Active | ActiveState::Reloading)
    };
    let down = snapshot.placements().filter(|(unit, at)| {
        !snapshot.state(unit.as_str(), at.machine.as_str()).is_some_and(is_up)
    });
    down.map(|(unit, _)| unit.clone()).collect()
}

/// A report for people: the plan, and a line for each unit that has to wait.
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
