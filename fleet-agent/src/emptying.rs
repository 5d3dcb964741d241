//! Pure: what an engine does to empty the machines that people want to be drained.

use std::collections::BTreeSet;

use fleet_core::{MachineId, Snapshot};
use fleet_scheduler::{Drain, DrainPlan, Held, Index};

/// The machines that are to be emptied, and what was last planned for it.
#[derive(Debug, Default)]
pub(crate) struct Emptying {
    machines: BTreeSet<MachineId>,
    /// Right as long as neither the index nor the drain is another.
    last: Option<(Drain, DrainPlan)>,
}

impl Emptying {
    /// Looks at all machines.
    pub(crate) fn load(&mut self, snapshot: &Snapshot) {
        let machines = snapshot.machines().map(|machine| &machine.id);
        let machines: BTreeSet<_> = machines.cloned().collect();
        self.machines.clear();
        self.change(snapshot, &machines);
    }

    /// Looks at the machines that may be different. To be told of every change of the index, of
    /// machines or not.
    pub(crate) fn change(&mut self, snapshot: &Snapshot, machines: &BTreeSet<MachineId>) {
        self.last = None;
        for id in machines {
            let intent = snapshot.machine(id.as_str()).and_then(|machine| machine.intent);
            if intent.and_then(fleet_core::Intent::keep_up).is_some() {
                self.machines.insert(id.clone());
            } else {
                self.machines.remove(id);
            }
        }
    }

    /// What is to be done now to empty them; nothing if they are empty. What it costs follows the
    /// units on them, and who is placed at all if some instances have to be up.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, index: &mut Index) -> Option<&DrainPlan> {
        let machines = self.machines.iter().filter_map(|id| snapshot.machine(id.as_str()));
        let drain = Drain::wanted(snapshot, machines.map(AsRef::as_ref))?;
        let known = self.last.take().filter(|(before, _)| *before == drain);
        let known = known.unwrap_or_else(|| {
            let plan = index.drain(&drain);
            (drain, plan)
        });
        Some(&self.last.insert(known).1)
    }
}

/// Whether some units wait for others to be up, so that what machines report is of interest.
pub(crate) fn waits_for_ups(plan: &DrainPlan) -> bool {
    plan.held.values().any(|held| matches!(held, Held::KeepUp { .. }))
}
