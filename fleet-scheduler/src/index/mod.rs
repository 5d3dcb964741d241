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
use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::demand::{Change, Demand, full_name};
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
pub(crate) use view::ClusterView;

/// A cluster that is reported change by change, and planned incrementally.
///
/// The cost of a plan depends mainly on the changes since the last one. A plan depends only on the
/// state of the cluster, not on the changes that led to that state: it equals the plan that
/// [`plan`](crate::plan()) makes for a [`Snapshot`] of the same state.
///
/// ```
/// use fleet_scheduler::prelude::*;
///
/// let mut cluster = Cluster::new();
/// cluster.add_machine(Machine::named("m1")?);
/// cluster.add(Demand::new("web")?);
///
/// let plan = cluster.plan();
/// assert_eq!(plan.steps[0].to_string(), "place web.service on m1: it is wanted");
/// cluster.apply(&plan);
/// assert!(cluster.plan().is_empty());
///
/// cluster.remove_machine("m1");
/// cluster.add_machine(Machine::named("m2")?);
/// let plan = cluster.plan();
/// assert_eq!(plan.steps[0].to_string(), "move web.service from m1 to m2: the machine is gone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cluster {
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

impl Cluster {
    /// Creates an empty cluster with the default policy.
    #[must_use]
    pub fn new() -> Self {
        Self::with_policy(Policy::default())
    }

    /// Creates an empty cluster.
    #[must_use]
    pub fn with_policy(policy: Policy) -> Self {
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

    /// Creates the cluster of a snapshot.
    #[must_use]
    pub fn load(policy: Policy, snapshot: &Snapshot) -> Self {
        let mut cluster = Self::with_policy(policy);
        cluster.fill(snapshot);
        cluster.set_revision(snapshot.revision);
        cluster
    }

    /// Returns the revision that plans are based on.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Sets the revision of the state that has been reported. A cluster that follows no store needs
    /// no call: [`apply`](Self::apply) sets the next revision.
    pub fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// Adds or replaces a unit.
    pub fn add(&mut self, unit: impl Into<Demand>) {
        self.rewind();
        let demand = unit.into();
        let kind = match (demand.is_wanted(), demand.requirements.global) {
            (false, _) => UnitKind::Inactive,
            (true, false) => UnitKind::Single,
            (true, true) => UnitKind::Global,
        };
        let unit = self.units.intern(&demand.name);
        self.upsert(unit, kind, Some(demand.requirements), demand.wanted);
    }

    /// Removes a unit, whether its record is readable or not. The unit's placement stays until it
    /// is removed separately.
    pub fn remove(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(&full_name(unit)) {
            self.upsert(unit, UnitKind::Unknown, None, false);
        }
    }

    /// Marks a unit's stored record as unreadable. If the unit is placed, it stays on its machine.
    pub fn mark_unreadable(&mut self, unit: UnitName) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.upsert(unit, UnitKind::Unreadable, None, false);
    }

    /// Adds or replaces a machine.
    pub fn add_machine(&mut self, machine: impl Into<Arc<Machine>>) {
        self.rewind();
        self.update_machine(machine.into());
    }

    /// Removes a machine. The units placed there need another one.
    pub fn remove_machine(&mut self, machine: &str) {
        self.rewind();
        self.drop_machine(machine);
    }

    /// Records the observed placement of a unit. Of two units that cannot stay together on their
    /// machine, the one with the lower epoch stays.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        self.rewind();
        let unit = self.units.intern(&unit);
        self.record_placement(unit, &machine, epoch);
    }

    /// Removes the placement of a unit.
    pub fn unplace(&mut self, unit: &str) {
        self.rewind();
        if let Some(unit) = self.units.find(&full_name(unit)) {
            self.erase_placement(unit);
        }
    }

    /// Applies a change of the cluster's state.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// cluster.change(&Change::AddMachine(Machine::named("m1")?));
    /// assert!(cluster.plan().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change(&mut self, change: &Change) {
        match change {
            Change::Add(demand) => self.add(demand.clone()),
            Change::Remove(unit) => self.remove(unit.as_str()),
            Change::MarkUnreadable(unit) => self.mark_unreadable(unit.clone()),
            Change::AddMachine(machine) => self.add_machine(machine.clone()),
            Change::RemoveMachine(machine) => self.remove_machine(machine.as_str()),
            Change::Place { unit, machine, epoch } => {
                self.place(unit.clone(), machine.clone(), *epoch);
            }
            Change::Unplace(unit) => self.unplace(unit.as_str()),
        }
    }

    /// Returns the plan that would follow some changes. The changes are not kept.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// cluster.add_machine(Machine::named("m1")?);
    /// let lost = Change::RemoveMachine("m1".parse()?);
    /// assert!(cluster.what_if(&[lost]).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn what_if(&mut self, changes: &[Change]) -> Plan {
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

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

/// Loads the cluster with the default policy.
impl From<&Snapshot> for Cluster {
    fn from(snapshot: &Snapshot) -> Self {
        Self::load(Policy::default(), snapshot)
    }
}
