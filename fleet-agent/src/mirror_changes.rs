//! Changes that wake the loops. An engine wakes on changes that a decision could depend on, and an
//! agent on changes that concern its machine.

use fleet_core::{MachineId, Revision};
use fleet_store::Mirror;
use fleet_store::mirror::{MachineProgress, Progress};
use tokio::sync::watch;

/// Waits for changes that a decision could depend on. Ignores changes of reported unit states and
/// of reasons.
#[derive(Debug)]
pub(crate) struct ClusterChanges {
    progress: watch::Receiver<Progress>,
    last: (Revision, bool),
}

impl ClusterChanges {
    /// Starts in a state in which everything in the mirror counts as changed.
    pub(crate) fn of(mirror: &Mirror) -> Self {
        Self { progress: mirror.subscribe(), last: (Revision::ZERO, false) }
    }

    /// Waits until something new is to be decided, or the mirror becomes current or stops being
    /// current. Returns `false` if the mirror has ended.
    pub(crate) async fn next(&mut self) -> bool {
        let updates = |progress: &Progress| (progress.scheduling_revision, progress.is_current);
        let last = self.last;
        match self.progress.wait_for(|progress| updates(progress) != last).await {
            Ok(progress) => {
                self.last = updates(&progress);
                true
            }
            Err(_) => false,
        }
    }
}

/// Waits for changes that concern one machine. Other changes do not even wake the waiting task,
/// which matters in a large cluster.
#[derive(Debug)]
pub(crate) struct MachineChanges {
    concern: watch::Receiver<MachineProgress>,
    last: Option<MachineProgress>,
}

impl MachineChanges {
    /// Starts in a state in which everything in the mirror counts as changed.
    pub(crate) fn of(mirror: &Mirror, machine: &MachineId) -> Self {
        Self { concern: mirror.watch_machine(machine), last: None }
    }

    /// Waits until something may have changed for the machine, or the mirror becomes current or
    /// stops being current. Returns `None` if the mirror has ended.
    pub(crate) async fn next(&mut self) -> Option<MachineProgress> {
        let last = self.last;
        let updates = self.concern.wait_for(|concern| Some(*concern) != last).await.ok();
        self.last = updates.map(|concern| *concern);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake as TaskWake, Waker};
    use std::time::Duration;

    use fleet_core::{Epoch, TargetState};
    use fleet_store::registry::{ExpectUnit, NewUnit, PlacementWrites, SetPlacement};
    use fleet_store::{Layout, MemoryStore, Registry};
    use fleet_unitfile::UnitFile;

    use super::*;

    /// Counts the wakeups of a task.
    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl TaskWake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn placements_on_other_machines_do_not_wake_agent() {
        let registry = Registry::new(Arc::new(MemoryStore::new()), Layout::DEFAULT_PREFIX);
        let leader = registry.campaign(&id("m-1"), Duration::from_secs(60)).await.unwrap().unwrap();
        let mirror = Mirror::start(&registry);
        mirror.wait_current().await.unwrap();
        let place = async |unit: &str, machine: &str| {
            let (name, file) = (unit.parse().unwrap(), UnitFile::parse("[Service]\n").unwrap());
            let unit = NewUnit { name, file, desired: TargetState::Launched };
            let name = unit.name.clone();
            let last = registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
            let (unit, machine, epoch) = (name, id(machine), Epoch(last.0));
            let place = vec![SetPlacement { unit, machine, epoch, previous: None }];
            let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
            let placed = leader.commit(&writes).await.unwrap();
            mirror.wait_for(placed).await.unwrap();
            placed
        };

        let mut wake = MachineChanges::of(&mirror, &id("m-1"));
        assert!(wake.next().await.is_some(), "everything is updates at first");
        let woken = Arc::new(Counter::default());
        let waker = Waker::from(woken.clone());
        let mut next = pin!(wake.next());
        let mut poll = || next.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(poll(), Poll::Pending);
        for number in 0..5 {
            place(&format!("theirs@{number}.service"), "m-2").await;
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        let mine = place("mine.service", "m-1").await;
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll(), Poll::Ready(Some(MachineProgress { revision: mine, is_current: true })));
    }
}
