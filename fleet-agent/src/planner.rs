//! Pure: the plan that an engine has while it leads, kept up to date from news to news.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Reason, Revision, Snapshot};
use fleet_scheduler::{DrainPlan, Index, Plan, Policy};
use fleet_store::{Difference, News};
use fleet_unitfile::UnitName;

use crate::balancing::{Balancing, Next};
use crate::emptying::Emptying;

/// An index of the cluster, and its plan, both of the snapshot that was seen last.
///
/// What the engine itself does comes back to it with the news as everything else does. Were it put
/// into the index as soon as it is done, the index would be ahead of the mirror, and what the
/// mirror then does not get to see, since it had lost the store in between, would stay in it.
#[derive(Debug)]
pub struct Planner {
    index: Index,
    plan: Plan,
    emptying: Emptying,
    balancing: Balancing,
}

impl Default for Planner {
    fn default() -> Self {
        Self::new()
    }
}

impl Planner {
    /// A planner that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        let (index, plan) = (Index::new(Policy::default()), Plan::default());
        let (emptying, balancing) = (Emptying::default(), Balancing::default());
        Self { index, plan, emptying, balancing }
    }

    /// The revision of the snapshot that was seen last, for
    /// [`Mirror::news_since`](fleet_store::Mirror::news_since).
    #[must_use]
    pub fn seen(&self) -> Revision {
        self.plan.based_on
    }

    /// Takes the news in, and returns what [`plan`](fleet_scheduler::plan()) says of the snapshot,
    /// reasons of all units without a machine included. It costs what is different, and what waits.
    ///
    /// The news must be those since the revision that was [seen](Self::seen).
    pub fn follow(&mut self, news: &News) -> &Plan {
        let snapshot = &*news.snapshot;
        match &news.difference {
            Some(difference) if difference.is_empty() => {}
            Some(difference) if self.seen() > Revision::ZERO => self.change(snapshot, difference),
            _ => self.load(snapshot),
        }
        self.index.set_revision(snapshot.revision);
        self.plan.based_on = snapshot.revision;
        debug_assert_eq!(self.plan, fleet_scheduler::plan(snapshot));
        &self.plan
    }

    /// What is to be done now, beside the [plan](Self::follow), to empty the machines that people
    /// want to be drained; nothing if they are empty. The snapshot must be the one seen last.
    pub fn drain(&mut self, snapshot: &Snapshot) -> Option<&DrainPlan> {
        self.emptying.plan(snapshot, &mut self.index)
    }

    /// What is to be done now for the order to rebalance, where nothing else is to be done;
    /// nothing if there is none. The snapshot must be the one seen last.
    pub(crate) fn rebalance(&mut self, snapshot: &Snapshot) -> Option<Next> {
        self.balancing.plan(snapshot, &mut self.index)
    }

    /// Looks at everything.
    fn load(&mut self, snapshot: &Snapshot) {
        self.index = Index::load(Policy::default(), snapshot);
        self.plan = self.index.plan();
        self.emptying.load(snapshot);
        self.balancing.change();
    }

    /// Looks at what is different.
    fn change(&mut self, snapshot: &Snapshot, difference: &Difference) {
        self.read(snapshot, difference);
        self.emptying.change(snapshot, &difference.machines);
        self.balancing.change();
        let plan = self.index.plan();
        let unplaced = self.unplaced(plan.unplaced);
        self.plan = Plan { unplaced, ..plan };
    }

    fn read(&mut self, snapshot: &Snapshot, difference: &Difference) {
        let index = &mut self.index;
        for machine in &difference.machines {
            match snapshot.machine(machine.as_str()) {
                Some(machine) => index.put_machine(machine.as_ref().clone()),
                None => index.remove_machine(machine.as_str()),
            }
        }
        for name in &difference.units {
            match snapshot.unit(name.as_str()) {
                Some(unit) => index.put_unit(unit),
                None if snapshot.fault(name.as_str()).is_some() => {
                    index.put_unreadable(name.clone());
                }
                None => index.remove_unit(name.as_str()),
            }
        }
        for unit in &difference.placements {
            match snapshot.placement(unit.as_str()) {
                Some(at) => index.place(unit.clone(), at.machine.clone(), at.epoch),
                None => index.unplace(unit.as_str()),
            }
        }
    }

    /// The reasons of all that wait, when those are known that were tried. Who waits and was not
    /// tried had a reason before, but it need not be the same now: it counts machines, and tells
    /// who is on them.
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

    /// A cluster, and what has become different in it since it was last planned.
    #[derive(Default)]
    struct Cluster {
        snapshot: Snapshot,
        difference: Difference,
    }

    impl Cluster {
        fn put(&mut self, name: &str, requirements: &str) {
            let text = format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\n{requirements}");
            let (name, file) = (unit(name), UnitFile::parse(text).unwrap());
            let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
            self.difference.units.insert(name.clone());
            let wanted = TargetState::Launched;
            self.snapshot.put_unit(Unit::new(name, file, parsed.requirements, wanted));
        }

        fn fault(&mut self, name: &str) {
            self.difference.units.insert(unit(name));
            self.snapshot.put_fault(unit(name), Fault { message: "it is torn".to_owned() });
        }

        fn destroy(&mut self, name: &str) {
            self.difference.units.insert(unit(name));
            self.snapshot.remove_unit(unit(name).as_str());
        }

        fn join(&mut self, machine: &str) {
            self.difference.machines.insert(id(machine));
            self.snapshot.put_machine(Machine::new(id(machine)));
        }

        fn lose(&mut self, machine: &str) {
            self.difference.machines.insert(id(machine));
            self.snapshot.remove_machine(machine);
        }

        fn place(&mut self, name: &str, machine: &str) {
            self.difference.placements.insert(unit(name));
            self.snapshot.place(unit(name), id(machine), Epoch(self.snapshot.revision.0));
        }

        /// Carries a plan out.
        fn carry_out(&mut self, plan: &Plan) {
            self.snapshot = apply(&self.snapshot, plan);
            self.difference.placements.extend(plan.steps.iter().map(|step| step.unit.clone()));
        }

        /// Lets a planner follow, and compares it with one that looks at everything.
        fn told(&mut self, planner: &mut Planner) -> Plan {
            self.snapshot.revision = self.snapshot.revision.next();
            let difference = Some(std::mem::take(&mut self.difference));
            let snapshot = Arc::new(self.snapshot.clone());
            let plan = planner.follow(&News { snapshot, is_current: true, difference }).clone();
            assert_eq!(plan, fleet_scheduler::plan(&self.snapshot));
            plan
        }
    }

    #[test]
    fn a_planner_that_follows_plans_like_one_that_looks_at_everything() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("a", "");
        let first = cluster.told(&mut planner);
        assert_eq!(first.steps.len(), 1, "{first}");
        assert_eq!(cluster.told(&mut planner).steps, first.steps, "it was not carried out");
        cluster.carry_out(&first);
        assert!(cluster.told(&mut planner).is_empty());
        cluster.put("b", "Conflicts=a.service\n");
        assert_eq!(cluster.told(&mut planner).unplaced.len(), 1);
        cluster.join("m2");
        let second = cluster.told(&mut planner);
        cluster.carry_out(&second);
        assert!(cluster.told(&mut planner).unplaced.is_empty());
        cluster.fault("a");
        cluster.lose("m2");
        assert_eq!(cluster.told(&mut planner).unplaced.len(), 1);
        cluster.destroy("a");
        assert_eq!(cluster.told(&mut planner).steps.len(), 2, "one goes, one comes");
        cluster.join("m3");
        cluster.place("b", "m3");
        cluster.destroy("b");
        cluster.put("b", "");
        assert_eq!(cluster.told(&mut planner).steps.len(), 1);
    }

    #[test]
    fn reasons_stay_told_and_true_of_units_that_need_not_be_tried_again() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("picky", "MachineMetadata=gpu=yes\n");
        let before = cluster.told(&mut planner);
        cluster.put("other", "");
        assert!(cluster.told(&mut planner).unplaced.contains_key(&unit("picky")));
        cluster.join("m2");
        let after = cluster.told(&mut planner);
        assert_ne!(after.unplaced, before.unplaced, "a machine more refuses it");
    }

    #[test]
    fn news_of_which_nobody_knows_what_is_different_are_looked_at_whole() {
        let (mut cluster, mut planner) = (Cluster::default(), Planner::new());
        cluster.join("m1");
        cluster.put("a", "");
        cluster.told(&mut planner);
        cluster.lose("m1");
        cluster.snapshot.revision = Revision(9);
        let snapshot = Arc::new(cluster.snapshot.clone());
        let news = News { snapshot, is_current: true, difference: None };
        assert_eq!(*planner.follow(&news), plan(&cluster.snapshot));
        assert_eq!(planner.seen(), Revision(9));
    }
}
