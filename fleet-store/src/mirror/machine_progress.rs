//! Whom a change concerns, and how each machine's agent is told of its own alone.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{MachineId, Revision};
use tokio::sync::watch as signal;

/// What a mirror has seen of one machine; see [`Mirror::watch_machine`](super::Mirror::watch_machine).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineProgress {
    /// The last revision that may have changed something for the machine.
    pub revision: Revision,
    /// Whether the watch that keeps the mirror current is alive.
    pub is_current: bool,
}

/// Whom what was taken over concerns.
#[derive(Debug, Default)]
pub(super) struct AffectedMachines {
    machines: BTreeSet<MachineId>,
    all: bool,
}

impl AffectedMachines {
    pub(super) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub(super) fn add(&mut self, machine: &MachineId) {
        if !self.all && !self.machines.contains(machine) {
            self.machines.insert(machine.clone());
        }
    }

    pub(super) fn add_all(&mut self) {
        *self = Self::all();
    }

    fn contains(&self, machine: &MachineId) -> bool {
        self.all || self.machines.contains(machine)
    }
}

/// Who follows which machine.
#[derive(Debug, Default)]
pub(super) struct MachineWatchers {
    machines: BTreeMap<MachineId, signal::Sender<MachineProgress>>,
}

impl MachineWatchers {
    /// Another one who follows the machine, and has seen what there was until `now`.
    pub(super) fn add(
        &mut self,
        machine: &MachineId,
        now: MachineProgress,
    ) -> signal::Receiver<MachineProgress> {
        let sender = self.machines.entry(machine.clone());
        sender.or_insert_with(|| signal::Sender::new(now)).subscribe()
    }

    /// Tells those whom it concerns, and all of them whether the mirror is current. It costs who
    /// follows, in most daemons one, and nothing that the cluster grows by.
    pub(super) fn publish(&mut self, affected: &AffectedMachines, now: MachineProgress) {
        self.machines.retain(|machine, sender| {
            let told = |machine_progress: &mut MachineProgress| {
                let before = *machine_progress;
                machine_progress.is_current = now.is_current;
                if affected.contains(machine) {
                    machine_progress.revision = now.revision;
                }
                *machine_progress != before
            };
            sender.send_if_modified(told);
            sender.receiver_count() > 0
        });
    }

    /// Tells all that nothing more will come.
    pub(super) fn end(&mut self) {
        self.machines.clear();
    }
}
