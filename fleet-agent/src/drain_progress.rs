//! Pure: the machines that are being drained, and the cached plan for emptying them.

use std::collections::BTreeSet;

use fleet_core::{MachineId, Snapshot};
use fleet_scheduler::{Cluster, Drain, DrainPlan, HoldReason};

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
