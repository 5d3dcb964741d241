//! Stops units with `OnPartition=stop` before the cluster may assume that they have ended.
//!
//! The *fence* is the time up to which the machine is certainly present, by the machine's own
//! clock. To compute it, the machine adds one lease duration to the time at which it sent the last
//! successful renewal. After the fence, none of these units may run on this machine until a renewal
//! succeeds again.
//!
//! The fence is persisted for the next daemon. A fence that cannot be read counts as passed.
//!
//! The start gate holds back these units until they may be started here. It also holds back each
//! unit whose `StartAfter=` names a unit that has not run yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::start_order::{StartBlocker, start_blockers};
use fleet_core::{
    DesiredUnit, KnownUnit, MachineId, Revision, Snapshot, TargetState, Timestamp, Unit,
};
use fleet_store::Mirror;
use fleet_store::mirror::Progress;
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::desired_state::is_fenced;
use super::exclusivity::{BlockReason, Exclusivity, Observation, PresenceWindow};
use super::reconcile::ReconcilerConfig;
use super::state::{AgentState, Checkpoint, StateKey};
use super::unit_errors::{OrderId, UnitErrors, chain};
use crate::service_manager::WAITS_FOR;
use crate::watchdog::Heartbeat;
use crate::{Clock, ServiceError, ServiceManager, Shutdown};

/// Wait before a failed stop is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Stops fenced units once the fence has passed. This is a separate task, so that nothing else that
/// the agent waits for can delay the stops.
pub(crate) struct FenceTask {
    pub(crate) machine: MachineId,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<dyn AgentState>,
    /// The presence window, whose end is the fence. `None` until this daemon has joined the
    /// cluster. Until then the persisted fence applies.
    pub(crate) window: watch::Receiver<Option<PresenceWindow>>,
    /// Fenced units that the machine may have.
    pub(crate) units: watch::Receiver<Arc<BTreeSet<UnitName>>>,
    /// Units that are being stopped.
    pub(crate) stopping: Arc<StoppingUnits>,
    pub(crate) heartbeat: Heartbeat,
}

impl FenceTask {
    /// Creates the task that shares the machine with this reconciler.
    pub(crate) fn new(
        reconciler: &ReconcilerConfig,
        units: watch::Receiver<Arc<BTreeSet<UnitName>>>,
        heartbeat: Heartbeat,
    ) -> Self {
        Self {
            machine: reconciler.machine.clone(),
            manager: reconciler.manager.clone(),
            clock: reconciler.clock.clone(),
            state: reconciler.state.clone(),
            window: reconciler.window.clone(),
            units,
            stopping: reconciler.stopping.clone(),
            heartbeat,
        }
    }
}

/// Units that the fence task is stopping. The service manager completes a call about such a unit
/// only after the stop, so a caller should make calls about other units first.
#[derive(Debug, Default)]
pub(crate) struct StoppingUnits {
    units: Mutex<BTreeSet<UnitName>>,
    ended: Notify,
}

/// Stops in progress.
#[derive(Default)]
struct StopTasks {
    tasks: JoinSet<(UnitName, Result<(), ServiceError>)>,
    /// Whether a stop has failed and is to be retried.
    retry_needed: bool,
}

impl StoppingUnits {
    /// Whether the unit is being stopped.
    pub(crate) fn contains(&self, unit: &UnitName) -> bool {
        self.lock().contains(unit)
    }

    /// Waits until a stop has succeeded or failed. The unit may then have to be started again.
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

impl FenceTask {
    /// Runs until shutdown.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let heartbeat = self.heartbeat.clone();
        let stored = heartbeat.busy(read_fence(&*self.state, &self.machine, &*self.clock)).await;
        let mut changes = self.manager.changes();
        let mut stops = StopTasks::default();
        loop {
            let fence = self.window.borrow_and_update().map_or(stored, |it| it.until);
            let passed = self.clock.now() >= fence;
            if passed {
                heartbeat.busy(self.stop_all(&mut stops)).await;
            }
            // In a fixed order, so that simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                changed = self.window.changed() => if changed.is_err() { return },
                changed = self.units.changed() => if changed.is_err() { return },
                Some(ended) = stops.tasks.join_next() => match ended {
                    Ok(ended) => self.on_stopped(ended, &mut stops),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                // A unit that is started by others must not run either.
                _units = changes.next(), if passed => {}
                () = self.clock.sleep_until(fence), if !passed => {}
                () = self.clock.sleep(RETRY), if passed && stops.retry_needed => {}
            }
        }
    }

    /// Stops each running unit that is not being stopped already.
    async fn stop_all(&mut self, stops: &mut StopTasks) {
        stops.retry_needed = false;
        let units = self.units.borrow_and_update().clone();
        for unit in units.iter().filter(|unit| !self.stopping.contains(unit)) {
            match self.manager.get(unit).await {
                Ok(None) => {}
                Ok(Some(found)) if found.has_ended() => {}
                Ok(Some(_)) => {
                    let why = "this machine's lease has ended";
                    tracing::warn!(%unit, why, "stopping the unit (OnPartition=stop)");
                    self.stopping.begin(unit);
                    let (manager, unit) = (self.manager.clone(), unit.clone());
                    stops.tasks.spawn(async move {
                        let result = manager.stop(&unit).await;
                        (unit, result)
                    });
                }
                Err(error) => {
                    tracing::warn!(
                        %unit,
                        error = chain(&error),
                        "cannot determine whether a unit must be stopped (OnPartition=stop): \
                         trying again"
                    );
                    stops.retry_needed = true;
                }
            }
        }
    }

    fn on_stopped(&self, ended: (UnitName, Result<(), ServiceError>), stops: &mut StopTasks) {
        let (unit, result) = ended;
        self.stopping.end(&unit);
        if let Err(error) = result {
            tracing::warn!(
                %unit,
                error = chain(&error),
                "cannot stop a unit (OnPartition=stop): trying again"
            );
            stops.retry_needed = true;
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredFence {
    v: u32,
    machine: String,
    origin: String,
    until_ms: u64,
}

/// Persists the fence. If the write fails, the previously stored fence stays. After a renewal, that
/// fence is the earlier of the two, which is safe: the next daemon would only stop units too early.
pub(crate) async fn write_fence(
    state: &dyn AgentState,
    machine: &MachineId,
    clock: &dyn Clock,
    fence: Timestamp,
) {
    let Some(origin) = clock.origin() else { return };
    let (machine, until_ms) = (machine.to_string(), fence.as_millis());
    let wire = StoredFence { v: 1, machine, origin, until_ms };
    let content = serde_json::to_vec(&wire).expect("texts and numbers can be written as JSON");
    if let Err(error) = state.write(StateKey::Fence, content).await {
        tracing::warn!(
            %error,
            "cannot save when this machine's lease ends: if fleetd restarts, it might stop units \
             with OnPartition=stop too early"
        );
    }
}

/// Reads the persisted fence; the zero timestamp if it is unknown.
pub(crate) async fn read_fence(
    state: &dyn AgentState,
    machine: &MachineId,
    clock: &dyn Clock,
) -> Timestamp {
    let content = match state.read(StateKey::Fence).await {
        Ok(content) => content.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot read when this machine's lease ends: units with OnPartition=stop are \
                 stopped until this machine joins the cluster"
            );
            Vec::new()
        }
    };
    let wire: Option<StoredFence> = serde_json::from_slice(&content).ok();
    let same = wire.filter(|wire| wire.v == 1 && wire.machine == *machine.as_str());
    let same = same.filter(|wire| clock.origin().as_ref() == Some(&wire.origin));
    Timestamp::from_millis(same.map_or(0, |wire| wire.until_ms))
}

/// The exclusivity rule and the start order, with the units that they hold back.
pub(crate) struct StartGate {
    exclusivity: Exclusivity,
    window: watch::Receiver<Option<PresenceWindow>>,
    progress: watch::Receiver<Progress>,
    errors: Arc<UnitErrors>,
    waiting: BTreeMap<UnitName, HeldStart>,
    last_revision: Revision,
}

/// A start that has to wait.
struct HeldStart {
    /// The unit as the cluster wants it.
    unit: Arc<Unit>,
    order: OrderId,
    reason: HoldReason,
}

/// The reason why a start has to wait.
#[derive(Debug, PartialEq, Eq)]
enum HoldReason {
    /// The unit may run on another machine (`OnPartition=stop`).
    Exclusivity(BlockReason),
    /// Units of its `StartAfter=` have not run yet. The list is not empty.
    StartOrder(Vec<StartBlocker>),
}

impl HoldReason {
    /// Returns the text to publish, if there is one.
    fn text(&self) -> Option<String> {
        match self {
            Self::Exclusivity(BlockReason::CutOff | BlockReason::NotPublished) => None,
            Self::Exclusivity(reason) => Some(reason.to_string()),
            Self::StartOrder(blockers) => {
                let (first, more) = blockers.split_first()?;
                Some(match more.len() {
                    0 => format!("{WAITS_FOR}{first}"),
                    more => format!("{WAITS_FOR}{first}, and for {more} more"),
                })
            }
        }
    }
}

/// Cluster state for one evaluation of the rule.
pub(crate) struct StartView {
    snapshot: Arc<Snapshot>,
    machines: Option<BTreeSet<MachineId>>,
    gaps: u64,
    now: Timestamp,
    window: Option<PresenceWindow>,
}

impl StartView {
    fn observation(&self) -> Observation<'_> {
        Observation {
            snapshot: &self.snapshot,
            machines: self.machines.as_ref(),
            gaps: self.gaps,
            now: self.now,
            window: self.window,
        }
    }
}

impl StartGate {
    pub(crate) fn new(
        machine: &MachineId,
        ttl: Duration,
        mirror: &Mirror,
        window: watch::Receiver<Option<PresenceWindow>>,
        errors: Arc<UnitErrors>,
    ) -> Self {
        Self {
            exclusivity: Exclusivity::new(machine.clone(), ttl),
            window,
            progress: mirror.subscribe(),
            errors,
            waiting: BTreeMap::new(),
            last_revision: Revision::ZERO,
        }
    }

    /// Collects the cluster state of a mirror snapshot at `now`.
    pub(crate) fn view(
        &mut self,
        snapshot: &Arc<Snapshot>,
        mirror: &Mirror,
        now: Timestamp,
    ) -> StartView {
        // Changes of other machines matter only to blocked units.
        let is_fence = |held: &HeldStart| matches!(held.reason, HoldReason::Exclusivity(_));
        let waits = self.waiting.values().any(is_fence);
        let changes = waits.then(|| mirror.delta_since(self.last_revision).changes).flatten();
        self.last_revision = snapshot.revision;
        self.progress.mark_unchanged();
        let window = *self.window.borrow_and_update();
        let machines = changes.map(|changes| changes.machines);
        StartView { snapshot: snapshot.clone(), machines, gaps: mirror.resyncs(), now, window }
    }

    /// Keeps units with `OnPartition=stop` or `StartAfter=` from being started too early: changes
    /// their state in `desired` from launched to loaded. Returns the earliest time at which the
    /// reason for this ends by itself, so that the caller has to compare again. Returns `None` if
    /// there is no such time.
    pub(crate) fn hold_back(
        &mut self,
        desired: &mut BTreeMap<UnitName, DesiredUnit>,
        known: &BTreeMap<UnitName, KnownUnit>,
        checkpoint: &Checkpoint,
        view: &StartView,
    ) -> Option<Timestamp> {
        self.exclusivity.record_changes(view.observation());
        let before = std::mem::take(&mut self.waiting);
        for (name, wanted) in desired.iter_mut() {
            let started =
                known.get(name).is_some_and(|known| known.requested == TargetState::Launched);
            if wanted.unit.desired != TargetState::Launched || started {
                continue;
            }
            let mut reason = self.reason(&wanted.unit, view);
            if reason.is_none() && is_fenced(&wanted.unit) && !checkpoint.is_persisted(name) {
                reason = Some(HoldReason::Exclusivity(BlockReason::CutOff));
            }
            let Some(reason) = reason else { continue };
            let (unit, order) = (wanted.unit.clone(), OrderId::of(wanted));
            let held = Unit { desired: TargetState::Loaded, ..unit.as_ref().clone() };
            wanted.unit = Arc::new(held);
            self.waiting.insert(name.clone(), HeldStart { unit, order, reason });
        }
        let waiting = &self.waiting;
        // No longer held back, perhaps because a unit of the same name without these options has
        // replaced it.
        let over = before.keys().filter(|unit| !waiting.contains_key(*unit));
        over.for_each(|unit| self.errors.clear_waiting(unit));
        self.exclusivity.retain(|unit| waiting.contains_key(unit));
        let until = |held: &HeldStart| match &held.reason {
            HoldReason::Exclusivity(reason) => reason.until(),
            HoldReason::StartOrder(_) => None,
        };
        waiting.values().filter_map(until).min()
    }

    /// Returns the reason why the unit must not be started now; `None` if it may be started.
    fn reason(&mut self, unit: &Unit, view: &StartView) -> Option<HoldReason> {
        if is_fenced(unit)
            && let Some(reason) = self.exclusivity.blocked_by(unit, view.observation())
        {
            return Some(HoldReason::Exclusivity(reason));
        }
        let blockers = start_blockers(&view.snapshot, unit);
        (!blockers.is_empty()).then_some(HoldReason::StartOrder(blockers))
    }

    /// Publishes the reason of each unit that is held back, except for the usual short reasons of a
    /// unit with `OnPartition=stop`. The failure of another task of the unit is kept instead.
    pub(crate) fn report(&self) {
        for (name, held) in &self.waiting {
            match held.reason.text() {
                Some(text) => self.errors.set_waiting(name, held.order, text),
                None => self.errors.clear_waiting(name),
            }
        }
    }

    /// Waits until one of the units is no longer held back, or is held back for another reason than
    /// before. Waits forever if no unit is held back.
    pub(crate) async fn changed(&mut self, mirror: &Mirror, clock: &dyn Clock) {
        loop {
            if self.waiting.is_empty() {
                return std::future::pending().await;
            }
            tokio::select! {
                biased;
                changed = self.window.changed() => if changed.is_err() { return },
                changed = self.progress.changed() => if changed.is_err() { return },
            }
            let Some(snapshot) = mirror.current() else { continue };
            let view = self.view(&snapshot, mirror, clock.now());
            self.exclusivity.record_changes(view.observation());
            let waiting = std::mem::take(&mut self.waiting);
            let differs =
                |held: &HeldStart| self.reason(&held.unit, &view).as_ref() != Some(&held.reason);
            let has_changed = waiting.values().any(differs);
            self.waiting = waiting;
            if has_changed {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::agent::state::MemoryState;

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
    async fn stored_fence_is_valid_until_reboot() {
        let state = MemoryState::default();
        let unknown = Timestamp::from_millis(0);
        let (machine, other): (MachineId, MachineId) =
            ("m1".parse().unwrap(), "m2".parse().unwrap());
        assert_eq!(read_fence(&state, &machine, &Boot("one")).await, unknown);
        let fence = Timestamp::from_millis(1234);
        write_fence(&state, &machine, &Boot("one"), fence).await;
        assert_eq!(read_fence(&state, &machine, &Boot("one")).await, fence);
        assert_eq!(read_fence(&state, &machine, &Boot("two")).await, unknown);
        assert_eq!(read_fence(&state, &other, &Boot("one")).await, unknown);
        let newer = r#"{"v":2,"machine":"m1","origin":"one","until_ms":1234}"#;
        for damaged in ["", "{", newer] {
            state.write(StateKey::Fence, damaged.into()).await.unwrap();
            assert_eq!(read_fence(&state, &machine, &Boot("one")).await, unknown, "{damaged}");
        }
    }
}
