//! Pure: the plan of a leading engine, updated from delta to delta, and the progress of moves that
//! an operator requests: rebalancing the cluster and draining machines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::rebalancing::{Rebalancing, RecentMove};
use fleet_core::{ActiveState, MachineId, Revision, Snapshot};
use fleet_scheduler::{
    Cluster, Drain, DrainPlan, HoldReason, Plan, Policy, Rebalance, Step, StepAction, StepCause,
};
use fleet_store::mirror::{ChangeSet, Delta};

/// The scheduler's cluster and the plan made from it, both as of the last snapshot.
///
/// The engine's own writes reach the cluster through the deltas, like all other writes. If the
/// cluster applied them at once, it would be ahead of the mirror. A mirror that loses the store may
/// never see such a write, but the write would stay in the cluster.
#[derive(Debug)]
pub struct Planner {
    cluster: Cluster,
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
        let (cluster, plan) = (Cluster::new(), Plan::default());
        let (drain, rebalance) = (DrainProgress::default(), RebalanceProgress::default());
        Self { cluster, plan, drain, rebalance }
    }

    /// Returns the revision of the last snapshot, for
    /// [`Mirror::delta_since`](fleet_store::Mirror::delta_since).
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.plan.based_on
    }

    /// Applies a delta to the cluster. Returns the same plan as [`plan`](fleet_scheduler::plan())
    /// for the delta's snapshot. The cost depends on the size of the delta and on the number of
    /// units without a machine.
    ///
    /// The delta must begin at the revision that [`revision`](Self::revision) returns.
    pub fn follow(&mut self, delta: &Delta) -> &Plan {
        let snapshot = &*delta.snapshot;
        match &delta.changes {
            Some(changes) if changes.is_empty() => {}
            Some(changes) if self.revision() > Revision::ZERO => self.change(snapshot, changes),
            _ => self.load(snapshot),
        }
        self.cluster.set_revision(snapshot.revision);
        self.plan.based_on = snapshot.revision;
        debug_assert_eq!(self.plan, fleet_scheduler::plan(snapshot));
        &self.plan
    }

    /// Returns the next steps for emptying the machines that are being drained, in addition to the
    /// [plan](Self::follow). Returns `None` if these machines are empty. `snapshot` must be the one
    /// of the last delta.
    pub fn drain(&mut self, snapshot: &Snapshot) -> Option<&DrainPlan> {
        self.drain.plan(snapshot, &mut self.cluster)
    }

    /// Returns the next step of the requested rebalance; `None` if no rebalance is requested. Must
    /// be called only if neither the [plan](Self::follow) nor a drain has steps left. `snapshot`
    /// must be the one of the last delta.
    pub(crate) fn rebalance(&mut self, snapshot: &Snapshot) -> Option<NextStep> {
        self.rebalance.plan(snapshot, &mut self.cluster)
    }

    /// Reads the whole snapshot.
    fn load(&mut self, snapshot: &Snapshot) {
        self.cluster = Cluster::load(Policy::default(), snapshot);
        self.plan = self.cluster.plan();
        self.drain.load(snapshot);
        self.rebalance.invalidate();
    }

    /// Applies the differences.
    fn change(&mut self, snapshot: &Snapshot, changes: &ChangeSet) {
        self.read(snapshot, changes);
        self.drain.change(snapshot, &changes.machines);
        self.rebalance.invalidate();
        self.plan = self.cluster.plan();
    }

    fn read(&mut self, snapshot: &Snapshot, changes: &ChangeSet) {
        let cluster = &mut self.cluster;
        for machine in &changes.machines {
            match snapshot.machine(machine.as_str()) {
                Some(machine) => cluster.add_machine(Arc::clone(machine)),
                None => cluster.remove_machine(machine.as_str()),
            }
        }
        for name in &changes.units {
            match snapshot.unit(name.as_str()) {
                Some(unit) => cluster.add(unit),
                None if snapshot.fault(name.as_str()).is_some() => {
                    cluster.mark_unreadable(name.clone());
                }
                None => cluster.remove(name.as_str()),
            }
        }
        for unit in &changes.placements {
            match snapshot.placement(unit.as_str()) {
                Some(at) => cluster.place(unit.clone(), at.machine.clone(), at.epoch),
                None => cluster.unplace(unit.as_str()),
            }
        }
    }
}

/// Plans for the requested rebalance, cached.
#[derive(Debug, Default)]
pub(crate) struct RebalanceProgress {
    /// Last plan; valid until the cluster changes.
    last: Option<(Rebalance, Vec<Step>)>,
    /// Last result of `may_move_later`, with the request for which it was computed. Valid until the
    /// cluster changes, like `last`.
    later: Option<(Rebalance, bool)>,
}

/// Next step of a rebalance.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// These moves, together with the record that they are made.
    Moves { steps: Vec<Step>, seen: Arc<Rebalancing>, updated: Rebalancing },
    /// Nothing until the moves in progress are done, or enough units are up.
    Wait,
    /// Nothing more: the rebalance is complete.
    Over(Arc<Rebalancing>),
}

impl RebalanceProgress {
    /// Drops the cached plans. Must be called on every change of the cluster.
    pub(crate) fn invalidate(&mut self) {
        (self.last, self.later) = (None, None);
    }

    /// Returns the next step of the requested rebalance; `None` if no rebalance is requested. Must
    /// be called only if there is nothing else to plan for the cluster: no placement and no drain
    /// step.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, cluster: &mut Cluster) -> Option<NextStep> {
        let seen = snapshot.rebalancing.clone()?;
        let request = Rebalance::from_order(snapshot)?;
        let steps = if request.budget > 0 { self.steps(&request, cluster) } else { Vec::new() };
        Some(match steps.is_empty() {
            false => NextStep::Moves { updated: with_moves(&seen, &steps, snapshot), steps, seen },
            true if seen.in_flight(snapshot).next().is_some() => NextStep::Wait,
            true if self.may_move_later(&request, snapshot, cluster) => NextStep::Wait,
            true => NextStep::Over(seen),
        })
    }

    /// Returns whether the rebalance would move units if all units that are down but may still come
    /// up were up. In that case the rebalance waits for them. Otherwise, an instance that happens
    /// to restart could end the rebalance.
    fn may_move_later(
        &mut self,
        request: &Rebalance,
        snapshot: &Snapshot,
        cluster: &mut Cluster,
    ) -> bool {
        let Some(hope) = request.assuming_recovery(snapshot).filter(|hope| hope.budget > 0) else {
            return false;
        };
        let cached = self.later.take().filter(|(before, _)| *before == hope);
        let cached = cached.unwrap_or_else(|| {
            let moves = !moves(&hope, cluster).is_empty();
            (hope, moves)
        });
        self.later.insert(cached).1
    }

    fn steps(&mut self, request: &Rebalance, cluster: &mut Cluster) -> Vec<Step> {
        let cached = self.last.take().filter(|(before, _)| before == request);
        let cached = cached.unwrap_or_else(|| (request.clone(), moves(request, cluster)));
        self.last.insert(cached).1.clone()
    }
}

fn moves(request: &Rebalance, cluster: &mut Cluster) -> Vec<Step> {
    let steps = cluster.rebalance(request).steps.into_iter();
    steps.filter(|step| step.cause == StepCause::Rebalanced).collect()
}

/// Returns the order with these moves recorded and completed moves dropped.
fn with_moves(order: &Rebalancing, steps: &[Step], snapshot: &Snapshot) -> Rebalancing {
    let under_way = order.in_flight(snapshot);
    let mut moving: BTreeMap<_, _> =
        under_way.map(|(unit, moving)| (unit.clone(), moving.clone())).collect();
    for step in steps {
        if let StepAction::Move { from, to } = &step.action {
            let state = snapshot.state(step.unit.as_str(), from.as_str());
            let was_up = state.is_some_and(|state| {
                matches!(state.systemd.active, ActiveState::Active | ActiveState::Reloading)
            });
            let (from, to) = (from.clone(), to.clone());
            moving.insert(step.unit.clone(), RecentMove { from, to, was_active: was_up });
        }
    }
    let made = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    Rebalancing { limits: order.limits, moved: order.moved.saturating_add(made), moves: moving }
}

/// Machines that are being drained, with the last plan for emptying them.
#[derive(Debug, Default)]
pub(crate) struct DrainProgress {
    machines: BTreeSet<MachineId>,
    /// Last plan; valid while both the cluster and the drain are unchanged.
    last: Option<(Drain, DrainPlan)>,
}

impl DrainProgress {
    /// Reads all machines of the snapshot.
    pub(crate) fn load(&mut self, snapshot: &Snapshot) {
        let machines = snapshot.machines().map(|machine| &machine.id);
        let machines: BTreeSet<_> = machines.cloned().collect();
        self.machines.clear();
        self.change(snapshot, &machines);
    }

    /// Reads the machines that may have changed, and drops the last plan. Must be called on every
    /// change of the cluster, even if no machine has changed.
    pub(crate) fn change(&mut self, snapshot: &Snapshot, machines: &BTreeSet<MachineId>) {
        self.last = None;
        for id in machines {
            let intent = snapshot.machine(id.as_str()).and_then(|machine| machine.intent);
            if intent.and_then(fleet_core::Intent::min_available).is_some() {
                self.machines.insert(id.clone());
            } else {
                self.machines.remove(id);
            }
        }
    }

    /// Returns the plan for emptying the machines; `None` if no units are placed on them.
    ///
    /// The cost depends on the number of units on these machines. If a drain requires a minimum
    /// number of running instances, the cost depends on the number of all placed units.
    pub(crate) fn plan(
        &mut self,
        snapshot: &Snapshot,
        cluster: &mut Cluster,
    ) -> Option<&DrainPlan> {
        let machines = self.machines.iter().filter_map(|id| snapshot.machine(id.as_str()));
        let drain = Drain::from_intents(snapshot, machines.map(AsRef::as_ref))?;
        let cached = self.last.take().filter(|(before, _)| *before == drain);
        let cached = cached.unwrap_or_else(|| {
            let plan = cluster.drain(&drain);
            (drain, plan)
        });
        Some(&self.last.insert(cached).1)
    }
}

/// Returns whether the plan keeps a unit on its machine until enough other instances of its
/// template are up. Such a plan depends on the reported unit states.
pub(crate) fn waits_for_reports(plan: &DrainPlan) -> bool {
    plan.held.values().any(|held| matches!(held, HoldReason::MinAvailable { .. }))
}

#[cfg(test)]
mod tests {
    use fleet_core::snapshot::Fault;
    use fleet_core::{Epoch, Machine, MachineId, Requirements, Strictness, TargetState, Unit};
    use fleet_scheduler::{apply, plan};
    use fleet_unitfile::{UnitFile, UnitName};

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
            let plan = planner.follow(&Delta::new(snapshot, changes)).clone();
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
        let delta = Delta::new(snapshot, None);
        assert_eq!(*planner.follow(&delta), plan(&cluster.snapshot));
        assert_eq!(planner.revision(), Revision(9));
    }
}
