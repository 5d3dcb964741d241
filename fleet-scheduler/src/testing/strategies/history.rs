//! Histories: a cluster and its later changes.

use std::fmt;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Machine, MachineId, Placement, Snapshot, Unit};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::cluster::{Features, GeneratedCluster, clusters};
use super::draft::{MachineDraft, UnitDraft, machine_draft, machine_id, name, unit_draft};
use super::{MACHINES, UNITS, text};
use crate::{Change, Demand};

/// A change of a cluster that is not made by the scheduler.
#[derive(Clone)]
pub enum HistoryEvent {
    /// A machine joins or changes.
    MachineChanged(Machine),
    /// A machine leaves.
    MachineRemoved(MachineId),
    /// A unit is created, or its content or desired state changes.
    UnitChanged(Unit),
    /// A unit is destroyed.
    UnitDestroyed(UnitName),
    /// The record of a unit becomes unreadable.
    UnitUnreadable(UnitName),
    /// A unit is observed with a placement.
    Placed(UnitName, Placement),
    /// A unit is observed without placement.
    Unplaced(UnitName),
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum HistoryStep {
    /// The cluster changes.
    Change(HistoryEvent),
    /// A plan is made.
    Plan(PlanOutcome),
}

/// The fate of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanOutcome {
    /// All its steps are applied.
    Applied,
    /// Some of its steps are applied. The step at position `n` is applied if `n` is less than 64
    /// and bit `n` of this number is set.
    AppliedPartly(u64),
    /// None of its steps is applied.
    Discarded,
}

/// A cluster and the steps that follow.
#[derive(Clone)]
pub struct History {
    /// The cluster at the start.
    pub start: GeneratedCluster,
    /// The steps, in order.
    pub steps: Vec<HistoryStep>,
}

impl HistoryEvent {
    /// Applies the change to a cluster and raises its revision.
    pub fn apply_to(&self, cluster: &mut Snapshot) {
        match self.clone() {
            Self::MachineChanged(machine) => cluster.put_machine(machine),
            Self::MachineRemoved(machine) => cluster.remove_machine(machine.as_str()),
            Self::UnitChanged(unit) => cluster.put_unit(unit),
            Self::UnitDestroyed(unit) => cluster.remove_unit(unit.as_str()),
            Self::UnitUnreadable(unit) => {
                cluster.put_fault(unit, Fault { message: "garbled".into() });
            }
            Self::Placed(unit, Placement { machine, epoch }) => {
                cluster.place(unit, machine, epoch);
            }
            Self::Unplaced(unit) => cluster.unplace(unit.as_str()),
        }
        cluster.revision = cluster.revision.next();
    }
}

/// Converts the event for a [`Cluster`](crate::Cluster).
impl From<&HistoryEvent> for Change {
    fn from(event: &HistoryEvent) -> Self {
        match event.clone() {
            HistoryEvent::MachineChanged(machine) => Self::AddMachine(machine),
            HistoryEvent::MachineRemoved(machine) => Self::RemoveMachine(machine),
            HistoryEvent::UnitChanged(unit) => Self::Add(Demand::from(&unit)),
            HistoryEvent::UnitDestroyed(unit) => Self::Remove(unit),
            HistoryEvent::UnitUnreadable(unit) => Self::MarkUnreadable(unit),
            HistoryEvent::Placed(unit, Placement { machine, epoch }) => {
                Self::Place { unit, machine, epoch }
            }
            HistoryEvent::Unplaced(unit) => Self::Unplace(unit),
        }
    }
}

/// Generates histories of up to `most` steps. On average, two fifths of them are plans.
pub fn histories(features: Features, most: usize) -> impl Strategy<Value = History> {
    histories_from(clusters(features), features, most)
}

/// Generates histories that start from the clusters in `start`. The changes affect the units and
/// machines of [`clusters`], even if these do not exist in the cluster.
pub fn histories_from(
    start: impl Strategy<Value = GeneratedCluster>,
    features: Features,
    most: usize,
) -> impl Strategy<Value = History> {
    let carried = prop_oneof![
        3 => Just(PlanOutcome::Applied),
        1 => any::<u64>().prop_map(PlanOutcome::AppliedPartly),
        1 => Just(PlanOutcome::Discarded),
    ];
    let happening = prop_oneof![
        3 => event(features).prop_map(HistoryStep::Change),
        2 => carried.prop_map(HistoryStep::Plan),
    ];
    let parts = (start, vec(happening, 0..=most));
    parts.prop_map(|(start, steps)| History { start, steps })
}

/// Generates changes, each of which is valid after any other.
pub fn events(features: Features, most: usize) -> impl Strategy<Value = Vec<HistoryEvent>> {
    vec(event(features), 0..=most)
}

fn event(features: Features) -> impl Strategy<Value = HistoryEvent> {
    let unit = || 0..UNITS.len();
    let machine = || 0..MACHINES.len();
    prop_oneof![
        4 => (unit(), unit_draft(), any::<u16>())
            .prop_map(move |(at, draft, chosen)| comes(at, &draft, features, chosen)),
        2 => unit().prop_map(|at| HistoryEvent::UnitDestroyed(name(UNITS[at]))),
        3 => (machine(), machine_draft())
            .prop_map(move |(at, draft)| joins(at, &draft, features)),
        2 => machine().prop_map(|at| HistoryEvent::MachineRemoved(machine_id(MACHINES[at]))),
        2 => (unit(), machine(), 0..40_u64).prop_map(|(unit, at, epoch)| {
            let placement =
                Placement { machine: machine_id(MACHINES[at]), epoch: Epoch(epoch) };
            HistoryEvent::Placed(name(UNITS[unit]), placement)
        }),
        1 => unit().prop_map(|at| HistoryEvent::Unplaced(name(UNITS[at]))),
        1 => unit().prop_map(move |at| fails(at, features)),
    ]
}

fn comes(at: usize, draft: &UnitDraft, features: Features, chosen: u16) -> HistoryEvent {
    let features = features.and(Features::from_bits(chosen));
    HistoryEvent::UnitChanged(draft.build(name(UNITS[at]), features))
}

fn joins(at: usize, draft: &MachineDraft, features: Features) -> HistoryEvent {
    HistoryEvent::MachineChanged(draft.build(MACHINES[at], features))
}

/// Makes a unit unreadable, if that feature is enabled.
fn fails(at: usize, features: Features) -> HistoryEvent {
    let unit = name(UNITS[at]);
    if features.faults {
        HistoryEvent::UnitUnreadable(unit)
    } else {
        HistoryEvent::UnitDestroyed(unit)
    }
}

/// Formats the event as a scenario command.
impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::MachineChanged(machine) => text::machine(machine),
            Self::MachineRemoved(machine) => text::gone(machine),
            Self::UnitChanged(unit) => text::unit(unit),
            Self::UnitDestroyed(unit) => text::destroyed(unit),
            Self::UnitUnreadable(unit) => text::unreadable(unit),
            Self::Placed(unit, placement) => text::placed(unit, placement),
            Self::Unplaced(unit) => text::unplaced(unit),
        })
    }
}

impl fmt::Debug for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.start)?;
        for happening in &self.steps {
            match happening {
                HistoryStep::Change(event) => writeln!(f, "{event}")?,
                HistoryStep::Plan(PlanOutcome::Applied) => writeln!(f, "plan")?,
                HistoryStep::Plan(carried) => writeln!(f, "# a plan, carried out: {carried:?}")?,
            }
        }
        Ok(())
    }
}
