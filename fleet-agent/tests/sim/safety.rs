//! Safety: invariants that are checked after every slice of time. The checks know nothing of the
//! loops: they compare the calls to the service managers and the writes to the store with the
//! store's content.

mod calls;
mod jobs;
mod rollouts;
pub(crate) mod writes;

use fleet_core::Revision;

use crate::history::History;
use crate::host::Host;
use crate::overstay::Overstay;
use calls::Calls;
use jobs::Starts;
use writes::Writes;

/// State kept from one check to the next.
pub(crate) struct Safety {
    writes: Writes,
    calls: Vec<Calls>,
    starts: Starts,
    overstay: Overstay,
}

impl Safety {
    pub(crate) fn new(machines: usize) -> Self {
        Self {
            writes: Writes::default(),
            calls: (0..machines).map(|_| Calls::default()).collect(),
            starts: Starts::default(),
            overstay: Overstay::default(),
        }
    }

    /// Returns the violations since the last check; `before` is the last revision that was checked.
    pub(crate) fn check(
        &mut self,
        hosts: &[Host],
        history: &History,
        before: Revision,
    ) -> Vec<String> {
        let mut violations = self.writes.check(history, before);
        for (calls, host) in self.calls.iter_mut().zip(hosts) {
            violations.extend(calls.check(host, history, &mut self.starts));
        }
        violations.extend(self.overstay.check(hosts, &history.now()));
        violations
    }

    /// Records the revision that a machine's agent had seen at this check.
    pub(crate) fn note_seen(&mut self, machine: usize, seen: Option<Revision>) {
        self.calls[machine].note_seen(seen);
    }

    /// Records that a machine has lost its units in a reboot.
    pub(crate) fn rebooted(&mut self, machine: usize) {
        self.calls[machine].rebooted();
    }

    /// Returns the machine of the leading engine.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.writes.leader()
    }
}
