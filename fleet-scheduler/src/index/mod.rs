//! The index: the planner's view of a cluster, updated change by change.
//!
//! Units, machines, patterns and classes have numbers; see [`slots`]. Between two plans, every unit
//! placed on a present machine is part of that machine's occupancy, even if it may not stay there.
//! A plan moves units tentatively and records each move in an undo log. The next operation rolls
//! these moves back, unless it applies the plan.

mod affinity_groups;
#[cfg(test)]
mod bounded;
mod change_log;
mod classes;
mod filters;
mod heap;
mod load;
mod lookup;
mod machines;
mod metadata_index;
mod names;
mod occupancy;
mod pattern_index;
mod patterns;
mod pending;
mod placements;
mod ranking;
mod refusal_counts;
mod retry_queue;
mod slots;
mod undo_log;
mod units;
mod upsert;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Machine, MachineId, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::change::{ClusterChange, UnitSpec};
use crate::plan::Plan;
use crate::policy::Policy;
pub(crate) use affinity_groups::PeerState;
pub(crate) use classes::{EquivalenceClass, NOTHING};
use filters::Filters;
pub(crate) use lookup::Lookup;
use machines::Machines;
pub(crate) use occupancy::{NO_LIMIT, Occupancy, limit};
use patterns::Patterns;
pub(crate) use pending::PendingPlan;
pub(crate) use ranking::RankContext;
pub(crate) use ranking::{MachineOrders, preference_score};
use refusal_counts::RefusalCountsCache;
pub(crate) use refusal_counts::{PLACEHOLDER_RULE, RefusalSummary};
use retry_queue::RetryQueue;
pub(crate) use retry_queue::WaitingGroup;
pub(crate) use slots::{ClassNo, MachineNo, OrderNo, PatternNo, UnitNo};
pub(crate) use undo_log::{LeaveReason, LogPosition, UndoEntry};
use units::Units;
pub(crate) use units::{PeerRef, UnitKind, WaitState};
pub(crate) use view::IndexView;

/// A cluster, indexed so that the cost of a plan depends mainly on the changes since the last one.
///
/// Report changes to the index, and request plans from it. Its plans depend only on the state of
/// the cluster, not on the changes that led to that state. They equal the plans that
/// [`plan`](crate::plan()) makes for a snapshot of that state.
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
    pub(crate) orders: MachineOrders,
    pub(crate) refusal_cache: RefusalCountsCache,
    /// The global units that are wanted.
    pub(crate) globals: BTreeMap<UnitName, UnitNo>,
    /// The machines on which one unit may replace another.
    pub(crate) replacement_machines: BTreeSet<MachineNo>,
    /// Units that share a machine with a unit that replaces them, and that no other machine
    /// accepted. The value is the position in the change log `MachineOrders::loosened_machines` at
    /// the last attempt to move the unit.
    pub(crate) immovable: BTreeMap<UnitNo, u64>,
    /// The placements to remove.
    pub(crate) unwanted: BTreeMap<UnitName, UnitNo>,
    /// The machines to recheck, without duplicates.
    pub(crate) dirty: Vec<MachineNo>,
    /// The units to try, and some that no longer need it.
    pub(crate) retry_queue: RetryQueue,
    /// The groups that no machine accepts, by their lowest unit number.
    pub(crate) groups: BTreeMap<UnitNo, WaitingGroup>,
    /// The keys of those `groups` that contain a unit that replaces others. If a custom rule is
    /// retried on any change, the keys of all `groups`. Some of these groups may find a machine
    /// although each machine still refuses every unit that it refused before.
    pub(crate) sensitive_groups: BTreeSet<UnitNo>,
    /// Whether a tied unit has changed since these groups were tried.
    pub(crate) ties_changed: bool,
    /// The units with an unsatisfiable `MachineOf=`.
    pub(crate) unsatisfiable: BTreeSet<UnitNo>,
    /// The units with `Reschedule=never` and an absent machine.
    pub(crate) stranded: BTreeSet<UnitNo>,
    /// The position in the change log `MachineOrders::loosened_machines` up to which waiting units
    /// have been queued again. The log lists machines that may accept units that they refused
    /// before.
    pub(crate) loosened_seen: u64,
    /// Whether anything has changed since the last applied plan.
    pub(crate) touched: bool,
    /// The moves made while planning.
    pub(crate) log: Vec<UndoEntry>,
    /// The plan that these moves led to.
    pub(crate) pending: Option<PendingPlan>,
}

impl Index {
    /// Creates an index of an empty cluster.
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
            orders: MachineOrders::default(),
            refusal_cache: RefusalCountsCache::default(),
            globals: BTreeMap::new(),
            replacement_machines: BTreeSet::new(),
            immovable: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            dirty: Vec::new(),
            retry_queue: RetryQueue::default(),
            groups: BTreeMap::new(),
            sensitive_groups: BTreeSet::new(),
            ties_changed: false,
            unsatisfiable: BTreeSet::new(),
            stranded: BTreeSet::new(),
            loosened_seen: 0,
            touched: false,
            log: Vec::new(),
            pending: None,
        }
    }

    /// Creates an index of the cluster in a snapshot.
    #[must_use]
    pub fn load(policy: Policy, snapshot: &Snapshot) -> Self {
        let mut index = Self::new(policy);
        index.fill(snapshot);
        index.set_revision(snapshot.revision);
        index
    }

    /// Returns the revision that plans are based on.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Sets the revision of the cluster's state that the index reflects.
    pub fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// Adds or replaces a unit.
    pub fn put_unit(&mut self, unit: &Unit) {
        self.put(UnitSpec::from(unit));
    }

    /// Adds or replaces a unit of which only the requirements are known. The requirements are not
    /// [validated](fleet_core::Requirements::validate).
    pub fn put(&mut self, demand: UnitSpec) {
        self.rewind();
        let UnitSpec { name, requirements, wanted } = demand;
        let kind = match (wanted && !name.is_template(), requirements.global) {
            (false, _) => UnitKind::Inactive,
            (true, false) => UnitKind::Single,
            (true, true) => UnitKind::Global,
        };
        let unit = self.units.intern(&name);
        self.upsert(unit, kind, Some(requirements), wanted);
    }

    /// Removes a unit, whether its record is readable or not. The unit's placement stays until it
    /// is removed separately.
    pub fn remove_unit(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(unit) {
            self.upsert(unit, UnitKind::Unknown, None, false);
        }
    }

    /// Marks a unit's stored record as unreadable. If the unit is placed, it stays on its machine.
    pub fn put_unreadable(&mut self, unit: UnitName) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.upsert(unit, UnitKind::Unreadable, None, false);
    }

    /// Adds or replaces a machine.
    pub fn put_machine(&mut self, machine: Machine) {
        self.rewind();
        self.update_machine(machine.into());
    }

    /// Removes a machine. The units placed there need another one.
    pub fn remove_machine(&mut self, machine: &str) {
        self.rewind();
        self.drop_machine(machine);
    }

    /// Records the placement of a unit.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.record_placement(unit, &machine, epoch);
    }

    /// Removes the placement of a unit.
    pub fn unplace(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(unit) {
            self.erase_placement(unit);
        }
    }

    /// Applies a change of the cluster's state.
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

    /// Returns the plan that would follow some changes. The changes are not kept in the index.
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
