//! State shared by the handles of a mirror and its task, with the times at which absent machines
//! were last seen.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use fleet_core::{MachineId, Revision, Snapshot, Timestamp};
use tokio::sync::watch as signal;

use super::follow::MachineWatchers;
use super::view::View;
use super::{Delta, Progress, StoreIdentity};
use crate::Changes;
use crate::clock::Clock;
use crate::codec::decode_lineage;
use crate::registry::Lineage;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) state: RwLock<State>,
    /// The watchers of single machines. To avoid deadlocks, lock this mutex before `state`, never
    /// while `state` is locked.
    pub(super) watchers: Mutex<MachineWatchers>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) view: View,
    /// Time since which the view may lag behind the store; `None` while the view is current.
    pub(super) behind_since: Option<Timestamp>,
    /// Lineage that the store must continue; `None` accepts any at the first read.
    pub(super) expected: Option<Lineage>,
    /// Whether the last read of the store found the expected history.
    pub(super) store: StoreIdentity,
    /// Time at which the view last became current.
    pub(super) current_since: Timestamp,
    /// Number of times that the view became current.
    pub(super) resyncs: u64,
    pub(super) began: Timestamp,
    pub(super) last_seen: LastSeen,
    /// Channel for progress. `None` after the shutdown, because the mirror then never becomes
    /// current again.
    pub(super) publisher: Option<signal::Sender<Progress>>,
}

impl Shared {
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state and then publishes the progress. The lock of the state is released before
    /// publishing, because receivers may read the state.
    pub(super) fn change(&self, work: impl FnOnce(&mut State)) {
        let (publisher, progress, affected) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            work(&mut state);
            (state.publisher.clone(), state.progress(), state.view.take_affected())
        };
        if let Some(publisher) = publisher {
            publisher
                .send_if_modified(|published| std::mem::replace(published, progress) != progress);
            self.watchers().publish(&affected, progress.machine_progress());
        }
    }

    pub(super) fn watchers(&self) -> MutexGuard<'_, MachineWatchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the view as not current, if it was. `is_other`: the store has another history.
    pub(super) fn mark_behind(&self, is_other: bool) {
        let now = self.clock.now();
        self.change(|state| {
            state.behind_since.get_or_insert(now);
            if is_other {
                state.store = StoreIdentity::Other;
            }
        });
    }

    /// Marks the mirror as shut down.
    pub(super) fn close(&self) {
        self.mark_behind(false);
        self.change(|state| state.publisher = None);
        self.watchers().end();
    }
}

impl State {
    /// Returns whether the mirror may follow a store with this stored lineage. Before the first
    /// read, the expected lineage counts.
    pub(super) fn is_expected(&self, lineage: Option<&[u8]>) -> bool {
        if self.resyncs > 0 {
            return self.view.is_of(lineage);
        }
        let Some(expected) = &self.expected else { return true };
        let found = lineage.and_then(|bytes| decode_lineage(bytes).ok());
        found.is_some_and(|found| found.continues(expected))
    }

    /// Replaces the view by a complete one that is now watched.
    pub(super) fn resume(&mut self, view: View, now: Timestamp) {
        let lost = self.behind_since.unwrap_or(now);
        self.last_seen.compare(self.view.snapshot(), view.snapshot(), lost);
        self.view = view;
        self.store = StoreIdentity::Expected;
        if self.publisher.is_some() {
            self.behind_since = None;
            self.current_since = now;
            self.resyncs += 1;
        }
    }

    /// Applies the changes of one revision.
    pub(super) fn apply(&mut self, changes: &Changes, now: Timestamp) {
        for (machine, is_present) in self.view.machines_in(changes) {
            self.last_seen.note(machine, is_present, now);
        }
        self.view.apply(changes);
    }

    pub(super) fn delta_since(&self, seen: Revision) -> Delta {
        Delta {
            snapshot: self.view.snapshot().clone(),
            is_current: self.behind_since.is_none(),
            changes: self.view.since(seen),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            revision: self.view.snapshot().revision,
            scheduling_revision: self.view.scheduling_revision(),
            is_current: self.behind_since.is_none(),
            store: self.store,
        }
    }
}

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
