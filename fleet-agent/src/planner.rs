//! Pure: the plan of a leading engine, updated from delta to delta.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Reason, Revision, Snapshot};
use fleet_scheduler::{DrainPlan, Index, Plan, Policy};
use fleet_store::{ChangeSet, Delta};
use fleet_unitfile::UnitName;

use crate::drain_progress::DrainProgress;
use crate::rebalance::{NextStep, RebalanceProgress};

/// Index of the cluster and the plan made from it, both as of the last snapshot.
///
/// The engine's own writes reach the index through the deltas, like all other writes. If the index
/// applied them at once, it would be ahead of the mirror. A mirror that loses the store may never
/// see such a write, but the write would stay in the index.
#[derive(Debug)]
pub struct Planner {
    index: Index,
    plan: Plan,
    drain: DrainProgress,
    rebalance: RebalanceProgress,
}

impl Default for Planner {
    fn default() -> Self {
        Self::new()
    }
}

impl Planner {
    /// Creates a planner that has seen no snapshot.
    #[must_use]
    pub fn new() -> Self {
        let (index, plan) = (Index::new(Policy::default()), Plan::default());
        let (drain, rebalance) = (DrainProgress::default(), RebalanceProgress::default());
        Self { index, plan, drain, rebalance }
    }

    /// Returns the revision of the last snapshot, for
    /// [`Mirror::delta_since`](fleet_store::Mirror::delta_since).
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.plan.based_on
    }

    /// Applies a delta to the index. Returns the same plan as [`plan`](fleet_scheduler::plan()) for
    /// the delta's snapshot, including the reasons of all units without a machine. The cost depends
    /// on the size of the delta and on the number of units without a machine.
    ///
    /// The delta must begin at the revision that [`revision`](Self::revision) returns.
    pub fn follow(&mut self, delta: &Delta) -> &Plan {
        let snapshot = &*delta.snapshot;
        match &delta.changes {
            Some(changes) if changes.is_empty() => {}
            Some(changes) if self.revision() > Revision::ZERO => self.change(snapshot, changes),
            _ => self.load(snapshot),
        }
        self.index.set_revision(snapshot.revision);
        self.plan.based_on = snapshot.revision;
        debug_assert_eq!(self.plan, fleet_scheduler::plan(snapshot));
        &self.plan
    }

    /// Returns the next steps for emptying the machines that are being drained, in addition to the
    /// [plan](Self::follow). Returns `None` if these machines are empty. `snapshot` must be the one
    /// of the last delta.
    pub fn drain(&mut self, snapshot: &Snapshot) -> Option<&DrainPlan> {
        self.drain.plan(snapshot, &mut self.index)
    }

    /// Returns the next step of the requested rebalance; `None` if no rebalance is requested. Must
    /// be called only if neither the [plan](Self::follow) nor a drain has steps left. `snapshot`
    /// must be the one of the last delta.
    pub(crate) fn rebalance(&mut self, snapshot: &Snapshot) -> Option<NextStep> {
        self.rebalance.plan(snapshot, &mut self.index)
    }

    /// Reads the whole snapshot.
    fn load(&mut self, snapshot: &Snapshot) {
        self.index = Index::load(Policy::default(), snapshot);
        self.plan = self.index.plan();
        self.drain.load(snapshot);
        self.rebalance.invalidate();
    }

    /// Applies the differences.
    fn change(&mut self, snapshot: &Snapshot, changes: &ChangeSet) {
        self.read(snapshot, changes);
        self.drain.change(snapshot, &changes.machines);
        self.rebalance.invalidate();
        let plan = self.index.plan();
        let unplaced = self.unplaced(plan.unplaced);
        self.plan = Plan { unplaced, ..plan };
    }

    fn read(&mut self, snapshot: &Snapshot, changes: &ChangeSet) {
        let index = &mut self.index;
        for machine in &changes.machines {
            match snapshot.machine(machine.as_str()) {
                Some(machine) => index.put_machine(machine.as_ref().clone()),
                None => index.remove_machine(machine.as_str()),
            }
        }
        for name in &changes.units {
            match snapshot.unit(name.as_str()) {
                Some(unit) => index.put_unit(unit),
                None if snapshot.fault(name.as_str()).is_some() => {
                    index.put_unreadable(name.clone());
                }
                None => index.remove_unit(name.as_str()),
            }
        }
        for unit in &changes.placements {
            match snapshot.placement(unit.as_str()) {
                Some(at) => index.place(unit.clone(), at.machine.clone(), at.epoch),
                None => index.unplace(unit.as_str()),
            }
        }
    }

    /// Returns the reasons of all unplaced units. `tried` holds the reasons of those units that the
    /// planner has just tried to place.
    ///
    /// A reason contains counts of machines and names of the units on them, so an earlier reason
    /// may be outdated. Therefore, if a unit that was unplaced before is missing from `tried`, all
    /// reasons are computed again.
    fn unplaced(
        &mut self,
        tried: BTreeMap<UnitName, Arc<Reason>>,
    ) -> BTreeMap<UnitName, Arc<Reason>> {
        let is_all = self.plan.unplaced.keys().all(|unit| tried.contains_key(unit));
        if is_all { tried } else { self.index.reasons() }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{
        Epoch, Fault, Machine, MachineId, Requirements, Strictness, TargetState, Unit,
    };
    use fleet_scheduler::{apply, plan};
    use fleet_unitfile::UnitFile;

    use super::*;

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    fn unit(name: &str) -> UnitName {
        format!("{name}.service").parse().unwrap()
    }

    /// A cluster, with the changes since it was last planned.
    #[derive(Default)]
    struct Cluster {
        snapshot: Snapshot,
        changes: ChangeSet,
    }

    impl Cluster {
        fn put(&mut self, name: &str, requirements: &str) {
            let text = format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\n{requirements}");
            let (name, file) = (unit(name), UnitFile::parse(text).unwrap());
            let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
            self.changes.units.insert(name.clone());
            let wanted = TargetState::Launched;
            self.snapshot.put_unit(Unit::new(name, file, parsed.requirements, wanted));
        }

        fn fault(&mut self, name: &str) {
            self.changes.units.insert(unit(name));
            self.snapshot.put_fault(unit(name), Fault { message: "it is torn".to_owned() });
        }

        fn destroy(&mut self, name: &str) {
            self.changes.units.insert(unit(name));
            self.snapshot.remove_unit(unit(name).as_str());
        }

        fn join(&mut self, machine: &str) {
            self.changes.machines.insert(id(machine));
            self.snapshot.put_machine(Machine::new(id(machine)));
        }

        fn lose(&mut self, machine: &str) {
            self.changes.machines.insert(id(machine));
            self.snapshot.remove_machine(machine);
        }

        fn place(&mut self, name: &str, machine: &str) {
            self.changes.placements.insert(unit(name));
            self.snapshot.place(unit(name), id(machine), Epoch(self.snapshot.revision.0));
        }

        /// Applies a plan.
        fn carry_out(&mut self, plan: &Plan) {
            self.snapshot = apply(&self.snapshot, plan);
            self.changes.placements.extend(plan.steps.iter().map(|step| step.unit.clone()));
        }

        /// Plans incrementally, and compares the result with a full plan.
        fn planned(&mut self, planner: &mut Planner) -> Plan {
            self.snapshot.revision = self.snapshot.revision.next();
            let changes = Some(std::mem::take(&mut self.changes));
            let snapshot = Arc::new(self.snapshot.clone());
            let plan = planner.follow(&Delta { snapshot, is_current: true, changes }).clone();
            assert_eq!(plan, fleet_scheduler::plan(&self.snapshot));
            plan
        }
    }

    #[test]
    fn incremental_plan_equals_full_plan() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("a", "");
        let first = cluster.planned(&mut planner);
        assert_eq!(first.steps.len(), 1, "{first}");
        assert_eq!(cluster.planned(&mut planner).steps, first.steps, "it was not carried out");
        cluster.carry_out(&first);
        assert!(cluster.planned(&mut planner).is_empty());
        cluster.put("b", "Conflicts=a.service\n");
        assert_eq!(cluster.planned(&mut planner).unplaced.len(), 1);
        cluster.join("m2");
        let second = cluster.planned(&mut planner);
        cluster.carry_out(&second);
        assert!(cluster.planned(&mut planner).unplaced.is_empty());
        cluster.fault("a");
        cluster.lose("m2");
        assert_eq!(cluster.planned(&mut planner).unplaced.len(), 1);
        cluster.destroy("a");
        assert_eq!(cluster.planned(&mut planner).steps.len(), 2, "one goes, one comes");
        cluster.join("m3");
        cluster.place("b", "m3");
        cluster.destroy("b");
        cluster.put("b", "");
        assert_eq!(cluster.planned(&mut planner).steps.len(), 1);
    }

    #[test]
    fn reasons_of_untried_units_stay_current() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("picky", "MachineMetadata=gpu=yes\n");
        let before = cluster.planned(&mut planner);
        cluster.put("other", "");
        assert!(cluster.planned(&mut planner).unplaced.contains_key(&unit("picky")));
        cluster.join("m2");
        let after = cluster.planned(&mut planner);
        assert_ne!(after.unplaced, before.unplaced, "a machine more refuses it");
    }

    #[test]
    fn delta_without_difference_reloads_snapshot() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("a", "");
        cluster.planned(&mut planner);
        cluster.lose("m1");
        cluster.snapshot.revision = Revision(9);
        let snapshot = Arc::new(cluster.snapshot.clone());
        let delta = Delta { snapshot, is_current: true, changes: None };
        assert_eq!(*planner.follow(&delta), plan(&cluster.snapshot));
        assert_eq!(planner.revision(), Revision(9));
    }
}
