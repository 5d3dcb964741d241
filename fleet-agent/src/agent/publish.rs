//! Publishes what the service manager says of this machine's units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    ActiveState, LoadState, MachineId, Revision, SystemdState, TargetState, Timestamp, UnitState,
};
use fleet_store::Presence;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::problems::{Problem, Problems, chain};
use crate::clock::wait_until;
use crate::{Beat, Clock, Drift, ManagedUnit, ServiceError, ServiceManager, Shutdown};

/// How long to wait before a publication that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long to rest after a publication, at least and at most. Changes come in swarms, and each
/// publication costs the store a commit and every mirror a change: so of a swarm the first changes
/// are told at once, and then ever more of them together.
const REST: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(250));

/// Writes each unit's state when it changes, under the machine's presence.
pub(crate) struct Publisher {
    pub(crate) machine: MachineId,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) problems: Arc<Problems>,
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Told a revision that the mirror has to come to.
    pub(crate) written: watch::Sender<Revision>,
    pub(crate) beat: Beat,
}

/// What has been published, and what has to be looked at again.
#[derive(Default)]
struct Ledger {
    /// What the store says of each unit; nothing where a write failed, which may have happened.
    published: BTreeMap<UnitName, Option<UnitState>>,
    dirty: BTreeSet<UnitName>,
    /// What could not be seen, and is to be looked at again by itself.
    unseen: BTreeSet<UnitName>,
    /// Nobody could say which units there are.
    unlisted: bool,
    /// When the next publication may begin.
    due: Timestamp,
    /// How long the last rest was.
    rest: Duration,
    /// When to look again at what could not be seen.
    look_at: Timestamp,
}

impl Ledger {
    /// When to publish next; nothing while there is nothing to publish.
    fn next(&self) -> Option<Timestamp> {
        let is_blind = self.unlisted || !self.unseen.is_empty();
        let look_at = is_blind.then_some(self.look_at.max(self.due));
        (!self.dirty.is_empty()).then_some(self.due).or(look_at)
    }

    /// Rests after a publication: twice as long as before where that was waited for, and as long as
    /// it took where that is more.
    fn rest(&mut self, begin: Timestamp, end: Timestamp) {
        let is_swarm = begin.since(self.due) < REST.0;
        let rest = if is_swarm { self.rest * 2 } else { REST.0 };
        self.rest = rest.max(end.since(begin)).clamp(REST.0, REST.1);
        self.due = end.after(self.rest);
    }
}

impl Publisher {
    /// Runs until told to end.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let mut states = self.manager.changes();
        let mut problems = self.problems.changes();
        let mut ledger = Ledger::default();
        self.presence.mark_changed();
        loop {
            let next = self.next(&ledger);
            // Whatever changes while a publication is under way goes into the next one. The order
            // is fixed, so that simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                changed = self.presence.changed() => match changed {
                    Ok(()) => self.beat.turn(self.begin_anew(&mut ledger)).await,
                    Err(_) => return,
                },
                units = problems.next() => self.beat.turn(self.note(&mut ledger, units)).await,
                units = states.next() => self.beat.turn(self.note(&mut ledger, units)).await,
                () = wait_until(&*self.clock, next) => {}
            }
            if self.next(&ledger).is_some_and(|next| next <= self.clock.now()) {
                self.publish_and_rest(&mut ledger).await;
            }
        }
    }

    /// Has units published that have changed. Which of them is up, though its start had failed, is
    /// looked at now: it may not be for as long as a publication rests.
    async fn note(&self, ledger: &mut Ledger, units: BTreeSet<UnitName>) {
        for unit in &units {
            let has_failed = |problem: Problem| problem.start_failed;
            if !self.problems.get(unit).is_some_and(has_failed) {
                continue;
            }
            // What cannot be seen now is tried again with its publication.
            if let Ok(Some(managed)) = self.manager.get(unit).await {
                drop(self.problems.told(unit, managed.state.active));
            }
        }
        ledger.dirty.extend(units);
    }

    async fn publish_and_rest(&self, ledger: &mut Ledger) {
        let begin = self.clock.now();
        if begin >= ledger.look_at {
            ledger.dirty.append(&mut ledger.unseen);
            if ledger.unlisted {
                self.beat.turn(self.look_at_all(ledger)).await;
            }
        }
        let published = self.beat.turn(self.publish(ledger)).await;
        let end = self.clock.now();
        ledger.rest(begin, end);
        match published {
            Ok(unseen) if unseen.is_empty() => {}
            Ok(unseen) => {
                ledger.unseen.extend(unseen);
                ledger.look_at = end.after(RETRY);
            }
            Err(error) => {
                tracing::warn!(error = &*error, "cannot publish unit states");
                ledger.due = end.after(RETRY);
            }
        }
    }

    /// A new presence begins with nothing published: states go with the presence they were
    /// published under.
    async fn begin_anew(&self, ledger: &mut Ledger) {
        ledger.published.clear();
        ledger.due = Timestamp::default();
        ledger.dirty.extend(self.problems.units());
        self.look_at_all(ledger).await;
    }

    /// Has all units looked at. While nobody can say which there are, that stays to be done: a unit
    /// that does not change by itself would never be published otherwise.
    async fn look_at_all(&self, ledger: &mut Ledger) {
        let listed = self.manager.list().await;
        ledger.unlisted = listed.is_err();
        match listed {
            Ok(units) => ledger.dirty.extend(units.into_iter().map(|unit| unit.unit)),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot list this machine's units");
                ledger.look_at = self.clock.now().after(RETRY);
            }
        }
    }

    /// When to publish next; nothing while there is nothing to publish, or nobody to publish it.
    fn next(&self, ledger: &Ledger) -> Option<Timestamp> {
        self.presence.borrow().as_ref().and_then(|_| ledger.next())
    }

    /// Publishes what is to be looked at again. Returns what could not be seen.
    async fn publish(
        &self,
        ledger: &mut Ledger,
    ) -> Result<BTreeSet<UnitName>, Box<dyn std::error::Error>> {
        let Some(presence) = self.presence.borrow().clone() else {
            return Ok(BTreeSet::new());
        };
        let (mut put, mut remove, mut unseen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for unit in &ledger.dirty {
            let state = match self.state(unit).await {
                Ok(state) => state,
                Err(error) => {
                    // What cannot be seen of one unit keeps no other from being published.
                    tracing::warn!(%unit, error = chain(&error), "cannot see a unit's state");
                    unseen.insert(unit.clone());
                    continue;
                }
            };
            match (state, ledger.published.get(unit)) {
                (Some(state), Some(Some(before))) if *before == state => {}
                (Some(state), _) => put.push(state),
                (None, Some(_)) => remove.push(unit.clone()),
                (None, None) => {}
            }
        }
        ledger.published.extend(put.iter().map(|state| (state.unit.clone(), None)));
        if !put.is_empty() || !remove.is_empty() {
            let revision = presence.publish_states(&put, &remove).await?;
            // To remove what is not there makes no revision.
            if remove.is_empty() {
                self.written.send_replace(revision);
            }
        }
        for state in put {
            ledger.published.insert(state.unit.clone(), Some(state));
        }
        ledger.published.retain(|unit, _| !remove.contains(unit));
        ledger.dirty.clear();
        Ok(unseen)
    }

    /// What to publish of a unit; nothing when this machine has nothing to do with it.
    async fn state(&self, unit: &UnitName) -> Result<Option<UnitState>, ServiceError> {
        let Some(managed) = self.manager.get(unit).await? else {
            return Ok(self.problems.get(unit).map(|problem| self.not_loaded(unit, problem)));
        };
        let drift = self.manager.drift(unit).await?;
        let problem = self.problems.told(unit, managed.state.active);
        Ok(Some(self.managed(managed, problem, drift)))
    }

    fn managed(
        &self,
        managed: ManagedUnit,
        problem: Option<Problem>,
        drift: Option<Drift>,
    ) -> UnitState {
        let problem = problem.map(|problem| problem.text);
        UnitState {
            unit: managed.unit,
            machine: self.machine.clone(),
            hash: managed.known.hash,
            asked: managed.known.asked,
            epoch: managed.known.epoch,
            generation: managed.known.generation,
            systemd: managed.state,
            problem: problem.or_else(|| drift.map(|drift| drift.to_string())),
        }
    }

    fn not_loaded(&self, unit: &UnitName, problem: Problem) -> UnitState {
        let load = if problem.bad_setting { LoadState::BadSetting } else { LoadState::Error };
        UnitState {
            unit: unit.clone(),
            machine: self.machine.clone(),
            hash: problem.order.hash,
            asked: TargetState::Inactive,
            epoch: problem.order.epoch,
            generation: problem.order.generation,
            systemd: SystemdState::new(load, ActiveState::Inactive, "dead"),
            problem: Some(problem.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swarm_of_changes_is_told_ever_more_together_and_a_lone_change_at_once() {
        let (mut ledger, mut rests) = (Ledger::default(), Vec::new());
        let mut begin = Timestamp::from_millis(1_000_000);
        for _ in 0..6 {
            ledger.rest(begin, begin.after(Duration::from_millis(2)));
            rests.push(ledger.rest.as_millis());
            begin = ledger.due;
        }
        assert_eq!(rests, [25, 50, 100, 200, 250, 250]);
        let late = ledger.due.after(REST.0);
        ledger.rest(late, late.after(Duration::from_millis(2)));
        assert_eq!(ledger.rest, REST.0, "nothing waited for it");
        let late = ledger.due.after(REST.0);
        ledger.rest(late, late.after(Duration::from_millis(60)));
        assert_eq!(ledger.rest.as_millis(), 60, "the store has enough to do");
    }

    /// A publisher that has nobody to publish to, so that each publication is yet to come.
    #[cfg(feature = "testing")]
    fn publisher(
        manager: Arc<dyn ServiceManager>,
        problems: &Arc<Problems>,
    ) -> (watch::Sender<Option<Arc<Presence>>>, Publisher) {
        let (nobody, presence) = watch::channel(None);
        let publisher = Publisher {
            machine: "0123456789abcdef0123456789abcdef".parse().expect("it is an id"),
            manager,
            problems: Arc::clone(problems),
            presence,
            clock: Arc::new(crate::SystemClock::start()),
            written: watch::channel(Revision::default()).0,
            beat: Beat::new("publishing"),
        };
        (nobody, publisher)
    }

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn why_a_start_failed_is_forgotten_by_however_short_a_life_after_it() {
        use super::super::problems::Order;

        let (machine, problems) = (crate::testing::FakeManager::new(), Arc::<Problems>::default());
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let file = fleet_unitfile::UnitFile::parse("[Service]\nExecStart=/a\n").expect("it is fit");
        let (epoch, generation) = (fleet_core::Epoch(1), fleet_core::Generation(1));
        machine.load(&unit, &file, epoch).await.expect("it loads");
        machine.fail_start(&unit, "no such program");
        let error = machine.start(&unit, generation).await.expect_err("it fails");
        let (hash, desired) = (file.hash(), TargetState::Launched);
        let order = Order { hash, epoch, generation, desired };
        problems.set(&unit, Problem::new(order, &error));
        let (trigger, shutdown) = crate::ShutdownTrigger::new();
        let (_nobody, publisher) = publisher(machine.clone(), &problems);
        let task = tokio::spawn(publisher.run(shutdown));
        machine.mend(&unit);
        for _ in 0..10_000 {
            if problems.get(&unit).is_none() {
                break;
            }
            // It is up, and that is told again until the publisher has begun to listen.
            machine.start(&unit, generation).await.expect("it starts");
            tokio::task::yield_now().await;
        }
        assert_eq!(problems.get(&unit), None, "it is kept");
        machine.crash(&unit);
        assert_eq!(problems.told(&unit, ActiveState::Failed), None, "it is not why that ended");
        trigger.fire();
        task.await.expect("it ends");
    }
}
