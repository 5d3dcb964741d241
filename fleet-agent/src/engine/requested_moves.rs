//! Pure: progress of the moves that an operator requests, which are rebalancing the cluster and
//! draining machines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::rebalancing::{Rebalancing, RecentMove};
use fleet_core::{ActiveState, MachineId, Snapshot};
use fleet_scheduler::{
    Cluster, Drain, DrainPlan, HoldReason, Rebalance, Step, StepAction, StepCause,
};

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
