//! Change logs: lists of the machines that have changed. A reader keeps its last position in a log,
//! and reads the later entries when it needs to.

use super::slots::MachineNo;

/// Machines that have changed, with the oldest change first. If the log gets too long, its older
/// half is discarded.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    /// Number of discarded entries.
    discarded: u64,
    machines: Vec<MachineNo>,
}

impl ChangeLog {
    /// Returns the position after the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.discarded + self.machines.len() as u64
    }

    /// Returns the number of entries that are kept.
    pub(crate) fn len(&self) -> usize {
        self.machines.len()
    }

    /// Records a change of a machine, where `machines` is the number of all machines. If the log
    /// already has more than twice that number plus 1024 entries, first discards the older half.
    pub(crate) fn push(&mut self, machine: MachineNo, machines: usize) {
        if self.machines.len() > 2 * machines + 1024 {
            let older = self.machines.len() / 2;
            self.machines.drain(..older);
            self.discarded += older as u64;
        }
        self.machines.push(machine);
    }

    /// Removes the entries after a position. No reader may have read them.
    pub(crate) fn truncate_to(&mut self, point: u64) {
        let kept = usize::try_from(point.saturating_sub(self.discarded));
        self.machines.truncate(kept.unwrap_or(usize::MAX));
    }

    /// Discards everything, which forces all readers to start over.
    pub(crate) fn discard_all(&mut self) {
        self.discarded = self.end() + 1;
        self.machines.clear();
    }

    /// Returns the machines that changed after a position, or `None` if that part of the log has
    /// been discarded.
    pub(crate) fn since(&self, point: u64) -> Option<&[MachineNo]> {
        let at = usize::try_from(point.checked_sub(self.discarded)?).ok()?;
        self.machines.get(at.min(self.machines.len())..)
    }
}
