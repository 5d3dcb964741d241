//! The agent's loop: what this machine should have × what it has → tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, Task, Timestamp, converge,
};
use fleet_scheduler::{Share, share};
use fleet_store::{Mirror, Presence};
use fleet_unitfile::UnitName;
use tokio::sync::{Notify, watch};

use super::entrance::Entrance;
use super::execute::{Executor, Outcome, Permit};
use super::gate::Standing;
use super::memory::Memory;
use super::notes::Notes;
use super::problems::{Order, Problem, Problems, chain};
use super::returned::Returned;
use crate::backoff::{Backoff, Pace};
use crate::clock::wait_until;
use crate::wake::Wake;
use crate::{Clock, ServiceError, ServiceManager, Shutdown, StateChanges};

/// What failed is tried again after a second, then ever less often, down to once a minute.
const RETRY: Pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// How long a daemon waits for a complete view of the cluster before it starts what its machine
/// had: long enough for a network to come up after a boot, and for a store to elect a leader.
const BLIND: Duration = Duration::from_secs(60);

/// What a reconciler works with.
pub(crate) struct Surroundings {
    pub(crate) machine: MachineId,
    /// How long the machine stays present without a sign of life.
    pub(crate) ttl: Duration,
    /// The machine's own place in the cluster, while it has it.
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    pub(crate) mirror: Mirror,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) problems: Arc<Problems>,
    /// Until when the machine is certainly present.
    pub(crate) standing: watch::Receiver<Option<Standing>>,
    /// Told which units must not run beyond that.
    pub(crate) fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
    /// Tells when such a unit was stopped.
    pub(crate) stopped: Arc<Notify>,
}

/// Makes one machine's service manager agree with the cluster.
pub(crate) struct Reconciler {
    machine: MachineId,
    /// The machine's own place in the cluster, while it has it.
    presence: watch::Receiver<Option<Arc<Presence>>>,
    mirror: Mirror,
    manager: Arc<dyn ServiceManager>,
    clock: Arc<dyn Clock>,
    problems: Arc<Problems>,
    executor: Executor,
    /// What failed, by unit and the order that it failed under; a new order is tried at once.
    backoff: Backoff<Attempt>,
    /// The order under which each busy unit's tasks were given.
    under_way: BTreeMap<UnitName, Option<Order>>,
    /// Up to which revision nothing more is to be done here; nothing if that is not certain.
    seen: Option<Revision>,
    /// The units that this machine has, or should have, or may have.
    own: BTreeSet<UnitName>,
    /// What the machine is known to have had to run.
    memory: Memory,
    /// Which units must not be started yet.
    entrance: Entrance,
    /// Which units must not be ended yet.
    returned: Returned,
    stopped: Arc<Notify>,
    /// When this daemon starts what its machine had, unless it sees the cluster before.
    blind_from: Option<Timestamp>,
}

/// A unit and what was wanted of it; `None` when it was not wanted at all.
type Attempt = (UnitName, Option<Order>);

impl Reconciler {
    pub(crate) fn new(with: Surroundings) -> Self {
        let Surroundings { machine, mirror, manager, clock, problems, standing, .. } = with;
        let permit = Permit { clock: clock.clone(), standing: standing.clone() };
        Self {
            memory: Memory::new(machine.clone(), with.notes, with.fenced),
            entrance: Entrance::new(&machine, with.ttl, &mirror, standing, problems.clone()),
            returned: Returned::default(),
            stopped: with.stopped,
            blind_from: Some(clock.now().after(BLIND)),
            machine,
            presence: with.presence,
            mirror,
            executor: Executor::new(manager.clone(), permit),
            manager,
            clock,
            problems,
            backoff: Backoff::new(RETRY),
            under_way: BTreeMap::new(),
            seen: None,
            own: BTreeSet::new(),
        }
    }

    /// Runs until told to end. Units keep the state that they then have.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        self.memory.recall().await;
        let mut wake = Wake::of(&self.mirror);
        let mut changes = self.manager.changes();
        loop {
            // In a fixed order, so that simulated clusters can be replayed.
            let retry_at = tokio::select! {
                biased;
                () = shutdown.wait() => return,
                retry_at = self.pass() => retry_at,
            };
            if !self.wait_for_work(&mut wake, &mut changes, &mut shutdown, retry_at).await {
                return;
            }
        }
    }

    /// Waits until there may be something to do; `false` when it is time to end.
    async fn wait_for_work(
        &mut self,
        wake: &mut Wake,
        changes: &mut StateChanges,
        shutdown: &mut Shutdown,
        retry_at: Option<Timestamp>,
    ) -> bool {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return false,
                outcome = self.executor.next() => self.on_outcome(outcome),
                news = wake.next() => match news {
                    true if !self.has_news() => continue,
                    news => return news,
                },
                Ok(()) = self.presence.changed() => {}
                units = changes.next() => if !self.has_lost_one(&units).await { continue },
                () = self.entrance.moved(&self.mirror, &*self.clock) => {}
                () = self.stopped.notified() => {}
                () = wait_until(&*self.clock, retry_at) => {}
            }
            return true;
        }
    }

    /// Whether something has changed that concerns this machine. What happens elsewhere is no
    /// reason to look at the whole: in a large cluster that is nearly all that happens.
    fn has_news(&mut self) -> bool {
        let Some(seen) = self.seen else { return true };
        let news = self.mirror.news_since(seen);
        let Some(difference) = news.difference.filter(|_| news.is_current) else { return true };
        let mut units = difference.units.iter().chain(&difference.placements);
        let found = difference.machines.contains(&self.machine)
            || units.any(|unit| self.own.contains(unit) || self.may_have(&news.snapshot, unit));
        if !found {
            self.seen = Some(news.snapshot.revision);
        }
        found
    }

    /// Whether a unit belongs on this machine, or nobody can say where it belongs.
    fn may_have(&self, snapshot: &Snapshot, unit: &UnitName) -> bool {
        let placement = snapshot.placement(unit.as_str());
        placement.is_some_and(|placement| placement.machine == self.machine)
            || snapshot.unit(unit.as_str()).is_some_and(|unit| unit.is_global())
            || snapshot.fault(unit.as_str()).is_some()
    }

    /// Whether one of the units is gone, although no task of this agent has just ended it: a daemon
    /// before this one may have begun what is done only now. Other changes are no reason to act.
    async fn has_lost_one(&self, units: &BTreeSet<UnitName>) -> bool {
        for unit in units.iter().filter(|unit| !self.executor.is_busy(unit)) {
            if matches!(self.manager.get(unit).await, Ok(None)) {
                return true;
            }
        }
        false
    }

    /// Looks at the whole once and sends tasks on their way; returns when to look again by itself.
    async fn pass(&mut self) -> Option<Timestamp> {
        self.seen = None;
        // What cannot be seen for certain is not a reason to change anything.
        let Some(snapshot) = self.mirror.current() else { return self.pass_blind().await };
        self.blind_from = None;
        snapshot.machine(self.machine.as_str())?;
        // Another machine may have this identity, and then the orders are for that one.
        let joined = self.presence.borrow_and_update().as_ref()?.joined();
        let now = self.clock.now(); // one moment for all: what is held back for it is due after it
        let Some(mut known) = self.known().await else { return Some(now.after(RETRY.first)) };
        let mut share = share(&snapshot, &self.machine);
        self.returned.look(joined, &snapshot, &known, now);
        share.undecided.extend(self.returned.units().iter().cloned());
        self.own =
            share.units.keys().chain(&share.undecided).chain(known.keys()).cloned().collect();
        // Of these nobody knows whether they belong here, so they stay as they are.
        let undecided = share.undecided.clone();
        let mut desired = desired_units(share);
        self.memory.remember(&desired, &undecided, &known).await;
        known.retain(|unit, _| !undecided.contains(unit));
        self.forget_old_failures(&desired, &known);
        let seen = self.entrance.seen(&snapshot, &self.mirror, now);
        let enters_at = self.entrance.hold_up(&mut desired, &known, &self.memory, &seen);
        self.act(&desired, &known, now, |tasks| tasks).await;
        self.memory.settle().await;
        self.seen = Some(snapshot.revision);
        let note_at = self.memory.owes_note().then(|| now.after(RETRY.first));
        let decided_at = self.returned.until();
        self.due(now).into_iter().chain(note_at).chain(enters_at).chain(decided_at).min()
    }

    /// Starts what the machine had, if this daemon has had no complete view for long. What was
    /// wanted then may not be wanted any more, so nothing is ended for it, and nothing is started
    /// that must not run where the cluster is out of reach.
    async fn pass_blind(&mut self) -> Option<Timestamp> {
        let from = self.blind_from?;
        let now = self.clock.now();
        if now < from {
            return Some(from);
        }
        let Some(known) = self.known().await else { return Some(now.after(RETRY.first)) };
        let desired = self.memory.wanted_anyway();
        self.act(&desired, &known, now, only_adding).await;
        self.due(now)
    }

    /// What the service manager has; nothing if it does not say so.
    async fn known(&self) -> Option<BTreeMap<UnitName, KnownUnit>> {
        match self.manager.list().await {
            Ok(units) => Some(units.into_iter().map(|unit| (unit.unit, unit.known)).collect()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot list this machine's units");
                None
            }
        }
    }

    /// When something that failed is to be tried again.
    fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let reload_at = self.executor.owes_reload().then(|| now.after(RETRY.first));
        self.backoff.next_due(now).into_iter().chain(reload_at).min()
    }

    /// Sends those of the tasks on their way that lead from `known` to `desired` and that `allowed`
    /// lets through.
    async fn act(
        &mut self,
        desired: &BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        now: Timestamp,
        allowed: fn(Vec<Task>) -> Vec<Task>,
    ) {
        let held = self.held_back(desired, known, now);
        let (mut desired, mut known) = (desired.clone(), known.clone());
        desired.retain(|unit, _| !held.contains(unit));
        known.retain(|unit, _| !held.contains(unit));
        let tasks = allowed(converge(&desired, &known));
        for unit in tasks.iter().filter_map(Task::unit) {
            let order = desired.get(unit).map(order_of);
            self.under_way.insert(unit.clone(), order);
        }
        for outcome in self.executor.execute(tasks).await {
            self.on_outcome(outcome);
        }
    }

    /// The units that must be left alone for now: they are busy, or failed a moment ago.
    fn held_back(
        &self,
        desired: &BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        now: Timestamp,
    ) -> BTreeSet<UnitName> {
        let all: BTreeSet<&UnitName> = desired.keys().chain(known.keys()).collect();
        let held = all.into_iter().filter(|unit| {
            let attempt = ((*unit).clone(), desired.get(*unit).map(order_of));
            self.executor.is_busy(unit) || !self.backoff.is_due(&attempt, now)
        });
        held.cloned().collect()
    }

    /// A failure matters only as long as the order that failed still stands.
    fn forget_old_failures(
        &mut self,
        desired: &BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
    ) {
        self.backoff.retain(|(unit, order)| {
            let stands = desired.contains_key(unit) || known.contains_key(unit);
            stands && desired.get(unit).map(order_of) == *order
        });
        self.problems.retain(|unit| desired.contains_key(unit) || known.contains_key(unit));
    }

    fn on_outcome(&mut self, Outcome { unit, result }: Outcome) {
        let order = self.under_way.remove(&unit).flatten();
        if order.is_none() {
            self.executor.owe_reload(); // its file was taken away
        }
        let attempt = (unit, order);
        match result {
            Ok(()) => {
                self.problems.clear_failure(&attempt.0);
                self.backoff.on_success(&attempt);
            }
            Err(error) => self.on_failure(attempt, &error),
        }
    }

    fn on_failure(&mut self, attempt: Attempt, error: &ServiceError) {
        tracing::warn!(unit = %attempt.0, error = chain(error), "a task failed");
        if let Some(order) = attempt.1 {
            self.problems.set(&attempt.0, Problem::new(order, error));
        }
        // A unit that was started and failed is launched; its own restart policy goes on from here.
        if !matches!(error, ServiceError::StartFailed { .. }) {
            self.backoff.on_failure(attempt, self.clock.now());
        }
    }
}

/// The tasks of those units that only gain by theirs.
fn only_adding(mut tasks: Vec<Task>) -> Vec<Task> {
    let ends = |task: &&Task| {
        matches!(task, Task::Unload { .. } | Task::Stop { .. } | Task::Restart { .. })
    };
    let ended = tasks.iter().filter(ends).filter_map(Task::unit);
    let ended: BTreeSet<UnitName> = ended.cloned().collect();
    tasks.retain(|task| task.unit().is_none_or(|unit| !ended.contains(unit)));
    tasks
}

/// What the cluster wants of one machine.
fn desired_units(share: Share) -> BTreeMap<UnitName, DesiredUnit> {
    let units = share.units.into_iter();
    units.map(|(name, (unit, epoch))| (name, DesiredUnit { unit, epoch })).collect()
}

fn order_of(wanted: &DesiredUnit) -> Order {
    let (hash, generation) = (wanted.unit.hash(), wanted.unit.generation);
    Order { hash, epoch: wanted.epoch, generation }
}
