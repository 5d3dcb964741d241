//! Publishes the states of this machine's units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::unit::LoadState;
use fleet_core::{
    ActiveState, MachineId, Revision, SystemdState, TargetState, Timestamp, UnitState,
};
use fleet_store::registry::Presence;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::health::UnitHealth;
use super::job_reports::JobReports;
use super::unit_errors::{UnitError, UnitErrors, chain};
use crate::clock::wait_until;
use crate::watchdog::Heartbeat;
use crate::{Clock, Drift, ManagedUnit, ServiceError, ServiceManager, Shutdown};

/// Wait before a failed publication is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Minimum and maximum pause after a publication. Each publication costs the store a commit and
/// every mirror an update, and changes come in bursts. So the first changes of a burst are
/// published at once, and later changes in growing batches.
const PAUSE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(250));

/// Writes each unit's state when it changes, under the machine's presence.
pub(crate) struct Publisher {
    pub(crate) machine: MachineId,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) errors: Arc<UnitErrors>,
    pub(crate) health: Arc<UnitHealth>,
    pub(crate) jobs: Arc<JobReports>,
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Reports the revision of each write, which the mirror has to reach.
    pub(crate) written: watch::Sender<Revision>,
    pub(crate) heartbeat: Heartbeat,
}

/// States that have been published, and units to look at again.
#[derive(Default)]
struct PublishedStates {
    /// Last published state of each unit. `None` if the last write has failed, because it may have
    /// taken effect nevertheless.
    published: BTreeMap<UnitName, Option<UnitState>>,
    dirty: BTreeSet<UnitName>,
    /// Units whose state could not be read, to be read again later.
    unreadable: BTreeSet<UnitName>,
    /// Whether the units could not be listed.
    unlisted: bool,
    /// Earliest time of the next publication.
    due: Timestamp,
    /// Length of the last pause.
    pause: Duration,
    /// Time at which failed reads are retried.
    retry_at: Timestamp,
}

impl PublishedStates {
    /// Returns when to publish next; `None` if there is nothing to publish.
    fn next(&self) -> Option<Timestamp> {
        let is_blind = self.unlisted || !self.unreadable.is_empty();
        let retry_at = is_blind.then_some(self.retry_at.max(self.due));
        (!self.dirty.is_empty()).then_some(self.due).or(retry_at)
    }

    /// Sets the pause after a publication that lasted from `begin` to `end`:
    ///
    /// - If the publication began as soon as it was due, changes come in a burst, so the pause
    ///   doubles.
    /// - Otherwise the pause is the minimum again.
    /// - The pause is at least as long as the publication took.
    /// - The pause is always within [`PAUSE`].
    fn pause(&mut self, begin: Timestamp, end: Timestamp) {
        let is_swarm = begin.since(self.due) < PAUSE.0;
        let pause = if is_swarm { self.pause * 2 } else { PAUSE.0 };
        self.pause = pause.max(end.since(begin)).clamp(PAUSE.0, PAUSE.1);
        self.due = end.after(self.pause);
    }
}

impl Publisher {
    /// Runs until shutdown.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let mut changes = self.manager.changes();
        let mut errors = self.errors.changes();
        let mut health = self.health.changes();
        let mut jobs = self.jobs.changes();
        let mut states = PublishedStates::default();
        self.presence.mark_changed();
        loop {
            let next = self.next(&states);
            // Changes during a publication go into the next one. The order is fixed, so that
            // simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                changed = self.presence.changed() => match changed {
                    Ok(()) => self.heartbeat.busy(self.start_over(&mut states)).await,
                    Err(_) => return,
                },
                units = errors.next() => {
                    self.heartbeat.busy(self.mark_units(&mut states, units)).await;
                }
                units = health.next() => states.dirty.extend(units),
                units = jobs.next() => states.dirty.extend(units),
                units = changes.next() => {
                    self.heartbeat.busy(self.mark_units(&mut states, units)).await;
                }
                () = wait_until(&*self.clock, next) => {}
            }
            if self.next(&states).is_some_and(|next| next <= self.clock.now()) {
                self.publish_and_pause(&mut states).await;
            }
        }
    }

    /// Marks changed units for publication. Also clears the start error of each unit that is active
    /// now. This cannot wait until the publication: the unit may be inactive again by then, and
    /// nothing would show that it was active.
    async fn mark_units(&self, states: &mut PublishedStates, units: BTreeSet<UnitName>) {
        for unit in &units {
            let has_failed = |problem: UnitError| problem.start_failed;
            if !self.errors.get(unit).is_some_and(has_failed) {
                continue;
            }
            // A failed read is retried with the publication.
            if let Ok(Some(managed)) = self.manager.get(unit).await {
                drop(self.errors.reportable(unit, &managed.state));
            }
        }
        states.dirty.extend(units);
    }

    async fn publish_and_pause(&self, states: &mut PublishedStates) {
        let begin = self.clock.now();
        if begin >= states.retry_at {
            states.dirty.append(&mut states.unreadable);
            if states.unlisted {
                self.heartbeat.busy(self.mark_all(states)).await;
            }
        }
        let published = self.heartbeat.busy(self.publish(states)).await;
        let end = self.clock.now();
        states.pause(begin, end);
        match published {
            Ok(unreadable) if unreadable.is_empty() => {}
            Ok(unreadable) => {
                states.unreadable.extend(unreadable);
                states.retry_at = end.after(RETRY);
            }
            Err(error) => {
                tracing::warn!(
                    error = &*error,
                    "cannot publish the states of this machine's units: trying again"
                );
                states.due = end.after(RETRY);
            }
        }
    }

    /// Marks all units for publication under a new presence, because the published states belong to
    /// the previous presence.
    async fn start_over(&self, states: &mut PublishedStates) {
        states.published.clear();
        states.due = Timestamp::default();
        states.dirty.extend(self.errors.units());
        self.mark_all(states).await;
    }

    /// Marks all units for publication. If the units cannot be listed, they are listed again later.
    /// Otherwise a unit that never changes would never be published.
    async fn mark_all(&self, states: &mut PublishedStates) {
        let listed = self.manager.list().await;
        states.unlisted = listed.is_err();
        match listed {
            Ok(units) => states.dirty.extend(units.into_iter().map(|unit| unit.unit)),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot list this machine's units: the cluster shows their earlier states for \
                     now"
                );
                states.retry_at = self.clock.now().after(RETRY);
            }
        }
    }

    /// Returns the time of the next publication. Returns `None` if nothing is to be published, or
    /// if the machine has no presence.
    fn next(&self, states: &PublishedStates) -> Option<Timestamp> {
        self.presence.borrow().as_ref().and_then(|_| states.next())
    }

    /// Publishes the marked units. Returns those whose state could not be read.
    async fn publish(
        &self,
        states: &mut PublishedStates,
    ) -> Result<BTreeSet<UnitName>, Box<dyn std::error::Error>> {
        let Some(presence) = self.presence.borrow().clone() else {
            return Ok(BTreeSet::new());
        };
        let (mut put, mut remove, mut unreadable) = (Vec::new(), Vec::new(), BTreeSet::new());
        for unit in &states.dirty {
            let state = match self.state(unit).await {
                Ok(state) => state,
                Err(error) => {
                    // A unit that cannot be read does not keep others from being published.
                    tracing::warn!(
                        %unit,
                        error = chain(&error),
                        "cannot read the state of a unit: the cluster shows the earlier state for \
                         now"
                    );
                    unreadable.insert(unit.clone());
                    continue;
                }
            };
            match (state, states.published.get(unit)) {
                (Some(state), Some(Some(before))) if *before == state => {}
                (Some(state), _) => put.push(state),
                (None, Some(_)) => remove.push(unit.clone()),
                (None, None) => {}
            }
        }
        states.published.extend(put.iter().map(|state| (state.unit.clone(), None)));
        if !put.is_empty() || !remove.is_empty() {
            let revision = presence.publish_states(&put, &remove).await?;
            // Removing states that are not there makes no revision.
            if remove.is_empty() {
                self.written.send_replace(revision);
            }
        }
        for state in put {
            states.published.insert(state.unit.clone(), Some(state));
        }
        states.published.retain(|unit, _| !remove.contains(unit));
        states.dirty.clear();
        Ok(unreadable)
    }

    /// Returns the state to publish for a unit. Returns `None` if this machine neither knows the
    /// unit nor has an error for it.
    async fn state(&self, unit: &UnitName) -> Result<Option<UnitState>, ServiceError> {
        let Some(mut managed) = self.manager.get(unit).await? else {
            return Ok(self.errors.get(unit).map(|problem| self.not_loaded(unit, problem)));
        };
        let drift = self.manager.drift(unit).await?;
        let problem = self.errors.reportable(unit, &managed.state);
        self.jobs.complete(&mut managed);
        let output = self.jobs.output(&managed, &*self.clock).await;
        Ok(Some(UnitState { output, ..self.managed(managed, problem, drift) }))
    }

    fn managed(
        &self,
        managed: ManagedUnit,
        problem: Option<UnitError>,
        drift: Option<Drift>,
    ) -> UnitState {
        let problem = problem.map(|problem| problem.text);
        let health = self.health.reportable(&managed);
        // An attempt that is recorded and not requested counts as interrupted.
        let lost = self.jobs.lost_attempt(&managed.unit);
        let generation = lost.unwrap_or_default().max(managed.known.generation);
        UnitState {
            unit: managed.unit,
            machine: self.machine.clone(),
            hash: managed.known.hash,
            requested: managed.known.requested,
            epoch: managed.known.epoch,
            generation,
            systemd: managed.state,
            problem: problem.or(managed.waits_for).or_else(|| drift.map(|drift| drift.to_string())),
            health,
            output: Vec::new(),
        }
    }

    fn not_loaded(&self, unit: &UnitName, problem: UnitError) -> UnitState {
        let load = if problem.bad_setting { LoadState::BadSetting } else { LoadState::Error };
        UnitState {
            unit: unit.clone(),
            machine: self.machine.clone(),
            hash: problem.order.hash,
            requested: TargetState::Inactive,
            epoch: problem.order.epoch,
            generation: problem.order.generation,
            systemd: SystemdState::new(load, ActiveState::Inactive, "dead"),
            problem: Some(problem.text),
            health: None,
            output: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_batched_and_single_change_is_immediate() {
        let (mut states, mut pauses) = (PublishedStates::default(), Vec::new());
        let mut begin = Timestamp::from_millis(1_000_000);
        for _ in 0..6 {
            states.pause(begin, begin.after(Duration::from_millis(2)));
            pauses.push(states.pause.as_millis());
            begin = states.due;
        }
        assert_eq!(pauses, [25, 50, 100, 200, 250, 250]);
        let late = states.due.after(PAUSE.0);
        states.pause(late, late.after(Duration::from_millis(2)));
        assert_eq!(states.pause, PAUSE.0, "nothing waited for it");
        let late = states.due.after(PAUSE.0);
        states.pause(late, late.after(Duration::from_millis(60)));
        assert_eq!(states.pause.as_millis(), 60, "the store has enough to do");
    }

    /// A publisher without a presence, so every publication stays pending.
    #[cfg(feature = "testing")]
    fn publisher(
        manager: Arc<dyn ServiceManager>,
        errors: &Arc<UnitErrors>,
    ) -> (watch::Sender<Option<Arc<Presence>>>, Publisher) {
        let (sender, presence) = watch::channel(None);
        let store = Arc::new(fleet_store::MemoryStore::new());
        let mirror = fleet_store::Mirror::start(&fleet_store::Registry::new(store, "/publish"));
        let publisher = Publisher {
            machine: "0123456789abcdef0123456789abcdef".parse().expect("it is an id"),
            manager,
            errors: Arc::clone(errors),
            health: Arc::new(UnitHealth::new(mirror)),
            jobs: Arc::default(),
            presence,
            clock: Arc::new(crate::SystemClock::start()),
            written: watch::channel(Revision::default()).0,
            heartbeat: Heartbeat::new("publishing"),
        };
        (sender, publisher)
    }

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn start_error_is_cleared_by_a_short_run() {
        use super::super::unit_errors::OrderId;

        let (machine, errors) = (crate::testing::FakeManager::new(), Arc::<UnitErrors>::default());
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let file = fleet_unitfile::UnitFile::parse("[Service]\nExecStart=/a\n").expect("it is fit");
        let (epoch, generation) = (fleet_core::Epoch(1), fleet_core::Generation(1));
        machine.load(&unit, &file, epoch).await.expect("it loads");
        machine.fail_start(&unit, "no such program");
        let error = machine.start(&unit, generation).await.expect_err("it fails");
        let (hash, desired) = (file.hash(), TargetState::Launched);
        let order = OrderId { hash, epoch, generation, desired };
        errors.set(&unit, UnitError::new(order, &error));
        let (trigger, shutdown) = crate::ShutdownTrigger::new();
        let (_sender, publisher) = publisher(machine.clone(), &errors);
        let task = tokio::spawn(publisher.run(shutdown));
        machine.clear_failures(&unit);
        for _ in 0..10_000 {
            if errors.get(&unit).is_none() {
                break;
            }
            // Starting again reports a change, until the publisher has subscribed.
            machine.start(&unit, generation).await.expect("it starts");
            tokio::task::yield_now().await;
        }
        assert_eq!(errors.get(&unit), None, "it is kept");
        machine.crash(&unit);
        assert_eq!(
            errors.reportable(
                &unit,
                &SystemdState { active: ActiveState::Failed, ..SystemdState::loaded() }
            ),
            None,
            "it is not why that ended"
        );
        trigger.fire();
        task.await.expect("it ends");
    }
}
