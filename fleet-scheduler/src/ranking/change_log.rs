//! Change logs: lists of the machines that have changed. A reader keeps its last position in a log,
//! and reads the later entries when it needs to.

use crate::state::MachineNo;

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
    ///
    /// If a long trial made the log discard entries from before the position, nothing remains. The
    /// position is still the end of the log, so that a reader at the position sees no change, and a
    /// reader at an earlier one has to start over.
    pub(crate) fn truncate_to(&mut self, point: u64) {
        let kept = usize::try_from(point.saturating_sub(self.discarded));
        self.machines.truncate(kept.unwrap_or(usize::MAX));
        self.discarded = self.discarded.min(point);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Operation {
        Push,
        PushMany,
        Mark,
        /// Returns to one of the marks, like a failed trial.
        Return(usize),
    }

    fn at(position: u64) -> usize {
        usize::try_from(position).unwrap()
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let one = prop_oneof![
            3 => Just(Operation::Push),
            1 => Just(Operation::PushMany),
            2 => Just(Operation::Mark),
            2 => any::<usize>().prop_map(Operation::Return),
        ];
        proptest::collection::vec(one, 0..40)
    }

    proptest! {
        /// A log behaves like one that never discards anything, apart from the positions for which
        /// it has no answer. A trial longer than the log once left the end of the log after the
        /// position to which it returned, and the planner retried a waiting group forever.
        #[test]
        fn log_equals_one_that_discards_nothing(operations in operations()) {
            let (mut log, mut whole, mut next) = (ChangeLog::default(), Vec::new(), 0);
            let mut marks = vec![0_u64];
            let mut push = |log: &mut ChangeLog, whole: &mut Vec<MachineNo>| {
                next += 1;
                whole.push(MachineNo(next));
                log.push(MachineNo(next), 3);
            };
            for operation in operations {
                match operation {
                    Operation::Push => push(&mut log, &mut whole),
                    Operation::PushMany => (0..700).for_each(|_| push(&mut log, &mut whole)),
                    Operation::Mark => marks.push(log.end()),
                    Operation::Return(to) => {
                        let mark = marks[to % marks.len()];
                        log.truncate_to(mark);
                        whole.truncate(at(mark));
                        marks.retain(|other| *other <= mark);
                    }
                }
                prop_assert_eq!(log.end(), whole.len() as u64);
                prop_assert_eq!(log.since(log.end()), Some(&[][..]));
                for mark in &marks {
                    if let Some(changed) = log.since(*mark) {
                        prop_assert_eq!(changed, &whole[at(*mark)..]);
                    }
                }
            }
        }
    }
}
