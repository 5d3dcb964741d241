//! The agent's loop: what this machine should have × what it has → tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, MachineId, Revision, Timestamp, converge};
use fleet_scheduler::{Share, share};
use fleet_store::{Concern, Mirror, Presence};
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::attempts::{Attempts, Desired, Known, RETRY, only_adding};
use super::entrance::Entrance;
use super::execute::{Executor, Outcome, Permit};
use super::fence::Ending;
use super::gate::Standing;
use super::memory::Memory;
use super::notes::Notes;
use super::problems::{Problems, chain};
use super::returned::Returned;
use crate::clock::wait_until;
use crate::wake::OwnWake;
use crate::{Beat, Clock, ServiceManager, Shutdown, StateChanges};

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
    /// The units that are ended for that.
    pub(crate) ending: Arc<Ending>,
    pub(crate) beat: Beat,
}

/// Makes one machine's service manager agree with the cluster.
pub(crate) struct Reconciler {
    machine: MachineId,
    /// The machine's own place in the cluster, while it has it.
    presence: watch::Receiver<Option<Arc<Presence>>>,
    mirror: Mirror,
    manager: Arc<dyn ServiceManager>,
    clock: Arc<dyn Clock>,
    attempts: Attempts,
    /// Up to which revision nothing more is to be done here; nothing if that is not certain.
    seen: Option<Revision>,
    /// What the machine is known to have had to run.
    memory: Memory,
    /// Which units must not be started yet.
    entrance: Entrance,
    /// Which units must not be ended yet.
    returned: Returned,
    ending: Arc<Ending>,
    beat: Beat,
    /// When this daemon starts what its machine had, unless it sees the cluster before.
    blind_from: Option<Timestamp>,
}

impl Reconciler {
    pub(crate) fn new(with: Surroundings) -> Self {
        let Surroundings { machine, mirror, manager, clock, problems, standing, .. } = with;
        let permit = Permit { clock: clock.clone(), standing: standing.clone() };
        let executor = Executor::new(manager.clone(), permit);
        let (says, ending) = (problems.clone(), with.ending.clone());
        Self {
            attempts: Attempts::new(clock.clone(), says, executor, ending),
            memory: Memory::new(machine.clone(), with.notes, with.fenced),
            entrance: Entrance::new(&machine, with.ttl, &mirror, standing, problems),
            returned: Returned::new(&mirror),
            ending: with.ending,
            beat: with.beat,
            blind_from: Some(clock.now().after(BLIND)),
            machine,
            presence: with.presence,
            mirror,
            manager,
            clock,
            seen: None,
        }
    }

    /// Runs until told to end. Units keep the state that they then have.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let beat = self.beat.clone();
        beat.turn(self.memory.recall()).await;
        let mut wake = OwnWake::of(&self.mirror, &self.machine);
        let mut changes = self.manager.changes();
        loop {
            // In a fixed order, so that simulated clusters can be replayed.
            let retry_at = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                retry_at = beat.turn(self.pass()) => retry_at,
            };
            if !self.wait_for_work(&mut wake, &mut changes, &mut shutdown, retry_at).await {
                break;
            }
        }
        self.memory.settle().await;
    }

    /// Waits until there may be something to do; `false` when it is time to end.
    async fn wait_for_work(
        &mut self,
        wake: &mut OwnWake,
        changes: &mut StateChanges,
        shutdown: &mut Shutdown,
        retry_at: Option<Timestamp>,
    ) -> bool {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return false,
                outcome = self.attempts.next() => if self.has_settled(outcome).await { continue },
                news = wake.next() => match news {
                    Some(concern) if self.has_seen(concern) => continue,
                    news => return news.is_some(),
                },
                Ok(()) = self.presence.changed() => {}
                units = changes.next() => if !self.has_lost_one(&units).await { continue },
                () = self.entrance.moved(&self.mirror, &*self.clock) => {}
                () = self.returned.moved(&self.mirror) => {}
                () = self.ending.ended() => {}
                () = wait_until(&*self.clock, retry_at) => {}
            }
            return true;
        }
    }

    /// Whether the last look showed all that concerns this machine, and nothing is in doubt.
    fn has_seen(&self, concern: Concern) -> bool {
        concern.is_current && self.seen.is_some_and(|seen| concern.revision <= seen)
    }

    /// Whether one of the units is gone, although no task of this agent has just ended it: a daemon
    /// before this one may have begun what is done only now. Other changes are no reason to act.
    async fn has_lost_one(&self, units: &BTreeSet<UnitName>) -> bool {
        for unit in units.iter().filter(|unit| !self.attempts.is_busy(unit)) {
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
        // Of these nobody knows whether they belong here, so they stay as they are.
        let undecided = share.undecided.clone();
        let mut desired = desired_units(share);
        self.memory.remember(&desired, &undecided, &known).await;
        known.retain(|unit, _| !undecided.contains(unit));
        let seen = self.entrance.seen(&snapshot, &self.mirror, now);
        let enters_at = self.entrance.hold_up(&mut desired, &known, &self.memory, &seen);
        self.attempts.forget_old_failures(&desired, &known);
        let again = self.attempts.carry_out(&desired, &known, now, |tasks| tasks).await;
        let note_at = self.memory.settle_in_time(now).await;
        self.seen = Some(snapshot.revision);
        let looks = [note_at, enters_at, again, self.returned.until()];
        self.attempts.due(now).into_iter().chain(looks.into_iter().flatten()).min()
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
        let again = self.attempts.carry_out(&desired, &known, now, only_adding).await;
        self.attempts.due(now).into_iter().chain(again).min()
    }

    /// What the service manager has; nothing if it does not say so.
    async fn known(&self) -> Option<Known> {
        match self.manager.list().await {
            Ok(units) => Some(units.into_iter().map(|unit| (unit.unit, unit.known)).collect()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot list this machine's units");
                None
            }
        }
    }

    /// Takes in how the tasks of a unit ended; whether there is certainly nothing more to do for
    /// it. So the end of each of many starts is no reason to look at the whole.
    async fn has_settled(&mut self, outcome: Outcome) -> bool {
        let Some(wanted) = self.attempts.on_outcome(outcome) else { return false };
        let name = &wanted.unit.name;
        let Ok(Some(found)) = self.manager.get(name).await else { return false };
        let known = BTreeMap::from([(name.clone(), found.known)]);
        self.is_still_wanted(&wanted)
            && converge(&BTreeMap::from([(name.clone(), wanted)]), &known).is_empty()
    }

    /// Whether the very same is wanted of a unit still.
    fn is_still_wanted(&self, wanted: &DesiredUnit) -> bool {
        let Some(snapshot) = self.mirror.current() else { return false };
        let name = wanted.unit.name.as_str();
        let placement = snapshot.placement(name);
        snapshot.unit(name).is_some_and(|unit| Arc::ptr_eq(unit, &wanted.unit))
            && placement.is_some_and(|placement| {
                placement.machine == self.machine && placement.epoch == wanted.epoch
            })
    }
}

/// What the cluster wants of one machine.
fn desired_units(share: Share) -> Desired {
    let units = share.units.into_iter();
    units.map(|(name, (unit, epoch))| (name, DesiredUnit { unit, epoch })).collect()
}
