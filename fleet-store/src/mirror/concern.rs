//! Whom a change concerns, and how each machine's agent is told of its own alone.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{MachineId, Revision};
use tokio::sync::watch as signal;

/// What a mirror has seen of one machine; see [`Mirror::follow`](super::Mirror::follow).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Concern {
    /// The last revision that may have changed something for the machine.
    pub revision: Revision,
    /// Whether the watch that keeps the mirror current is alive.
    pub is_current: bool,
}

/// Whom what was taken over concerns.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    machines: BTreeSet<MachineId>,
    everybody: bool,
}

impl Concerned {
    pub(super) fn everybody() -> Self {
        Self { everybody: true, ..Self::default() }
    }

    pub(super) fn add(&mut self, machine: &MachineId) {
        if !self.everybody && !self.machines.contains(machine) {
            self.machines.insert(machine.clone());
        }
    }

    pub(super) fn add_everybody(&mut self) {
        *self = Self::everybody();
    }

    fn contains(&self, machine: &MachineId) -> bool {
        self.everybody || self.machines.contains(machine)
    }
}

/// Who follows which machine.
#[derive(Debug, Default)]
pub(super) struct Followers {
    machines: BTreeMap<MachineId, signal::Sender<Concern>>,
}

impl Followers {
    /// Another one who follows the machine, and has seen what there was until `now`.
    pub(super) fn add(&mut self, machine: &MachineId, now: Concern) -> signal::Receiver<Concern> {
        let sender = self.machines.entry(machine.clone());
        sender.or_insert_with(|| signal::Sender::new(now)).subscribe()
    }

    /// Tells those whom it concerns, and all of them whether the mirror is current. It costs who
    /// follows, in most daemons one, and nothing that the cluster grows by.
    pub(super) fn tell(&mut self, concerned: &Concerned, now: Concern) {
        self.machines.retain(|machine, sender| {
            let told = |concern: &mut Concern| {
                let before = *concern;
                concern.is_current = now.is_current;
                if concerned.contains(machine) {
                    concern.revision = now.revision;
                }
                *concern != before
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
