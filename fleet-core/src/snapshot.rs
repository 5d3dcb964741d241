//! Snapshots of the cluster state at one revision of the store.

mod states;

use std::ops::RangeFrom;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::failures::FailureRecord;
use crate::job::JobRecord;
use crate::map::Map;
use crate::rebalancing::Rebalancing;
use crate::rollout::{RolloutId, RolloutRecord};
use crate::schedule::ScheduleRecord;
use crate::{
    Epoch, Machine, MachineId, Metadata, Placement, Reason, Revision, TargetState, Unit, UnitState,
};
use states::States;

/// The cluster state at one revision.
///
/// Iteration is always in the order of names and machine IDs. Cloning is cheap. Changing a snapshot
/// while a clone is held is cheap too, because both share all unchanged data.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Revision of this state.
    pub revision: Revision,
    /// The active rebalancing request, if there is one.
    pub rebalancing: Option<Arc<Rebalancing>>,
    units: Map<UnitName, Arc<Unit>>,
    /// Names of the global units.
    globals: Map<UnitName, ()>,
    machines: Map<MachineId, Arc<Machine>>,
    placements: Map<UnitName, Placement>,
    /// The placements, indexed by machine.
    placements_by_machine: Map<PlacementKey, Epoch>,
    states: Map<UnitName, States>,
    reasons: Map<UnitName, Arc<Reason>>,
    faults: Map<UnitName, Arc<Fault>>,
    dynamic_metadata: Map<MachineId, Arc<Metadata>>,
    rollouts: Map<RolloutId, Arc<RolloutRecord>>,
    jobs: Map<UnitName, Arc<JobRecord>>,
    schedules: Map<UnitName, Arc<ScheduleRecord>>,
    failures: Map<UnitName, Arc<FailureRecord>>,
}

/// A key of the placement index: a machine and a unit on it. `unit` is `None` only in a search key,
/// which sorts before the keys of all units on the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PlacementKey {
    machine: MachineId,
    unit: Option<UnitName>,
}

impl PlacementKey {
    fn new(machine: &MachineId, unit: &UnitName) -> Self {
        Self { machine: machine.clone(), unit: Some(unit.clone()) }
    }

    fn first_on(machine: &MachineId) -> RangeFrom<Self> {
        Self { machine: machine.clone(), unit: None }..
    }
}

/// A stored unit that cannot be decoded. It does not affect other units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Description of the defect in the stored record.
    pub message: String,
}

impl Snapshot {
    /// Returns the units, in order of their names.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &Arc<Unit>> {
        self.units.values()
    }

    /// Returns the units from `first` on, in the order of their names. The earlier units are not
    /// visited.
    pub fn units_from(&self, first: UnitName) -> impl Iterator<Item = &Arc<Unit>> {
        self.units.range(first..).map(|(_, unit)| unit)
    }

    /// Returns the unit of that name.
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<&Arc<Unit>> {
        self.units.get(name)
    }

    /// Returns the global units, in order of their names.
    pub fn global_units(&self) -> impl Iterator<Item = &Arc<Unit>> {
        self.globals.iter().filter_map(|(name, ())| self.unit(name.as_str()))
    }

    /// Returns the number of global units.
    #[must_use]
    pub fn global_count(&self) -> usize {
        self.globals.len()
    }

    /// Returns the machines that are present, in order of their IDs.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// Returns the machines from `first` on, in the order of their IDs. The earlier machines are
    /// not visited.
    pub fn machines_from(&self, first: MachineId) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.range(first..).map(|(_, machine)| machine)
    }

    /// Returns the machine of that ID, if it is present.
    #[must_use]
    pub fn machine(&self, id: &str) -> Option<&Arc<Machine>> {
        self.machines.get(id)
    }

    /// Returns the placements, in order of the unit names.
    pub fn placements(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Placement)> {
        self.placements.iter()
    }

    /// Returns the placement of a unit.
    #[must_use]
    pub fn placement(&self, unit: &str) -> Option<&Placement> {
        self.placements.get(unit)
    }

    /// Returns the units placed on a machine, in the order of their names. The cost does not depend
    /// on the placements on other machines.
    pub fn placements_on(&self, machine: &MachineId) -> impl Iterator<Item = (&UnitName, Epoch)> {
        let placements_by_machine =
            self.placements_by_machine.range(PlacementKey::first_on(machine));
        let placements_by_machine =
            placements_by_machine.take_while(move |(key, _)| key.machine == *machine);
        placements_by_machine.filter_map(|(key, epoch)| Some((key.unit.as_ref()?, *epoch)))
    }

    /// Returns the published states of all units, ordered by unit name and machine ID.
    pub fn states(&self) -> impl Iterator<Item = &Arc<UnitState>> {
        self.states.values().flat_map(States::iter)
    }

    /// Returns the published states from this unit and machine on, ordered by unit name and machine
    /// ID. States of earlier units are not visited; states of the same unit on earlier machines
    /// are.
    pub fn states_from(
        &self,
        unit: UnitName,
        machine: &MachineId,
    ) -> impl Iterator<Item = &Arc<UnitState>> {
        let states = self.states.range(unit.clone()..).flat_map(|(_, states)| states.iter());
        states.skip_while(move |state| state.unit == unit && state.machine < *machine)
    }

    /// Returns the published states of one unit, in order of machine IDs.
    pub fn states_of(&self, unit: &str) -> impl Iterator<Item = &Arc<UnitState>> {
        self.states.get(unit).into_iter().flat_map(States::iter)
    }

    /// Returns the published state of one unit on one machine.
    #[must_use]
    pub fn state(&self, unit: &str, machine: &str) -> Option<&Arc<UnitState>> {
        self.states.get(unit)?.get(machine)
    }

    /// Returns the published reason why a unit has no machine.
    #[must_use]
    pub fn reason(&self, unit: &str) -> Option<&Arc<Reason>> {
        self.reasons.get(unit)
    }

    /// Returns the published reasons, in order of the unit names.
    pub fn reasons(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<Reason>)> {
        self.reasons.iter()
    }

    /// Returns the stored units that cannot be decoded, in order of their names.
    pub fn faults(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<Fault>)> {
        self.faults.iter()
    }

    /// Returns the faults from `first` on, in order of the unit names.
    pub fn faults_from(&self, first: UnitName) -> impl Iterator<Item = (&UnitName, &Arc<Fault>)> {
        self.faults.range(first..)
    }

    /// Returns the fault of a stored unit that cannot be decoded.
    #[must_use]
    pub fn fault(&self, unit: &str) -> Option<&Arc<Fault>> {
        self.faults.get(unit)
    }

    /// Returns the metadata that was set at run time for a machine, whether the machine is present
    /// or not. An empty value hides the key that the machine's configuration sets.
    #[must_use]
    pub fn dynamic_metadata(&self, machine: &str) -> Option<&Metadata> {
        self.dynamic_metadata.get(machine).map(|pairs| &**pairs)
    }

    /// Returns all metadata that was set at run time, in order of machine IDs.
    pub fn all_dynamic_metadata(&self) -> impl ExactSizeIterator<Item = (&MachineId, &Metadata)> {
        self.dynamic_metadata.iter().map(|(machine, pairs)| (machine, &**pairs))
    }

    /// Returns the rollouts, in the order of their numbers. They include the last ones that have
    /// ended.
    pub fn rollouts(&self) -> impl ExactSizeIterator<Item = &Arc<RolloutRecord>> {
        self.rollouts.values()
    }

    /// Returns the rollout of that number.
    #[must_use]
    pub fn rollout(&self, id: RolloutId) -> Option<&Arc<RolloutRecord>> {
        self.rollouts.get(&id)
    }

    /// Returns the jobs, in order of their unit names. They include the ended ones.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<JobRecord>)> {
        self.jobs.iter()
    }

    /// Returns the job of a unit.
    #[must_use]
    pub fn job(&self, unit: &str) -> Option<&Arc<JobRecord>> {
        self.jobs.get(unit)
    }

    /// Returns the schedules, in order of their unit names.
    pub fn schedules(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<ScheduleRecord>)> {
        self.schedules.iter()
    }

    /// Returns the schedule of a unit.
    #[must_use]
    pub fn schedule(&self, unit: &str) -> Option<&Arc<ScheduleRecord>> {
        self.schedules.get(unit)
    }

    /// Returns the counted failures of units, in order of the unit names.
    pub fn failures(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<FailureRecord>)> {
        self.failures.iter()
    }

    /// Returns the counted failures of a unit.
    #[must_use]
    pub fn failures_of(&self, unit: &str) -> Option<&Arc<FailureRecord>> {
        self.failures.get(unit)
    }

    /// Returns the current state of a unit: the state that its agent last requested from the
    /// service manager.
    ///
    /// A unit without a placement is `Inactive`, and so is a unit of which the placement's machine
    /// has published no state. For a global unit, the lowest state that any machine has published
    /// is returned.
    #[must_use]
    pub fn current(&self, unit: &Unit) -> TargetState {
        if unit.is_global() {
            let requested = self.states_of(unit.name.as_str()).map(|state| state.requested);
            return requested.min().unwrap_or(TargetState::Inactive);
        }
        let machine = self.placement(unit.name.as_str()).map(|placement| &placement.machine);
        machine
            .and_then(|machine| self.state(unit.name.as_str(), machine.as_str()))
            .map_or(TargetState::Inactive, |state| state.requested)
    }

    /// Adds or replaces a unit.
    pub fn put_unit(&mut self, unit: impl Into<Arc<Unit>>) {
        let unit = unit.into();
        self.faults.remove(&unit.name);
        if unit.is_global() {
            self.globals.insert(unit.name.clone(), ());
        } else {
            self.globals.remove(&unit.name);
        }
        self.units.insert(unit.name.clone(), unit);
    }

    /// Records that a stored unit cannot be decoded.
    pub fn put_fault(&mut self, unit: UnitName, fault: Fault) {
        self.units.remove(&unit);
        self.globals.remove(&unit);
        self.faults.insert(unit, Arc::new(fault));
    }

    /// Removes a unit, valid or faulty. Its placement and states are kept.
    pub fn remove_unit(&mut self, unit: &str) {
        self.units.remove(unit);
        self.globals.remove(unit);
        self.faults.remove(unit);
    }

    /// Adds or replaces a machine.
    pub fn put_machine(&mut self, machine: impl Into<Arc<Machine>>) {
        let machine = machine.into();
        self.machines.insert(machine.id.clone(), machine);
    }

    /// Removes a machine.
    pub fn remove_machine(&mut self, machine: &str) {
        self.machines.remove(machine);
    }

    /// Places a unit on a machine.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        self.placements_by_machine.insert(PlacementKey::new(&machine, &unit), epoch);
        let placement = Placement { machine, epoch };
        let before = self.placements.insert(unit.clone(), placement.clone());
        if let Some(before) = before.filter(|before| before.machine != placement.machine) {
            self.placements_by_machine.remove(&PlacementKey::new(&before.machine, &unit));
        }
    }

    /// Removes a unit's placement.
    pub fn unplace(&mut self, unit: &str) {
        let Some((unit, placement)) = self.placements.remove(unit) else {
            return;
        };
        self.placements_by_machine.remove(&PlacementKey::new(&placement.machine, &unit));
    }

    /// Adds or replaces the state of a unit on a machine.
    pub fn put_state(&mut self, state: UnitState) {
        let (unit, state) = (state.unit.clone(), Arc::new(state));
        match self.states.get_mut(&unit) {
            Some(states) => states.put(state),
            None => drop(self.states.insert(unit, States::One(state))),
        }
    }

    /// Removes the state of a unit on a machine.
    pub fn remove_state(&mut self, unit: &str, machine: &str) {
        let is_last = match self.states.get_mut(unit) {
            Some(States::One(state)) => state.machine.as_str() == machine,
            Some(States::Many(states)) => {
                states.remove(machine);
                states.len() == 0
            }
            None => false,
        };
        if is_last {
            self.states.remove(unit);
        }
    }

    /// Records the reason why a unit has no machine.
    pub fn put_reason(&mut self, unit: UnitName, reason: Reason) {
        self.reasons.insert(unit, Arc::new(reason));
    }

    /// Removes the reason of a unit.
    pub fn remove_reason(&mut self, unit: &str) {
        self.reasons.remove(unit);
    }

    /// Adds or replaces a rollout.
    pub fn put_rollout(&mut self, record: RolloutRecord) {
        self.rollouts.insert(record.id, Arc::new(record));
    }

    /// Removes a rollout.
    pub fn remove_rollout(&mut self, id: RolloutId) {
        self.rollouts.remove(&id);
    }

    /// Adds or replaces the job of a unit.
    pub fn put_job(&mut self, unit: UnitName, record: JobRecord) {
        self.jobs.insert(unit, Arc::new(record));
    }

    /// Removes the job of a unit.
    pub fn remove_job(&mut self, unit: &str) {
        self.jobs.remove(unit);
    }

    /// Adds or replaces the schedule of a unit.
    pub fn put_schedule(&mut self, unit: UnitName, record: ScheduleRecord) {
        self.schedules.insert(unit, Arc::new(record));
    }

    /// Removes the schedule of a unit.
    pub fn remove_schedule(&mut self, unit: &str) {
        self.schedules.remove(unit);
    }

    /// Adds or replaces the counted failures of a unit.
    pub fn put_failures(&mut self, unit: UnitName, record: FailureRecord) {
        self.failures.insert(unit, Arc::new(record));
    }

    /// Removes the counted failures of a unit.
    pub fn remove_failures(&mut self, unit: &str) {
        self.failures.remove(unit);
    }

    /// Sets one pair of a machine's run-time metadata.
    pub fn put_dynamic_metadata(&mut self, machine: MachineId, key: String, value: String) {
        let mut pairs = self.dynamic_metadata.get(&machine).cloned().unwrap_or_default();
        Arc::make_mut(&mut pairs).insert(key, value);
        self.dynamic_metadata.insert(machine, pairs);
    }

    /// Removes one pair of a machine's run-time metadata.
    pub fn remove_dynamic_metadata(&mut self, machine: &str, key: &str) {
        let Some(pairs) = self.dynamic_metadata.get_mut(machine) else {
            return;
        };
        Arc::make_mut(pairs).remove(key);
        if pairs.is_empty() {
            self.dynamic_metadata.remove(machine);
        }
    }
}

/// Bulk insertion. Each method has the effect of inserting the entries one by one. It is faster if
/// the entries are sorted by unit name and the snapshot holds no entries of that kind yet.
impl Snapshot {
    /// Adds or replaces units, preferably in order of names.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fleet_core::{Requirements, Snapshot, TargetState, Unit};
    /// use fleet_unitfile::UnitFile;
    ///
    /// let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n")?;
    /// let unit = |name: &str| -> Result<_, fleet_unitfile::NameError> {
    ///     let (name, none) = (name.parse()?, Requirements::default());
    ///     Ok(Arc::new(Unit::new(name, file.clone(), none, TargetState::Launched)))
    /// };
    /// let mut snapshot = Snapshot::default();
    /// snapshot.put_units([unit("a.service")?, unit("b.service")?]);
    /// assert_eq!(snapshot.units().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_units(&mut self, units: impl IntoIterator<Item = Arc<Unit>>) {
        let units: Vec<_> = units.into_iter().collect();
        if !units.is_sorted_by(|one, other| one.name < other.name) {
            return units.into_iter().for_each(|unit| self.put_unit(unit));
        }
        let mut globals = Vec::new();
        for unit in &units {
            self.faults.remove(&unit.name);
            if unit.is_global() {
                globals.push((unit.name.clone(), ()));
            } else {
                self.globals.remove(&unit.name);
            }
        }
        self.globals.extend(globals);
        self.units.extend(units.into_iter().map(|unit| (unit.name.clone(), unit)));
    }

    /// Adds or replaces states, preferably in order of the unit names.
    pub fn put_states(&mut self, states: impl IntoIterator<Item = UnitState>) {
        let states: Vec<_> = states.into_iter().collect();
        if !states.is_sorted_by(|one, other| one.unit <= other.unit) {
            return states.into_iter().for_each(|state| self.put_state(state));
        }
        let mut all: Vec<(UnitName, States)> = Vec::new();
        for state in states {
            let (unit, state) = (state.unit.clone(), Arc::new(state));
            match all.last_mut() {
                Some((last, states)) if *last == unit => states.put(state),
                _ => {
                    let states = self.states_with(&unit, state);
                    all.push((unit, states));
                }
            }
        }
        self.states.extend(all);
    }

    /// Returns the states of a unit, with one state added or replaced.
    fn states_with(&self, unit: &UnitName, state: Arc<UnitState>) -> States {
        let Some(there) = self.states.get(unit) else { return States::One(state) };
        let mut states = there.clone();
        states.put(state);
        states
    }
}
