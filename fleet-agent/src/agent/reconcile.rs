//! The agent's reconciliation loop: compares desired units with known ones, and runs tasks. Besides
//! these tasks, only `fence.rs` stops units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, TargetState, Timestamp, converge,
};
use fleet_scheduler::{Share, share};
use fleet_store::Mirror;
use fleet_store::mirror::MachineProgress;
use fleet_store::registry::Presence;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::attempts::Attempts;
use super::desired_state::is_fenced;
use super::exclusivity::PresenceWindow;
use super::execute::{Executor, Outcome, StartPermit};
use super::fence::{StartGate, StoppingUnits};
use super::job_reports::JobReports;
use super::state::{AgentState, Checkpoint};
use super::task_tracker::{DesiredUnits, KnownUnits, RETRY, TaskTracker, additive_tasks};
use super::unit_errors::{UnitErrors, chain};
use crate::clock::wait_until;
use crate::mirror_changes::{ClusterChanges, MachineChanges};
use crate::watchdog::Heartbeat;
use crate::{ChangeReceiver, Clock, ServiceManager, Shutdown};

/// Time that a daemon waits for a complete view of the cluster before it starts its machine's last
/// known units. The wait covers a network that comes up only after a boot, and a leader election of
/// the store.
const BLIND_START_DELAY: Duration = Duration::from_secs(60);

/// Dependencies and settings of a reconciler.
pub(crate) struct ReconcilerConfig {
    pub(crate) machine: MachineId,
    /// Time for which the machine stays present without renewal.
    pub(crate) ttl: Duration,
    /// The machine's presence, while it has one.
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    pub(crate) mirror: Mirror,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<dyn AgentState>,
    pub(crate) errors: Arc<UnitErrors>,
    pub(crate) jobs: Arc<JobReports>,
    /// The presence window.
    pub(crate) window: watch::Receiver<Option<PresenceWindow>>,
    /// Publishes the fenced units.
    pub(crate) fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
    /// Units that the fence is stopping.
    pub(crate) stopping: Arc<StoppingUnits>,
    pub(crate) heartbeat: Heartbeat,
}

/// Makes one machine's service manager match the cluster's decisions.
pub(crate) struct Reconciler {
    machine: MachineId,
    /// The machine's presence, while it has one.
    presence: watch::Receiver<Option<Arc<Presence>>>,
    mirror: Mirror,
    manager: Arc<dyn ServiceManager>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    /// Revision of the snapshot that the last complete pass has processed. Changes up to this
    /// revision need no further pass. `None` if the last pass was not complete.
    covered: Option<Revision>,
    /// Last known desired state of the machine.
    checkpoint: Checkpoint,
    attempts: Attempts,
    /// Holds back units that must not be started yet.
    gate: StartGate,
    /// Protects units that must not be stopped yet.
    rejoin: RejoinGrace,
    stopping: Arc<StoppingUnits>,
    heartbeat: Heartbeat,
    /// Time at which this daemon starts the last known units without a view of the cluster. `None`
    /// once the daemon has had a current view.
    blind_start_at: Option<Timestamp>,
}

impl Reconciler {
    pub(crate) fn new(with: ReconcilerConfig) -> Self {
        let ReconcilerConfig { machine, mirror, manager, clock, errors, window, .. } = with;
        let permit = StartPermit { clock: clock.clone(), window: window.clone() };
        let executor = Executor::new(manager.clone(), permit);
        let (unit_errors, stopping) = (errors.clone(), with.stopping.clone());
        Self {
            tasks: TaskTracker::new(clock.clone(), unit_errors, executor, stopping),
            attempts: Attempts::new(machine.clone(), with.state.clone(), with.jobs),
            checkpoint: Checkpoint::new(machine.clone(), with.state, with.fenced),
            gate: StartGate::new(&machine, with.ttl, &mirror, window, errors),
            rejoin: RejoinGrace::new(&mirror),
            stopping: with.stopping,
            heartbeat: with.heartbeat,
            blind_start_at: Some(clock.now().after(BLIND_START_DELAY)),
            machine,
            presence: with.presence,
            mirror,
            manager,
            clock,
            covered: None,
        }
    }

    /// Runs until shutdown. Units keep their state then.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let heartbeat = self.heartbeat.clone();
        heartbeat.busy(self.checkpoint.load()).await;
        heartbeat.busy(self.attempts.load()).await;
        let mut wake = MachineChanges::of(&self.mirror, &self.machine);
        let mut changes = self.manager.changes();
        loop {
            // In a fixed order, so that simulated clusters can be replayed.
            let retry_at = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                retry_at = heartbeat.busy(self.pass()) => retry_at,
            };
            if !self.wait_for_work(&mut wake, &mut changes, &mut shutdown, retry_at).await {
                break;
            }
        }
        self.checkpoint.persist().await;
    }

    /// Waits until there may be something to do; `false` on shutdown.
    async fn wait_for_work(
        &mut self,
        wake: &mut MachineChanges,
        changes: &mut ChangeReceiver,
        shutdown: &mut Shutdown,
        retry_at: Option<Timestamp>,
    ) -> bool {
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return false,
                outcome = self.tasks.next() => if self.is_settled(outcome).await { continue },
                change = wake.next() => match change {
                    Some(concern) if self.is_covered(concern) => continue,
                    change => return change.is_some(),
                },
                Ok(()) = self.presence.changed() => {}
                units = changes.next() => {
                    let concerns = self.tasks.is_overruled(&units);
                    if !concerns && !self.has_lost_unit(&units).await { continue }
                }
                () = self.gate.changed(&self.mirror, &*self.clock) => {}
                () = self.rejoin.changed(&self.mirror) => {}
                () = self.stopping.ended() => {}
                () = wait_until(&*self.clock, retry_at) => {}
            }
            return true;
        }
    }

    /// Whether the last pass covered everything that concerns this machine.
    fn is_covered(&self, concern: MachineProgress) -> bool {
        concern.is_current && self.covered.is_some_and(|covered| concern.revision <= covered)
    }

    /// Returns whether the service manager no longer knows one of these changed units, although
    /// this agent has no task for the unit. For example, an unload that the previous daemon
    /// requested may have taken effect only now. Other changes of units need no pass.
    async fn has_lost_unit(&self, units: &BTreeSet<UnitName>) -> bool {
        for unit in units.iter().filter(|unit| !self.tasks.is_busy(unit)) {
            if matches!(self.manager.get(unit).await, Ok(None)) {
                return true;
            }
        }
        false
    }

    /// Compares desired and known units once, and starts tasks. Returns the time at which to do so
    /// again even if nothing changes; `None` if only a change requires that.
    async fn pass(&mut self) -> Option<Timestamp> {
        self.covered = None;
        // An uncertain view is no reason to change anything.
        let Some(snapshot) = self.mirror.current() else { return self.pass_blind().await };
        self.blind_start_at = None;
        snapshot.machine(self.machine.as_str())?;
        // Another machine may hold this identity, and then the placements are for that one.
        let joined = self.presence.borrow_and_update().as_ref()?.joined();
        let now = self.clock.now(); // one time for all decisions of the pass
        let Some(mut known) = self.known_units().await else { return Some(now.after(RETRY.first)) };
        let mut share = share(&snapshot, &self.machine);
        self.rejoin.update(joined, &snapshot, &known, now);
        share.undecided.extend(self.rejoin.units().iter().cloned());
        hold_updates(&mut share, &known, &snapshot, &self.machine);
        // Their placement is not decided, so they stay as they are.
        let undecided = share.undecided.clone();
        let mut desired = desired_units(share);
        let lineage = self.mirror.lineage();
        let attempts = self.attempts.apply(&mut desired, &known, &snapshot, lineage.as_ref());
        self.checkpoint.update(&desired, &undecided, &known, lineage).await;
        self.checkpoint.mark_stops(&mut known);
        known.retain(|unit, _| !undecided.contains(unit));
        let seen = self.gate.view(&snapshot, &self.mirror, now);
        let enters_at = self.gate.hold_back(&mut desired, &known, &self.checkpoint, &seen);
        self.attempts.begin(attempts, &mut desired, &undecided, &snapshot).await;
        self.tasks.forget_old_failures(&desired, &known);
        self.gate.report();
        let again = self.tasks.run_tasks(&desired, &known, now, |tasks| tasks).await;
        let note_at = self.checkpoint.persist_when_due(now).await;
        self.covered = Some(snapshot.revision);
        let wakeups = [note_at, enters_at, again, self.rejoin.until()];
        self.tasks.due(now).into_iter().chain(wakeups.into_iter().flatten()).min()
    }

    /// Starts the last known units if this daemon has had no complete view of the cluster for too
    /// long.
    ///
    /// Stops nothing, because the last known state may be outdated. Does not start units that must
    /// not run while the cluster is out of reach.
    async fn pass_blind(&mut self) -> Option<Timestamp> {
        let from = self.blind_start_at?;
        let now = self.clock.now();
        if now < from {
            return Some(from);
        }
        let Some(known) = self.known_units().await else { return Some(now.after(RETRY.first)) };
        let desired = self.checkpoint.blind_units();
        let again = self.tasks.run_tasks(&desired, &known, now, additive_tasks).await;
        self.tasks.due(now).into_iter().chain(again).min()
    }

    /// Lists the units of the service manager; `None` if that fails.
    async fn known_units(&self) -> Option<KnownUnits> {
        match self.manager.list().await {
            Ok(units) => Some(units.into_iter().map(|unit| (unit.unit, unit.known)).collect()),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot list this machine's units: no unit is started or stopped for now"
                );
                None
            }
        }
    }

    /// Processes the result of a unit's tasks. Returns `true` if nothing is left to do for the
    /// unit, so that no full pass is needed. This saves many passes when many starts end.
    async fn is_settled(&mut self, outcome: Outcome) -> bool {
        let Some(wanted) = self.tasks.on_outcome(outcome) else { return false };
        self.checkpoint.on_success(&wanted);
        self.attempts.on_success(&wanted);
        let name = &wanted.unit.name;
        let Ok(Some(found)) = self.manager.get(name).await else { return false };
        let known = BTreeMap::from([(name.clone(), found.known)]);
        self.is_still_desired(&wanted)
            && converge(&BTreeMap::from([(name.clone(), wanted)]), &known).is_empty()
    }

    /// Whether the cluster still wants this version of the unit on this machine.
    fn is_still_desired(&self, wanted: &DesiredUnit) -> bool {
        let Some(snapshot) = self.mirror.current() else { return false };
        let name = wanted.unit.name.as_str();
        let placement = snapshot.placement(name);
        snapshot.unit(name).is_some_and(|unit| Arc::ptr_eq(unit, &wanted.unit))
            && placement.is_some_and(|placement| {
                placement.machine == self.machine && placement.epoch == wanted.epoch
            })
    }
}

/// Makes each global unit undecided whose update a rollout holds back on this machine. A unit that
/// is not started is not among them, because its earlier file no longer exists.
fn hold_updates(share: &mut Share, known: &KnownUnits, snapshot: &Snapshot, machine: &MachineId) {
    let Share { units, undecided, .. } = share;
    let is_started = |name: &UnitName| {
        known.get(name).is_some_and(|unit| unit.requested == TargetState::Launched)
    };
    units.retain(|name, (unit, _)| {
        let is_held = unit.is_global() && is_started(name) && snapshot.holds_update(unit, machine);
        if is_held {
            undecided.insert(name.clone());
        }
        !is_held
    });
}

/// Returns the desired units of one machine.
fn desired_units(share: Share) -> DesiredUnits {
    let units = share.units.into_iter();
    units.map(|(name, (unit, epoch))| (name, DesiredUnit { unit, epoch })).collect()
}

/// Time that a leader gets to notice that a machine is back. A leader notices this almost at once,
/// unless it has to be elected first.
const GRACE: Duration = Duration::from_secs(15);

/// Units that the machine had when it rejoined, and that have not been placed since.
///
/// When a machine is lost, a unit that no other machine can take loses its placement. A machine
/// that comes back may read the cluster's state before the leader has placed the unit again. If the
/// machine stopped the unit in the meantime, it would only have to start the unit again. In
/// contrast, a unit that is placed elsewhere is stopped at once.
#[derive(Debug)]
pub(crate) struct RejoinGrace {
    /// Changes of the whole cluster. Changes of this machine are not enough, because the leader may
    /// place one of these units on any machine.
    changes: ClusterChanges,
    joined: Revision,
    until: Option<Timestamp>,
    units: BTreeSet<UnitName>,
}

impl RejoinGrace {
    pub(crate) fn new(mirror: &Mirror) -> Self {
        let (joined, units) = (Revision::ZERO, BTreeSet::new());
        Self { changes: ClusterChanges::of(mirror), joined, until: None, units }
    }

    /// Evaluates the cluster, which the machine joined at revision `joined`.
    pub(crate) fn update(
        &mut self,
        joined: Revision,
        snapshot: &Snapshot,
        known: &BTreeMap<UnitName, KnownUnit>,
        now: Timestamp,
    ) {
        if self.joined != joined && snapshot.revision >= joined {
            self.joined = joined;
            self.until = Some(now.after(GRACE));
            self.units = known.keys().cloned().collect();
        }
        // A unit that has been placed once is dropped for good: later changes are decisions.
        self.units.retain(|unit| is_unplaced(snapshot, unit));
        if self.until.is_none_or(|until| until <= now) || self.units.is_empty() {
            self.units.clear();
            self.until = None;
        }
    }

    /// Returns the units to leave alone.
    pub(crate) fn units(&self) -> &BTreeSet<UnitName> {
        &self.units
    }

    /// Waits until one of the protected units is placed, or is no longer wanted, or until the
    /// mirror has ended. Waits forever if no unit is protected.
    pub(crate) async fn changed(&mut self, mirror: &Mirror) {
        loop {
            if self.units.is_empty() {
                return std::future::pending().await;
            }
            if !self.changes.next().await {
                return;
            }
            let Some(snapshot) = mirror.current() else { continue };
            if !self.units.iter().all(|unit| is_unplaced(&snapshot, unit)) {
                return;
            }
        }
    }

    /// Returns the end of the grace period, at which the units have to be compared again even if
    /// nothing has changed. Returns `None` if no unit is protected.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// Whether a unit should run, has no placement, and may safely run here.
fn is_unplaced(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let wanted = snapshot.unit(unit.as_str()).is_some_and(|unit| {
        unit.desired == TargetState::Launched && !unit.is_global() && !is_fenced(unit)
    });
    wanted && snapshot.placement(unit.as_str()).is_none()
}
