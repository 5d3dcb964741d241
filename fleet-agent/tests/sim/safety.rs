//! What must never happen, looked for after every slice of time. It knows nothing of the loops:
//! it compares what the service managers were asked, and what was written to the store, with what
//! the store says.

mod calls;
pub(crate) mod writes;

use fleet_core::Revision;

use crate::history::History;
use crate::host::Host;
use crate::overstay::Overstay;
use calls::Calls;
use writes::Writes;

/// All that is remembered from one look to the next.
pub(crate) struct Safety {
    writes: Writes,
    calls: Vec<Calls>,
    overstay: Overstay,
}

impl Safety {
    pub(crate) fn new(machines: usize) -> Self {
        Self {
            writes: Writes::default(),
            calls: (0..machines).map(|_| Calls::default()).collect(),
            overstay: Overstay::default(),
        }
    }

    /// What happened since the last look that must not; `before` is the last revision that was
    /// looked at already.
    pub(crate) fn look(
        &mut self,
        hosts: &[Host],
        history: &History,
        before: Revision,
    ) -> Vec<String> {
        let mut violations = self.writes.look(history, before);
        for (calls, host) in self.calls.iter_mut().zip(hosts) {
            violations.extend(calls.look(host, history));
        }
        violations.extend(self.overstay.look(hosts, &history.now()));
        violations
    }

    /// Notes how far the agent of a machine had come at this look.
    pub(crate) fn note_seen(&mut self, machine: usize, seen: Option<Revision>) {
        self.calls[machine].note_seen(seen);
    }

    /// Notes that a machine has forgotten its units.
    pub(crate) fn rebooted(&mut self, machine: usize) {
        self.calls[machine].rebooted();
    }

    /// The machine whose engine leads.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.writes.leader()
    }
}
