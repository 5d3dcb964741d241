//! Pure: the times at which absent machines were last seen.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Snapshot, Timestamp};

/// Maximum number of machines. Beyond it the machine that left first is dropped.
const MAX_MACHINES: usize = 4096;

/// Machines that left while the mirror followed the store.
#[derive(Debug, Default)]
pub(super) struct LastSeen {
    times: BTreeMap<MachineId, Timestamp>,
}

impl LastSeen {
    /// Records that a machine joined or left.
    pub(super) fn note(&mut self, machine: MachineId, is_present: bool, now: Timestamp) {
        if is_present {
            self.times.remove(&machine);
            return;
        }
        self.times.insert(machine, now);
        if self.times.len() > MAX_MACHINES {
            let first = self.times.iter().min_by_key(|(_, seen)| **seen);
            let first = first.map(|(machine, _)| machine.clone());
            first.and_then(|machine| self.times.remove(&machine));
        }
    }

    /// Records the machines that left during a gap in the watch, and forgets those that are present
    /// again. The gap began at `lost`. The machines count as last seen at that time, because the
    /// exact times at which they left are unknown.
    pub(super) fn compare(&mut self, before: &Snapshot, after: &Snapshot, lost: Timestamp) {
        let is_gone = |id: &MachineId| after.machine(id.as_str()).is_none();
        for machine in before.machines().filter(|machine| is_gone(&machine.id)) {
            self.note(machine.id.clone(), false, lost);
        }
        self.times.retain(|id, _| is_gone(id));
    }

    /// Returns the absent machines in the order of their IDs, with the times at which they were
    /// last seen.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&MachineId, Timestamp)> {
        self.times.iter().map(|(machine, seen)| (machine, *seen))
    }

    /// Returns the time at which an absent machine was last seen, if ever.
    pub(super) fn get(&self, machine: &str) -> Option<Timestamp> {
        self.times.get(machine).copied()
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::Machine;

    use super::*;

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    // Holds: I-15
    #[test]
    fn machine_lost_in_a_gap_was_last_seen_before_it() {
        let mut last_seen = LastSeen::default();
        last_seen.note(id("m1"), false, at(5));
        let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
        for (one, other) in [("m2", "m1"), ("m3", "m3")] {
            before.put_machine(Machine::new(id(one)));
            after.put_machine(Machine::new(id(other)));
        }
        last_seen.compare(&before, &after, at(7));
        let seen = ["m1", "m2", "m3"].map(|machine| last_seen.get(machine));
        assert_eq!(seen, [None, Some(at(7)), None]);
    }

    #[test]
    fn machines_that_left_first_are_dropped_beyond_the_limit() {
        let mut last_seen = LastSeen::default();
        for number in 0..=MAX_MACHINES {
            let seconds = u64::try_from(number).unwrap();
            last_seen.note(id(&format!("m{number}")), false, at(seconds));
        }
        assert_eq!((last_seen.get("m0"), last_seen.get("m1")), (None, Some(at(1))));
    }
}
