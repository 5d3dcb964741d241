//! Keeps units with `OnPartition=stop` from running where the cluster may believe them to be ended.
//!
//! The *fence* is the moment up to which the machine is certainly present: a lease's time after the
//! last renewal that succeeded was sent, by the machine's own clock. From then on nothing of these
//! units runs here, until a renewal succeeds again. The fence is noted down, so that the next
//! daemon knows it if this one ends; where it is not known, it counts as passed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::{ActiveState, MachineId, Timestamp};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::gate::Standing;
use super::notes::{Note, Notes};
use super::problems::chain;
use crate::{Beat, Clock, ServiceError, ServiceManager, Shutdown};

/// How long to wait before a unit that could not be stopped is told again.
const RETRY: Duration = Duration::from_secs(1);

/// Stops fenced units when the fence has passed. It is a task of its own, so that nothing that the
/// agent waits for can delay it.
pub(crate) struct FenceKeeper {
    pub(crate) machine: MachineId,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) notes: Arc<dyn Notes>,
    /// What the fence is; nothing while it is what was noted.
    pub(crate) standing: watch::Receiver<Option<Standing>>,
    /// The units that the machine may have and that must not run beyond it.
    pub(crate) units: watch::Receiver<Arc<BTreeSet<UnitName>>>,
    /// The units that are being stopped.
    pub(crate) ending: Arc<Ending>,
    pub(crate) beat: Beat,
}

/// The units that the fence ends just now. Whoever asks something of one of them has to wait for
/// that, and so had better ask for all others first.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    units: Mutex<BTreeSet<UnitName>>,
    ended: Notify,
}

/// The stops that are under way.
#[derive(Default)]
struct Stops {
    tasks: JoinSet<(UnitName, Result<(), ServiceError>)>,
    /// Whether one has failed and is to be tried again.
    owed: bool,
}

impl Ending {
    /// Whether the unit is being stopped.
    pub(crate) fn contains(&self, unit: &UnitName) -> bool {
        self.lock().contains(unit)
    }

    /// Returns when a unit has been stopped, or that has failed: it may have to be started again.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn begin(&self, unit: &UnitName) {
        self.lock().insert(unit.clone());
    }

    fn end(&self, unit: &UnitName) {
        self.lock().remove(unit);
        self.ended.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<UnitName>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FenceKeeper {
    /// Runs until told to end.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let beat = self.beat.clone();
        let noted = beat.turn(noted(&*self.notes, &self.machine, &*self.clock)).await;
        let mut changes = self.manager.changes();
        let mut stops = Stops::default();
        loop {
            let fence = self.standing.borrow_and_update().map_or(noted, |it| it.until);
            let passed = self.clock.now() >= fence;
            if passed {
                beat.turn(self.stop_all(&mut stops)).await;
            }
            // In a fixed order, so that simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                changed = self.standing.changed() => if changed.is_err() { return },
                changed = self.units.changed() => if changed.is_err() { return },
                Some(ended) = stops.tasks.join_next() => match ended {
                    Ok(ended) => self.on_stopped(ended, &mut stops),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                // Whoever else starts one of them, it must not run.
                _units = changes.next(), if passed => {}
                () = self.clock.sleep_until(fence), if !passed => {}
                () = self.clock.sleep(RETRY), if passed && stops.owed => {}
            }
        }
    }

    /// Tells each unit to stop that runs and was not told.
    async fn stop_all(&mut self, stops: &mut Stops) {
        stops.owed = false;
        let units = self.units.borrow_and_update().clone();
        for unit in units.iter().filter(|unit| !self.ending.contains(unit)) {
            match self.manager.get(unit).await {
                Ok(None) => {}
                Ok(Some(found)) if is_at_rest(found.state.active) => {}
                Ok(Some(_)) => {
                    tracing::warn!(%unit, "stopped: the cluster has not been reached in time");
                    self.ending.begin(unit);
                    let (manager, unit) = (self.manager.clone(), unit.clone());
                    stops.tasks.spawn(async move {
                        let result = manager.stop(&unit).await;
                        (unit, result)
                    });
                }
                Err(error) => {
                    tracing::warn!(%unit, error = chain(&error), "cannot see whether it runs");
                    stops.owed = true;
                }
            }
        }
    }

    fn on_stopped(&self, ended: (UnitName, Result<(), ServiceError>), stops: &mut Stops) {
        let (unit, result) = ended;
        self.ending.end(&unit);
        if let Err(error) = result {
            tracing::warn!(%unit, error = chain(&error), "cannot stop a unit");
            stops.owed = true;
        }
    }
}

/// Whether nothing runs of a unit, and nothing will by itself.
fn is_at_rest(state: ActiveState) -> bool {
    matches!(state, ActiveState::Inactive | ActiveState::Failed)
}

#[derive(Serialize, Deserialize)]
struct WireFence {
    v: u32,
    machine: String,
    origin: String,
    until_ms: u64,
}

/// Notes the fence down. A note that is older says an earlier moment, which is on the safe side.
pub(crate) async fn note(
    notes: &dyn Notes,
    machine: &MachineId,
    clock: &dyn Clock,
    fence: Timestamp,
) {
    let Some(origin) = clock.origin() else { return };
    let (machine, until_ms) = (machine.to_string(), fence.as_millis());
    let wire = WireFence { v: 1, machine, origin, until_ms };
    let content = serde_json::to_vec(&wire).expect("texts and numbers can be written as JSON");
    if let Err(error) = notes.write(Note::Fence, content).await {
        tracing::warn!(%error, "cannot note until when this machine is present");
    }
}

/// The fence as an earlier daemon noted it; the beginning of time if that is not known.
pub(crate) async fn noted(notes: &dyn Notes, machine: &MachineId, clock: &dyn Clock) -> Timestamp {
    let content = match notes.read(Note::Fence).await {
        Ok(content) => content.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "cannot read until when this machine was present");
            Vec::new()
        }
    };
    let wire: Option<WireFence> = serde_json::from_slice(&content).ok();
    let same = wire.filter(|wire| wire.v == 1 && wire.machine == *machine.as_str());
    let same = same.filter(|wire| clock.origin().as_ref() == Some(&wire.origin));
    Timestamp::from_millis(same.map_or(0, |wire| wire.until_ms))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::agent::notes::NotesInMemory;

    struct Boot(&'static str);

    #[async_trait]
    impl Clock for Boot {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }

        async fn sleep_until(&self, _at: Timestamp) {}

        fn origin(&self) -> Option<String> {
            Some(self.0.to_owned())
        }
    }

    #[tokio::test]
    async fn a_fence_is_known_to_the_next_daemon_until_the_machine_is_booted() {
        let notes = NotesInMemory::default();
        let unknown = Timestamp::from_millis(0);
        let (machine, other): (MachineId, MachineId) =
            ("m1".parse().unwrap(), "m2".parse().unwrap());
        assert_eq!(noted(&notes, &machine, &Boot("one")).await, unknown);
        let fence = Timestamp::from_millis(1234);
        note(&notes, &machine, &Boot("one"), fence).await;
        assert_eq!(noted(&notes, &machine, &Boot("one")).await, fence);
        assert_eq!(noted(&notes, &machine, &Boot("two")).await, unknown);
        assert_eq!(noted(&notes, &other, &Boot("one")).await, unknown);
        let newer = r#"{"v":2,"machine":"m1","origin":"one","until_ms":1234}"#;
        for damaged in ["", "{", newer] {
            notes.write(Note::Fence, damaged.into()).await.unwrap();
            assert_eq!(noted(&notes, &machine, &Boot("one")).await, unknown, "{damaged}");
        }
    }
}
