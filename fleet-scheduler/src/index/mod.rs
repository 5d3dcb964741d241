//! The incremental index: the state of a cluster, with what has to be known of it before the next
//! plan.
//!
//! Between two plans, every unit placed on a present machine is part of that machine's occupancy,
//! even if it may not stay there. A plan moves units tentatively and records each move in an undo
//! log. The next operation rolls these moves back, unless it applies the plan.
//!
//! This layer decides nothing: it records changes, and queues the units that a change may help.

pub(crate) mod definitions;
pub(crate) mod placements;
pub(crate) mod refusal_counts;
pub(crate) mod retry_queue;
pub(crate) mod undo_log;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::pattern::Peer;
use fleet_core::{Epoch, Machine, MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::demand::{Change, Demand, full_name};
use crate::policy::Policy;
use crate::ranking::MachineOrders;
use crate::state::{MachineNo, PatternNo, State, UnitKind, UnitNo};
use refusal_counts::RefusalCountsCache;
use retry_queue::{RetryQueue, WaitingGroup};
use undo_log::{PendingPlan, UndoEntry};

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
    pub(crate) state: State,
    pub(crate) revision: Revision,
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
        Self {
            state: State::new(policy),
            revision: Revision::ZERO,
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
        fill(&mut cluster, snapshot);
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

    /// Returns the machine of a unit's placement. A plan changes placements only when it is
    /// [applied](Self::apply).
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// cluster.add_machine(Machine::named("m1")?);
    /// cluster.add(Demand::new("web")?);
    /// let plan = cluster.plan();
    /// assert_eq!(cluster.placement("web"), None);
    ///
    /// cluster.apply(&plan);
    /// assert_eq!(cluster.placement("web").map(MachineId::as_str), Some("m1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn placement(&self, unit: &str) -> Option<&MachineId> {
        let unit = self.state.units.find(&full_name(unit))?;
        self.state.units[unit].placed.some().map(|machine| self.state.machines.id(machine))
    }

    /// Returns all placements, in the order of the units' names.
    pub fn placements(&self) -> impl Iterator<Item = (&UnitName, &MachineId)> {
        self.state.units.with_prefix("").filter_map(|(name, unit)| {
            let machine = self.state.units[unit].placed.some()?;
            Some((name, self.state.machines.id(machine)))
        })
    }

    /// Adds or replaces a unit.
    pub fn add(&mut self, unit: impl Into<Demand>) {
        undo_log::rewind(self);
        let demand = unit.into();
        let kind = match (demand.is_wanted(), demand.requirements.global) {
            (false, _) => UnitKind::Inactive,
            (true, false) => UnitKind::Single,
            (true, true) => UnitKind::Global,
        };
        let unit = self.state.units.intern(&demand.name);
        definitions::upsert(self, unit, kind, Some(demand.requirements), demand.wanted);
    }

    /// Removes a unit, whether its record is readable or not. The unit's placement stays until it
    /// is removed separately.
    pub fn remove(&mut self, unit: &str) {
        undo_log::rewind(self);
        if let Some(unit) = self.state.units.find(&full_name(unit)) {
            definitions::upsert(self, unit, UnitKind::Unknown, None, false);
        }
    }

    /// Marks a unit's stored record as unreadable. If the unit is placed, it stays on its machine.
    pub fn mark_unreadable(&mut self, unit: UnitName) {
        undo_log::rewind(self);
        let unit = self.state.units.intern(&unit);
        definitions::upsert(self, unit, UnitKind::Unreadable, None, false);
    }

    /// Adds or replaces a machine.
    pub fn add_machine(&mut self, machine: impl Into<Arc<Machine>>) {
        undo_log::rewind(self);
        placements::update_machine(self, machine.into());
    }

    /// Removes a machine. The units placed there need another one.
    pub fn remove_machine(&mut self, machine: &str) {
        undo_log::rewind(self);
        placements::drop_machine(self, machine);
    }

    /// Records the observed placement of a unit. Of two units that cannot stay together on their
    /// machine, the one with the lower epoch stays.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        undo_log::rewind(self);
        let unit = self.state.units.intern(&unit);
        placements::record_placement(self, unit, &machine, epoch);
    }

    /// Removes the placement of a unit.
    pub fn unplace(&mut self, unit: &str) {
        undo_log::rewind(self);
        if let Some(unit) = self.state.units.find(&full_name(unit)) {
            placements::erase_placement(self, unit);
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

/// Reads a snapshot. The cluster must be empty.
pub(crate) fn fill(cluster: &mut Cluster, snapshot: &Snapshot) {
    cluster.touched = true;
    cluster.state.machines.fill(snapshot.machines().map(|machine| &machine.id));
    let machines: Vec<_> = cluster.state.machines.in_order().collect();
    for (number, machine) in machines.into_iter().zip(snapshot.machines()) {
        cluster.state.machines.set(number, Some(Arc::clone(machine)));
        placements::mark_dirty(cluster, number);
    }
    let names = names(snapshot);
    cluster.state.units.fill(names.iter().map(|name| (*name).clone()));
    cluster.retry_queue.reserve(names.len());
    read_placements(cluster, snapshot, &names);
    let patterns = read_patterns(cluster, snapshot);
    read_units(cluster, snapshot, &names);
    patterns.into_iter().for_each(|pattern| cluster.state.patterns.release(pattern));
}

/// Adds all patterns before any unit has a class, because a pattern added later would have to be
/// compared with all names. Returns the patterns, which the caller must release once the units use
/// them.
fn read_patterns(cluster: &mut Cluster, snapshot: &Snapshot) -> Vec<PatternNo> {
    let mut held = Vec::new();
    for unit in snapshot.units().filter(|unit| unit.is_wanted()) {
        let wants = &unit.requirements;
        for pattern in wants.conflicts.iter().chain(&wants.replaces) {
            held.push(cluster.state.patterns.acquire(pattern).0);
        }
        for peer in &wants.machine_of {
            let Peer::Matching(pattern) = peer else { continue };
            let number = cluster.state.patterns.acquire(pattern).0;
            cluster.state.patterns[number].members.get_or_insert_default();
            held.push(number);
        }
    }
    held
}

fn read_placements(cluster: &mut Cluster, snapshot: &Snapshot, names: &[&UnitName]) {
    let mut at = 0;
    for (name, placement) in snapshot.placements() {
        advance(names, &mut at, name);
        let machine = placements::intern_machine(cluster, &placement.machine);
        cluster.state.machines[machine].named += 1;
        let slot = &mut cluster.state.units[UnitNo::from(at)];
        slot.placed = machine;
        slot.epoch = placement.epoch;
    }
}

fn read_units(cluster: &mut Cluster, snapshot: &Snapshot, names: &[&UnitName]) {
    let mut faults = snapshot.faults().map(|(name, _)| name).peekable();
    let mut units = snapshot.units().peekable();
    for (at, name) in names.iter().enumerate() {
        let number = UnitNo::from(at);
        if let Some(unit) = units.next_if(|unit| is_same(name, &unit.name)) {
            let slot = &mut cluster.state.units[number];
            slot.wanted = unit.is_wanted();
            slot.kind = match (slot.wanted, unit.is_global()) {
                (false, _) => UnitKind::Inactive,
                (true, false) => UnitKind::Single,
                (true, true) => UnitKind::Global,
            };
            slot.requirements = Some(Arc::clone(&unit.requirements));
        } else if faults.next_if(|fault| is_same(name, fault)).is_some() {
            cluster.state.units[number].kind = UnitKind::Unreadable;
        }
        definitions::insert_definition(cluster, number);
    }
}

/// Returns all names of a snapshot that are known or placed, in order.
fn names(snapshot: &Snapshot) -> Vec<&UnitName> {
    let mut names: Vec<&UnitName> = snapshot.units().map(|unit| &unit.name).collect();
    let units = names.len();
    names.extend(snapshot.faults().map(|(name, _)| name));
    names.extend(snapshot.placements().map(|(name, _)| name));
    if names.len() > units {
        // The names form three sorted runs, which the sort merges.
        names.sort();
        names.dedup();
    }
    names
}

/// Advances to the position of the name.
fn advance(names: &[&UnitName], at: &mut usize, name: &UnitName) {
    while !is_same(names[*at], name) {
        *at += 1;
    }
}

fn is_same(one: &UnitName, other: &UnitName) -> bool {
    std::ptr::eq(one.as_str(), other.as_str()) || one == other
}

/// A cluster keeps only a bounded state for its next plan, no matter how many changes come before
/// that plan.
#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Machine, Requirements};
    use fleet_unitfile::UnitName;

    use super::*;
    use crate::policy::Ranking;

    /// More than any of the bounds below.
    const MANY: u32 = 4000;

    fn name(number: u32) -> UnitName {
        format!("u{number}.service").parse().unwrap()
    }

    fn demand(number: u32, max_per_machine: Option<u32>) -> Demand {
        let requirements = Requirements::default().with_max_per_machine(max_per_machine);
        Demand::with_requirements(name(number), requirements)
    }

    fn index(ranking: Ranking) -> Cluster {
        let mut index = Cluster::with_policy(Policy::new().with_ranking(ranking));
        index.add_machine(Machine::new("m1".parse().unwrap()));
        index.add_machine(Machine::new("m2".parse().unwrap()));
        index
    }

    fn assert_bounded(index: &mut Cluster) {
        let bound = 2 * index.state.machines.len() + 1024;
        assert!(
            index.orders.loosened_machines.len() <= bound + 1,
            "{}",
            index.orders.loosened_machines.len()
        );
        assert!(index.orders.ranks.len() <= bound + 1, "{}", index.orders.ranks.len());
        let (untried, units) = (index.retry_queue.take().len(), index.state.units.len());
        assert!(untried <= units, "{untried} of {units}");
    }

    #[test]
    fn changes_without_plans_do_not_accumulate() {
        let mut index = index(Ranking::BinPacking);
        for turn in 0..MANY {
            index.add(demand(turn % 3, Some(turn)));
            let machine = ["m1", "m2"][turn as usize % 2].parse().unwrap();
            index.place(name(3), machine, Epoch(u64::from(turn)));
            index.add(demand(3, Some(turn)));
            index.add(demand(4, None));
            index.remove(name(4).as_str());
        }
        assert_bounded(&mut index);
    }

    #[test]
    fn queries_without_plans_do_not_accumulate() {
        let mut index = index(Ranking::LeastLoaded);
        (0..9).for_each(|number| index.add(demand(number, None)));
        for turn in 0..MANY {
            index.what_if(&[Change::RemoveMachine("m1".parse().unwrap())]);
            index.explain(name(turn % 9).as_str());
        }
        assert_bounded(&mut index);
    }

    #[test]
    fn waiting_units_are_placed_after_many_changes() {
        let mut index = index(Ranking::LeastLoaded);
        (0..MANY).for_each(|turn| index.add(demand(turn % 7, Some(turn))));
        assert_eq!(index.plan().steps.len(), 7);
    }
}
