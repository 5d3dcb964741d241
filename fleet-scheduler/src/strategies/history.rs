//! Histories: a cluster, and what happens to it afterwards.

use std::fmt;

use fleet_core::{Epoch, Fault, Machine, MachineId, Placement, Snapshot, Unit};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::cluster::{Cluster, clusters};
use super::draft::{MachineDraft, UnitDraft, machine_draft, machine_id, name, unit_draft};
use super::features::Features;
use super::text;
use super::words::{MACHINES, UNITS};
use crate::{Change, Demand};

/// One change that is not the scheduler's doing.
#[derive(Clone)]
pub enum Event {
    /// A machine comes, or says something else of itself.
    Machine(Machine),
    /// A machine goes.
    Gone(MachineId),
    /// A unit comes, or changes its content or what is wanted of it.
    Unit(Unit),
    /// A unit is forgotten.
    Destroyed(UnitName),
    /// A unit cannot be read any more.
    Unreadable(UnitName),
    /// A unit is found placed on a machine.
    Placed(UnitName, Placement),
    /// A unit is found without placement.
    Unplaced(UnitName),
}

/// One thing that happens in a history.
#[derive(Debug, Clone)]
pub enum Happening {
    /// Something changes.
    Event(Event),
    /// A plan is made.
    Plan(Carried),
}

/// What becomes of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// It is carried out.
    Out,
    /// Only those of its steps are seen whose bit is set; of step 64 and later ones none.
    InPart(u64),
    /// Nobody carries it out.
    Not,
}

/// A cluster and what happens to it, one after the other.
#[derive(Clone)]
pub struct History {
    /// The cluster at the beginning.
    pub start: Cluster,
    /// What happens.
    pub then: Vec<Happening>,
}

impl Event {
    /// Lets it happen to a cluster, whose revision it raises.
    pub fn happen(&self, cluster: &mut Snapshot) {
        match self.clone() {
            Self::Machine(machine) => cluster.put_machine(machine),
            Self::Gone(machine) => cluster.remove_machine(machine.as_str()),
            Self::Unit(unit) => cluster.put_unit(unit),
            Self::Destroyed(unit) => cluster.remove_unit(unit.as_str()),
            Self::Unreadable(unit) => {
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

/// The same for an [`Index`](crate::Index).
impl From<&Event> for Change {
    fn from(event: &Event) -> Self {
        match event.clone() {
            Event::Machine(machine) => Self::PutMachine(machine),
            Event::Gone(machine) => Self::RemoveMachine(machine),
            Event::Unit(unit) => Self::PutUnit(Demand::from(&unit)),
            Event::Destroyed(unit) => Self::RemoveUnit(unit),
            Event::Unreadable(unit) => Self::PutUnreadable(unit),
            Event::Placed(unit, Placement { machine, epoch }) => {
                Self::Place { unit, machine, epoch }
            }
            Event::Unplaced(unit) => Self::Unplace(unit),
        }
    }
}

/// Histories of up to so many happenings, a quarter of which are plans.
pub fn histories(features: Features, most: usize) -> impl Strategy<Value = History> {
    histories_of(clusters(features), features, most)
}

/// The same of clusters of your own. What happens befalls the units and machines of
/// [`clusters`], and is drawn without regard to who is there.
pub fn histories_of(
    start: impl Strategy<Value = Cluster>,
    features: Features,
    most: usize,
) -> impl Strategy<Value = History> {
    let carried = prop_oneof![
        3 => Just(Carried::Out),
        1 => any::<u64>().prop_map(Carried::InPart),
        1 => Just(Carried::Not),
    ];
    let happening = prop_oneof![
        3 => event(features).prop_map(Happening::Event),
        2 => carried.prop_map(Happening::Plan),
    ];
    let parts = (start, vec(happening, 0..=most));
    parts.prop_map(|(start, then)| History { start, then })
}

/// Changes of which each makes sense after any other.
pub fn events(features: Features, most: usize) -> impl Strategy<Value = Vec<Event>> {
    vec(event(features), 0..=most)
}

fn event(features: Features) -> impl Strategy<Value = Event> {
    let unit = || 0..UNITS.len();
    let machine = || 0..MACHINES.len();
    prop_oneof![
        4 => (unit(), unit_draft(), any::<u16>())
            .prop_map(move |(at, draft, chosen)| comes(at, &draft, features, chosen)),
        2 => unit().prop_map(|at| Event::Destroyed(name(UNITS[at]))),
        3 => (machine(), machine_draft())
            .prop_map(move |(at, draft)| joins(at, &draft, features)),
        2 => machine().prop_map(|at| Event::Gone(machine_id(MACHINES[at]))),
        2 => (unit(), machine(), 0..40_u64).prop_map(|(unit, at, epoch)| {
            let placement =
                Placement { machine: machine_id(MACHINES[at]), epoch: Epoch(epoch) };
            Event::Placed(name(UNITS[unit]), placement)
        }),
        1 => unit().prop_map(|at| Event::Unplaced(name(UNITS[at]))),
        1 => unit().prop_map(move |at| fails(at, features)),
    ]
}

fn comes(at: usize, draft: &UnitDraft, features: Features, chosen: u16) -> Event {
    let features = features.and(Features::from_bits(chosen));
    Event::Unit(draft.build(name(UNITS[at]), features))
}

fn joins(at: usize, draft: &MachineDraft, features: Features) -> Event {
    Event::Machine(draft.build(MACHINES[at], features))
}

/// It cannot be read any more, where that is a feature.
fn fails(at: usize, features: Features) -> Event {
    let unit = name(UNITS[at]);
    if features.faults { Event::Unreadable(unit) } else { Event::Destroyed(unit) }
}

/// The command of a scenario.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Machine(machine) => text::machine(machine),
            Self::Gone(machine) => text::gone(machine),
            Self::Unit(unit) => text::unit(unit),
            Self::Destroyed(unit) => text::destroyed(unit),
            Self::Unreadable(unit) => text::unreadable(unit),
            Self::Placed(unit, placement) => text::placed(unit, placement),
            Self::Unplaced(unit) => text::unplaced(unit),
        })
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.start)?;
        for happening in &self.then {
            match happening {
                Happening::Event(event) => writeln!(f, "{event}")?,
                Happening::Plan(Carried::Out) => writeln!(f, "plan")?,
                Happening::Plan(carried) => writeln!(f, "# a plan, carried out: {carried:?}")?,
            }
        }
        Ok(())
    }
}
