//! Machines that a change affects, and the channels that wake their agents.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{MachineId, Revision};
use tokio::sync::watch as signal;

/// Progress of a mirror for one machine; see
/// [`Mirror::watch_machine`](super::Mirror::watch_machine).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineProgress {
    /// Last revision that may have changed something for the machine.
    pub revision: Revision,
    /// Whether the mirror is current.
    pub is_current: bool,
}

/// Machines that applied changes may affect.
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

/// Watch channels of machines.
#[derive(Debug, Default)]
pub(super) struct MachineWatchers {
    machines: BTreeMap<MachineId, signal::Sender<MachineProgress>>,
}

impl MachineWatchers {
    /// Adds a receiver for a machine, starting at `now`.
    pub(super) fn add(
        &mut self,
        machine: &MachineId,
        now: MachineProgress,
    ) -> signal::Receiver<MachineProgress> {
        let sender = self.machines.entry(machine.clone());
        sender.or_insert_with(|| signal::Sender::new(now)).subscribe()
    }

    /// Notifies the watchers of the affected machines, or of all machines if the mirror has become
    /// current or has stopped being current. The cost depends on the number of watched machines
    /// (usually one), and not on the size of the cluster.
    pub(super) fn publish(&mut self, affected: &AffectedMachines, now: MachineProgress) {
        self.machines.retain(|machine, sender| {
            let update = |machine_progress: &mut MachineProgress| {
                let before = *machine_progress;
                machine_progress.is_current = now.is_current;
                if affected.contains(machine) {
                    machine_progress.revision = now.revision;
                }
                *machine_progress != before
            };
            sender.send_if_modified(update);
            sender.receiver_count() > 0
        });
    }

    /// Closes all channels.
    pub(super) fn end(&mut self) {
        self.machines.clear();
    }
}
