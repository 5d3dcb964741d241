//! Trails: which machines something happened to, for others to catch up with when they need to.

use super::slots::MachineNo;

/// The machines that something happened to, in order. A long log is discarded at its beginning.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    /// How many entries are discarded.
    discarded: u64,
    machines: Vec<MachineNo>,
}

impl ChangeLog {
    /// How far the log has come.
    pub(crate) fn end(&self) -> u64 {
        self.discarded + self.machines.len() as u64
    }

    /// How much of it is not discarded.
    pub(crate) fn len(&self) -> usize {
        self.machines.len()
    }

    /// Something happened to one of so many machines. Of a log that has become longer than it
    /// takes to look at all of them twice, the older half is discarded.
    pub(crate) fn push(&mut self, machine: MachineNo, machines: usize) {
        if self.machines.len() > 2 * machines + 1024 {
            let older = self.machines.len() / 2;
            self.machines.drain(..older);
            self.discarded += older as u64;
        }
        self.machines.push(machine);
    }

    /// All since a point is taken back. Nobody may have caught up with it.
    pub(crate) fn truncate_to(&mut self, point: u64) {
        let kept = usize::try_from(point.saturating_sub(self.discarded));
        self.machines.truncate(kept.unwrap_or(usize::MAX));
    }

    /// Everybody who has not caught up must look at everything.
    pub(crate) fn discard_all(&mut self) {
        self.discarded = self.end() + 1;
        self.machines.clear();
    }

    /// The machines since a point of the log; `None` if that is discarded.
    pub(crate) fn since(&self, point: u64) -> Option<&[MachineNo]> {
        let at = usize::try_from(point.checked_sub(self.discarded)?).ok()?;
        self.machines.get(at.min(self.machines.len())..)
    }
}
