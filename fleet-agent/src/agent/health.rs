//! Checks the health of this machine's units, for the publisher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::health::{Health, HealthCheck, HealthTracker};
use fleet_core::{ActiveState, Epoch, Generation, Snapshot, TargetState, Timestamp};
use fleet_store::Mirror;
use fleet_unitfile::{UnitHash, UnitName};
use tokio::task::{AbortHandle, JoinSet};

use super::AgentConfig;
use super::prober::HealthProber;
use super::unit_errors::chain;
use crate::clock::wait_until;
use crate::watchdog::Heartbeat;
use crate::{ChangeReceiver, ChangeSender, Clock, ManagedUnit, ServiceManager, Shutdown};

/// Maximum number of checks at the same time.
const MAX_PROBES: usize = 16;

/// Time from the start of a run to its first check. Most services need a moment until they respond,
/// and a first check that fails would delay the next one by a whole interval.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Wait before a failed read of a unit is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Identifies a run of a unit. A new run begins with a health of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunId {
    hash: UnitHash,
    epoch: Epoch,
    generation: Generation,
    main_pid: Option<u32>,
    restarts: u32,
}

impl RunId {
    /// Returns the run of a unit that is active and was started by fleet.
    fn of(managed: &ManagedUnit) -> Option<Self> {
        let (known, state) = (&managed.known, &managed.state);
        let is_active = matches!(state.active, ActiveState::Active | ActiveState::Reloading);
        (is_active && known.requested == TargetState::Launched).then_some(Self {
            hash: known.hash,
            epoch: known.epoch,
            generation: known.generation,
            main_pid: state.main_pid,
            restarts: state.restarts,
        })
    }
}

/// Returns the health check of a unit. Returns `None` if the cluster has another file of the unit
/// than the machine.
fn check_of(snapshot: &Snapshot, managed: &ManagedUnit) -> Option<HealthCheck> {
    let unit = snapshot.unit(managed.unit.as_str())?;
    let check = unit.requirements.health_check.as_ref()?;
    (unit.hash() == managed.known.hash).then(|| check.clone())
}

/// Current health of one machine's units.
#[derive(Debug)]
pub(crate) struct UnitHealth {
    mirror: Mirror,
    by_unit: Mutex<BTreeMap<UnitName, (RunId, Health)>>,
    feed: ChangeSender,
}

impl UnitHealth {
    pub(crate) fn new(mirror: Mirror) -> Self {
        Self { mirror, by_unit: Mutex::default(), feed: ChangeSender::default() }
    }

    /// Subscribes to the units whose health changes from now on.
    pub(crate) fn changes(&self) -> ChangeReceiver {
        self.feed.subscribe()
    }

    /// Returns the health to publish for a unit. A run that has a check, but was not checked yet,
    /// is [`Health::Starting`]. So a new run never shows the health of the previous one.
    pub(crate) fn reportable(&self, managed: &ManagedUnit) -> Option<Health> {
        let run = RunId::of(managed)?;
        match self.lock().get(&managed.unit) {
            Some((of, health)) if *of == run => return Some(health.clone()),
            _ => {}
        }
        check_of(&self.mirror.snapshot(), managed).map(|_| Health::Starting)
    }

    fn set(&self, unit: &UnitName, run: RunId, health: &Health) {
        let entry = (run, health.clone());
        let before = self.lock().insert(unit.clone(), entry.clone());
        if before != Some(entry) {
            self.feed.report(unit);
        }
    }

    fn remove(&self, unit: &UnitName) {
        self.lock().remove(unit);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, (RunId, Health)>> {
        self.by_unit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks each active unit that has a health check.
pub(crate) struct HealthTask {
    mirror: Mirror,
    manager: Arc<dyn ServiceManager>,
    prober: Arc<dyn HealthProber>,
    clock: Arc<dyn Clock>,
    /// Results, for the publisher.
    pub(crate) health: Arc<UnitHealth>,
    pub(crate) heartbeat: Heartbeat,
}

/// Result of a check of one run.
type Probed = (UnitName, RunId, Result<(), String>);

/// Checks in progress and to come.
#[derive(Default)]
struct Schedule {
    units: BTreeMap<UnitName, CheckedUnit>,
    probes: JoinSet<Probed>,
    /// Units whose state could not be read.
    unreadable: BTreeSet<UnitName>,
    /// Whether the units are still to be listed.
    unlisted: bool,
    /// Time at which failed reads are retried.
    retry_at: Timestamp,
}

struct CheckedUnit {
    run: RunId,
    check: HealthCheck,
    tracker: HealthTracker,
    /// Time of the next check; `None` while a check is in progress.
    due: Option<Timestamp>,
    probe: Option<AbortHandle>,
}

impl Drop for CheckedUnit {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            probe.abort();
        }
    }
}

impl Schedule {
    /// Whether some unit is still to be read.
    fn is_blind(&self) -> bool {
        self.unlisted || !self.unreadable.is_empty()
    }

    /// Returns when there is something to do; `None` if there is nothing.
    fn next(&self) -> Option<Timestamp> {
        let retry_at = self.is_blind().then_some(self.retry_at);
        let is_full = self.probes.len() >= MAX_PROBES;
        let due = self.units.values().filter_map(|unit| unit.due).min().filter(|_| !is_full);
        due.into_iter().chain(retry_at).min()
    }
}

impl HealthTask {
    pub(crate) fn new(config: &AgentConfig) -> Self {
        let (mirror, manager) = (config.mirror.clone(), config.manager.clone());
        let (prober, clock) = (config.prober.clone(), config.clock.clone());
        let health = Arc::new(UnitHealth::new(mirror.clone()));
        Self { mirror, manager, prober, clock, health, heartbeat: Heartbeat::new("health") }
    }

    /// Runs until shutdown.
    pub(crate) async fn run(self, mut shutdown: Shutdown) {
        let mut changes = self.manager.changes();
        tokio::select! {
            biased;
            () = shutdown.wait() => return,
            current = self.mirror.wait_current() => if current.is_err() { return },
        }
        let mut schedule = Schedule { unlisted: true, ..Schedule::default() };
        loop {
            let next = schedule.next();
            // In a fixed order, so that simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                units = changes.next() => {
                    self.heartbeat.busy(self.refresh(&mut schedule, units)).await;
                }
                Some(probed) = schedule.probes.join_next() => {
                    // An error means that the check was aborted.
                    if let Ok(probed) = probed {
                        self.observe(&mut schedule, probed);
                    }
                }
                () = wait_until(&*self.clock, next) => {}
            }
            let now = self.clock.now();
            if schedule.is_blind() && now >= schedule.retry_at {
                self.heartbeat.busy(self.retry(&mut schedule, now)).await;
            }
            self.start_due(&mut schedule, now);
        }
    }

    /// Reads the units again that could not be read.
    async fn retry(&self, schedule: &mut Schedule, now: Timestamp) {
        let mut units = std::mem::take(&mut schedule.unreadable);
        if schedule.unlisted {
            match self.manager.list().await {
                Ok(listed) => {
                    schedule.unlisted = false;
                    units.extend(listed.into_iter().map(|unit| unit.unit));
                }
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "cannot list this machine's units: their health is not checked for now"
                    );
                    schedule.retry_at = now.after(RETRY);
                }
            }
        }
        self.refresh(schedule, units).await;
    }

    /// Begins the checks of units that have become active, and ends those of all others.
    async fn refresh(&self, schedule: &mut Schedule, units: BTreeSet<UnitName>) {
        let snapshot = self.mirror.snapshot();
        for unit in units {
            let Ok(managed) = self.manager.get(&unit).await else {
                schedule.unreadable.insert(unit);
                schedule.retry_at = self.clock.now().after(RETRY);
                continue;
            };
            let run = managed.as_ref().and_then(RunId::of);
            if run.is_some() && schedule.units.get(&unit).map(|known| known.run) == run {
                continue;
            }
            let check = managed.as_ref().and_then(|managed| check_of(&snapshot, managed));
            let Some((run, check)) = run.zip(check) else {
                self.health.remove(&unit);
                schedule.units.remove(&unit);
                continue;
            };
            let tracker = HealthTracker::new(check.threshold);
            self.health.set(&unit, run, tracker.health());
            let due = Some(self.clock.now().after(FIRST_DELAY));
            schedule.units.insert(unit, CheckedUnit { run, check, tracker, due, probe: None });
        }
    }

    /// Starts due checks, longest due first, up to the limit.
    fn start_due(&self, schedule: &mut Schedule, now: Timestamp) {
        let mut due: Vec<(Timestamp, &UnitName, &mut CheckedUnit)> = Vec::new();
        for (name, unit) in &mut schedule.units {
            match unit.due {
                Some(at) if at <= now => due.push((at, name, unit)),
                _ => {}
            }
        }
        due.sort_by_key(|(at, name, _)| (*at, *name));
        let free = MAX_PROBES.saturating_sub(schedule.probes.len());
        for (_, name, unit) in due.into_iter().take(free) {
            let (name, run, prober) = (name.clone(), unit.run, self.prober.clone());
            let HealthCheck { target, timeout, .. } = unit.check.clone();
            let probe = async move {
                let result = prober.probe(&target, timeout).await;
                (name, run, result)
            };
            unit.due = None;
            unit.probe = Some(schedule.probes.spawn(probe));
        }
    }

    /// Takes the result of a check into account. Ignores that of an earlier run.
    fn observe(&self, schedule: &mut Schedule, (name, run, result): Probed) {
        let Some(unit) = schedule.units.get_mut(&name).filter(|unit| unit.run == run) else {
            return;
        };
        unit.probe = None;
        unit.due = Some(self.clock.now().after(unit.check.interval));
        let before = unit.tracker.health().as_str();
        let health = unit.tracker.observe(result);
        if health.as_str() == before {
            return;
        }
        match health {
            Health::Unhealthy { message } => {
                tracing::warn!(unit = %name, message, "a unit has become unhealthy");
            }
            _ => tracing::info!(unit = %name, "a unit has become healthy"),
        }
        self.health.set(&name, run, health);
    }
}
