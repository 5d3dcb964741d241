//! The index: a cluster as the planner sees it, kept up to date change by change.
//!
//! Units, machines, patterns and classes have numbers; see [`slots`]. Between two plans, every unit
//! that was placed on a machine that is present is on that machine's desk, whether it may stay or
//! not. A plan moves units about and writes down each step in a log. The log is taken back by
//! whatever comes next, unless that is the carrying out of that very plan.

mod anchors;
#[cfg(test)]
mod bounded;
mod census;
mod classes;
mod define;
mod desk;
mod filters;
mod heap;
mod holders;
mod lanes;
mod load;
mod lookup;
mod machines;
mod names;
mod observe;
mod patterns;
mod pending;
mod seats;
mod slots;
mod ties;
mod trail;
mod units;
mod view;
mod wake;

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Machine, MachineId, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::change::{ClusterChange, UnitSpec};
use crate::plan::Plan;
use crate::policy::Policy;
use census::Censuses;
pub(crate) use census::{Answers, OUTSIDE};
pub(crate) use classes::{Class, NOTHING};
pub(crate) use desk::{Desk, NO_LIMIT, limit};
use filters::Filters;
pub(crate) use lanes::Ground;
pub(crate) use lanes::{Lanes, liked};
pub(crate) use lookup::Lookup;
use machines::Machines;
use patterns::Patterns;
pub(crate) use pending::Pending;
pub(crate) use seats::{Event, Mark, Why};
pub(crate) use slots::{ClassNo, LaneNo, MachineNo, PatternNo, UnitNo};
pub(crate) use ties::Tie;
use units::Units;
pub(crate) use units::{Kind, PeerRef, Wait};
pub(crate) use view::Seen;
use wake::Fresh;
pub(crate) use wake::Group;

/// A cluster, indexed so that a plan costs little more than what has changed since the last one.
///
/// Feed it what happens, and ask it for plans. What it answers depends on the state of the cluster
/// and on nothing else, whichever changes led there: it is what [`plan`](crate::plan()) says of a
/// snapshot of that state.
///
/// ```
/// use fleet_core::{Epoch, Machine, Requirements};
/// use fleet_scheduler::{UnitSpec, Index, Policy};
///
/// let mut index = Index::new(Policy::default());
/// index.put_machine(Machine::new("m1".parse()?));
/// let name = "web.service".parse()?;
/// index.put(UnitSpec { name, requirements: Default::default(), wanted: true });
///
/// let plan = index.plan();
/// assert_eq!(plan.steps[0].to_string(), "place web.service on m1: it is wanted");
/// index.apply(&plan, Epoch(1));
/// assert!(index.plan().is_empty());
///
/// index.remove_machine("m1");
/// index.put_machine(Machine::new("m2".parse()?));
/// let plan = index.plan();
/// assert_eq!(plan.steps[0].to_string(), "move web.service from m1 to m2: the machine is gone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Index {
    pub(crate) policy: Policy,
    revision: Revision,
    pub(crate) units: Units,
    pub(crate) machines: Machines,
    pub(crate) patterns: Patterns,
    pub(crate) classes: classes::Classes,
    pub(crate) filters: Filters,
    pub(crate) lanes: Lanes,
    pub(crate) censuses: Censuses,
    /// The global units that are wanted.
    pub(crate) globals: BTreeMap<UnitName, UnitNo>,
    /// The machines where somebody may replace somebody else who is there, too.
    pub(crate) uneasy: BTreeSet<MachineNo>,
    /// Units that had to leave for one that replaces them and that no other machine took: how far
    /// the trail of lifts had come then.
    pub(crate) stuck: BTreeMap<UnitNo, u64>,
    /// The placements that should not be.
    pub(crate) unwanted: BTreeMap<UnitName, UnitNo>,
    /// The machines to be settled; none twice.
    pub(crate) dirty: Vec<MachineNo>,
    /// The units to be tried, and some that need not be any more.
    pub(crate) fresh: Fresh,
    /// The groups that no machine takes, by the first name in each.
    pub(crate) groups: BTreeMap<UnitNo, Group>,
    /// Those of the groups that replace others.
    pub(crate) restless: BTreeSet<UnitNo>,
    /// Whether something has happened to a tied unit since these were tried.
    pub(crate) ties_stirred: bool,
    /// The units that wait in vain.
    pub(crate) vain: BTreeSet<UnitNo>,
    /// The units that want no other machine than theirs, which is not present.
    pub(crate) stranded: BTreeSet<UnitNo>,
    /// How far the trail of lifts is known to the units that wait.
    pub(crate) lifts_seen: u64,
    /// Whether anything has changed since the last plan that is carried out.
    pub(crate) touched: bool,
    /// What was done while planning.
    pub(crate) log: Vec<Event>,
    /// The plan that the log led to.
    pub(crate) pending: Option<Pending>,
}

impl Index {
    /// The index of a cluster of nothing.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let filters = Filters::new();
        Self {
            policy,
            revision: Revision::ZERO,
            units: Units::default(),
            machines: Machines::default(),
            patterns: Patterns::default(),
            classes: classes::Classes::new(Filters::ALL),
            filters,
            lanes: Lanes::default(),
            censuses: Censuses::default(),
            globals: BTreeMap::new(),
            uneasy: BTreeSet::new(),
            stuck: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            dirty: Vec::new(),
            fresh: Fresh::default(),
            groups: BTreeMap::new(),
            restless: BTreeSet::new(),
            ties_stirred: false,
            vain: BTreeSet::new(),
            stranded: BTreeSet::new(),
            lifts_seen: 0,
            touched: false,
            log: Vec::new(),
            pending: None,
        }
    }

    /// The index of the cluster that a snapshot shows.
    #[must_use]
    pub fn load(policy: Policy, snapshot: &Snapshot) -> Self {
        let mut index = Self::new(policy);
        index.fill(snapshot);
        index.set_revision(snapshot.revision);
        index
    }

    /// The revision that plans are said to be made of.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Says which revision of the cluster's state the index has now.
    pub fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// A unit came, or is another now.
    pub fn put_unit(&mut self, unit: &Unit) {
        self.put(UnitSpec::from(unit));
    }

    /// The same of a unit of which no more is known than what it demands.
    pub fn put(&mut self, demand: UnitSpec) {
        self.rewind();
        let UnitSpec { name, requirements, wanted } = demand;
        let kind = match (wanted && !name.is_template(), requirements.global) {
            (false, _) => Kind::Inactive,
            (true, false) => Kind::Single,
            (true, true) => Kind::Global,
        };
        let unit = self.units.intern(&name);
        self.define(unit, kind, Some(requirements), wanted);
    }

    /// A unit is forgotten, readable or not. Its placement stays until it is taken away.
    pub fn remove_unit(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(unit) {
            self.define(unit, Kind::Unknown, None, false);
        }
    }

    /// The record of a unit cannot be read. Where it is placed, it stays.
    pub fn put_unreadable(&mut self, unit: UnitName) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.define(unit, Kind::Unreadable, None, false);
    }

    /// A machine came, or is another now.
    pub fn put_machine(&mut self, machine: Machine) {
        self.rewind();
        self.machine_came(machine.into());
    }

    /// A machine went. What was placed there needs another.
    pub fn remove_machine(&mut self, machine: &str) {
        self.rewind();
        self.machine_went(machine);
    }

    /// A unit was placed.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.placed(unit, &machine, epoch);
    }

    /// A unit's placement was taken away.
    pub fn unplace(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(unit) {
            self.unplaced(unit);
        }
    }

    /// Something happened.
    ///
    /// ```
    /// use fleet_core::Machine;
    /// use fleet_scheduler::{ClusterChange, Index, Policy};
    ///
    /// let mut index = Index::new(Policy::default());
    /// index.change(&ClusterChange::PutMachine(Machine::new("m1".parse()?)));
    /// assert!(index.plan().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change(&mut self, change: &ClusterChange) {
        match change {
            ClusterChange::PutUnit(demand) => self.put(demand.clone()),
            ClusterChange::RemoveUnit(unit) => self.remove_unit(unit.as_str()),
            ClusterChange::PutUnreadable(unit) => self.put_unreadable(unit.clone()),
            ClusterChange::PutMachine(machine) => self.put_machine(machine.clone()),
            ClusterChange::RemoveMachine(machine) => self.remove_machine(machine.as_str()),
            ClusterChange::Place { unit, machine, epoch } => {
                self.place(unit.clone(), machine.clone(), *epoch);
            }
            ClusterChange::Unplace(unit) => self.unplace(unit.as_str()),
        }
    }

    /// What would be planned after some changes. The index is afterwards as it was.
    ///
    /// ```
    /// use fleet_core::Machine;
    /// use fleet_scheduler::{ClusterChange, Index, Policy};
    ///
    /// let mut index = Index::new(Policy::default());
    /// index.put_machine(Machine::new("m1".parse()?));
    /// let lost = ClusterChange::RemoveMachine("m1".parse()?);
    /// assert!(index.what_if(&[lost]).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn what_if(&mut self, changes: &[ClusterChange]) -> Plan {
        self.rewind();
        let mut inverses = Vec::with_capacity(changes.len());
        for change in changes {
            inverses.push(self.inverse(change));
            self.change(change);
        }
        let plan = self.plan();
        for change in inverses.iter().rev() {
            self.change(change);
        }
        plan
    }
}
