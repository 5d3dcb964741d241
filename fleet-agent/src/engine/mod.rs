//! The engine: decides which machine runs which unit, and writes the placements, while it leads.

mod absent_machines;
#[cfg(test)]
mod absent_machines_tests;
mod agenda;
mod failures;
mod history;
mod jobs;
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "it is public for benchmarks alone")
)]
pub(crate) mod planner;
mod rollouts;
mod schedules;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, MachineId, Revision, Snapshot, Timestamp};
use fleet_scheduler::{Plan, StepAction};
use fleet_store::registry::{
    Leadership, PlacementWrites, Presence, RebalanceUpdate, RemovePlacement, SetPlacement,
};
use fleet_store::{Mirror, Registry, RegistryError, StoreError};
use fleet_unitfile::UnitName;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::wait_until;
use crate::mirror_changes::ClusterChanges;
use crate::observer::NoopObserver;
use crate::watchdog::Heartbeat;
use crate::{Agent, AgentConfig, Clock, EngineObserver, Shutdown, SystemClock};
use absent_machines::{AbsentMachines, MirrorStatus};
use history::Causes;
use planner::{NextStep, Planner, waits_for_reports};

/// Wait before the next pass if the store could not complete a pass.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum wait for the mirror to show a write.
///
/// The wait only saves work. A plan made before the mirror shows the write is based on the previous
/// state, so the store would refuse that plan.
///
/// The wait is limited because several clusters may share a store, and revisions count the writes
/// of all these clusters. If a response ever carried a revision of another cluster, this mirror
/// would reach that revision only with its own next change. That change may be a day away.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum interval between two checks of whether enough units are up to continue a drain.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Dependencies and settings of an engine.
#[non_exhaustive]
pub struct EngineConfig {
    /// Machine for which the engine campaigns.
    pub candidate: MachineId,
    /// Time for which the engine leads without renewal.
    pub ttl: Duration,
    /// Time for which a machine stays present without renewal.
    pub presence_ttl: Duration,
    /// Registry for writes to the cluster's state.
    pub registry: Registry,
    /// Mirror for reads of the cluster's state.
    pub mirror: Mirror,
    /// Clock of all waits.
    pub clock: Arc<dyn Clock>,
}

impl EngineConfig {
    /// Default time for which the engine leads without renewal.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(10);

    /// Creates a configuration with the default times to live, and the real clock.
    #[must_use]
    pub fn new(candidate: MachineId, registry: Registry, mirror: Mirror) -> Self {
        let (ttl, presence_ttl) = (Self::DEFAULT_TTL, AgentConfig::DEFAULT_TTL);
        let clock = Arc::new(SystemClock::start());
        Self { candidate, ttl, presence_ttl, registry, mirror, clock }
    }
}

/// Campaigns for leadership, and plans while it leads.
pub struct Engine {
    config: EngineConfig,
    /// The candidate's presence, if this process holds it.
    presence: Option<watch::Receiver<Option<Arc<Presence>>>>,
    heartbeat: Heartbeat,
    observer: Arc<dyn EngineObserver>,
}

/// Reasons to plan again, in addition to changes of the cluster.
#[derive(Default)]
struct WakeReason {
    /// Time at which to plan again.
    at: Option<Timestamp>,
    /// If set: the engine plans again as soon as a machine has reported something after this
    /// revision.
    reports: Option<Revision>,
}

/// Reason why a term is over.
enum TermEnd {
    Deposed,
    /// The outcome of the last write is unknown, and the write may still take effect. Once a new
    /// term has begun, the store refuses the write, and the engine can read from the mirror whether
    /// it took effect before.
    Doubt,
    Shutdown,
}

impl Engine {
    /// Creates an engine, which does not run yet.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        let (heartbeat, observer) = (Heartbeat::new("engine"), Arc::new(NoopObserver));
        Self { config, presence: None, heartbeat, observer }
    }

    /// Returns the heartbeat of the engine, for the [watchdog](crate::watchdog::Watchdog) that
    /// monitors it.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Lets the engine campaign only while this agent holds the candidate's presence.
    ///
    /// An engine takes over an existing leadership of its own candidate, because it assumes that an
    /// earlier process held it. If two machines have the same identity, their engines would depose
    /// each other again and again. To prevent that, only the machine that gets the presence
    /// campaigns.
    #[must_use]
    pub fn with_presence_of(self, agent: &Agent) -> Self {
        Self { presence: Some(agent.presence()), ..self }
    }

    /// Sets the observer of the engine.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn EngineObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Runs until shutdown. An engine that leads then resigns, so that another one can lead at
    /// once.
    pub async fn run(self, mut shutdown: Shutdown) {
        let EngineConfig { candidate, ttl, registry, clock, .. } = &self.config;
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                may = self.wait_to_campaign() => if !may { return },
            }
            let mut pause = *ttl / 3;
            // A request that was sent before the drop may still succeed, for `ttl` at most.
            let elected = tokio::select! {
                biased;
                () = shutdown.wait() => return,
                elected = self.heartbeat.busy(registry.campaign(candidate, *ttl)) => elected,
            };
            match elected {
                Ok(Some(leadership)) => {
                    tracing::info!(%candidate, term = %leadership.term(), "leading the cluster");
                    self.observer.on_leadership(true);
                    let end = self.lead(leadership, &mut shutdown).await;
                    self.observer.on_leadership(false);
                    match end {
                        TermEnd::Shutdown => return,
                        // Perhaps by a writer that is no leader, such as an import.
                        TermEnd::Deposed => {
                            let text = "lost the leadership of the cluster: campaigning again";
                            tracing::warn!(%candidate, "{text}");
                            pause = pause.min(RETRY);
                        }
                        TermEnd::Doubt => pause = RETRY,
                    }
                }
                Ok(None) => {}
                Err(error) => warn("cannot campaign for the leadership of the cluster", &error),
            }
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Waits until a campaign makes sense: the machine is present, and the mirror is current and
    /// shows no other leader.
    ///
    /// An engine without a current view could not decide anything. An engine that sees another
    /// leader need not ask the store. Returns `false` if the mirror or the agent has ended.
    async fn wait_to_campaign(&self) -> bool {
        let EngineConfig { candidate, mirror, .. } = &self.config;
        let Some(mut presence) = self.presence.clone() else {
            return mirror.wait_until_vacant(candidate).await.is_ok();
        };
        loop {
            if presence.wait_for(Option::is_some).await.is_err() {
                return false;
            }
            if mirror.wait_until_vacant(candidate).await.is_err() {
                return false;
            }
            if presence.borrow().is_some() {
                return true;
            }
        }
    }

    async fn lead(&self, leadership: Leadership, shutdown: &mut Shutdown) -> TermEnd {
        let (leadership, causes) = (Arc::new(leadership), Causes::default());
        let mut renewer = LeaseRenewer(tokio::spawn(renew_lease(
            leadership.clone(),
            self.config.ttl,
            self.config.clock.clone(),
            self.heartbeat.clone(),
        )));
        // In a fixed order, so that simulated clusters can be replayed.
        let end = tokio::select! {
            biased;
            () = shutdown.wait() => TermEnd::Shutdown,
            _ = &mut renewer.0 => TermEnd::Deposed,
            end = self.run_term(&leadership, &causes) => end,
            end = self.run_rollouts(&leadership) => end,
            end = self.run_jobs(&leadership) => end,
            end = self.run_history(&leadership, &causes) => end,
        };
        if let TermEnd::Shutdown = end {
            renewer.end().await;
            resign(leadership).await;
        }
        end
    }

    /// Runs the planning loop of a term: plans whenever something new is to be decided.
    /// Cancel-safe, because a write in progress is atomic and cannot take effect once the term is
    /// over.
    async fn run_term(&self, leadership: &Leadership, causes: &Causes) -> TermEnd {
        // A leader must see all decisions of earlier leaders before it decides.
        if self.config.mirror.wait_for(leadership.elected()).await.is_err() {
            return TermEnd::Shutdown;
        }
        let mut wake = ClusterChanges::of(&self.config.mirror);
        let (mut planner, mut absent) =
            (Planner::new(), AbsentMachines::new(self.config.presence_ttl));
        loop {
            let (pass, begin) =
                (self.pass(leadership, causes, &mut planner, &mut absent), self.config.clock.now());
            let passed = self.heartbeat.busy(pass).await;
            self.observer.on_pass(self.config.clock.now().since(begin), passed.as_ref().err());
            let reason = match passed {
                Ok(reason) => reason,
                Err(RegistryError::Conflict) => WakeReason::default(),
                Err(RegistryError::Deposed { .. }) => return TermEnd::Deposed,
                Err(RegistryError::Store(StoreError::Unknown(_))) => return TermEnd::Doubt,
                Err(error) => {
                    warn("cannot plan the cluster or store its plan: trying again", &error);
                    let at = Some(self.config.clock.now().after(RETRY));
                    WakeReason { at, reports: None }
                }
            };
            tokio::select! {
                biased;
                delta = wake.next() => if !delta { return TermEnd::Shutdown },
                () = wait_until(&*self.config.clock, reason.at) => {}
                () = self.wait_report(reason.reports) => {}
            }
        }
    }

    /// Plans once from a current view, writes the plan, and waits until the mirror shows it.
    /// Returns the reasons to plan again even if the cluster does not change.
    ///
    /// Machines are drained only if nothing else is to be done, and no machine is about to count as
    /// absent. Units are rebalanced only if no drain has anything to do.
    async fn pass(
        &self,
        leadership: &Leadership,
        causes: &Causes,
        planner: &mut Planner,
        absent: &mut AbsentMachines,
    ) -> Result<WakeReason, RegistryError> {
        let mirror = &self.config.mirror;
        let delta = mirror.delta_since(planner.revision());
        // Read after the delta: if the store was lost in between, this is too short, never too
        // long. An uncertain view is no reason to move anything.
        let (true, Some(current_for)) = (delta.is_current, mirror.current_for()) else {
            return Ok(WakeReason::default());
        };
        let status =
            MirrorStatus { now: self.config.clock.now(), current_for, gaps: mirror.resyncs() };
        let seen = absent.hold(&delta, status);
        let mut plan = planner.follow(&seen).clone();
        debug_assert_eq!(fleet_scheduler::check(&seen.snapshot, &plan), []);
        absent.explain(&mut plan);
        let mut reason = WakeReason { at: absent.next_evaluation(), reports: None };
        let mut balance = None;
        if plan.steps.is_empty() && reason.at.is_none() {
            let drain = planner.drain(&seen.snapshot);
            let waits = drain.filter(|plan| waits_for_reports(plan));
            reason.reports = waits.map(|_| seen.snapshot.revision);
            plan.steps.extend(drain.into_iter().flat_map(|drain| drain.plan.steps.clone()));
            if plan.steps.is_empty() && reason.reports.is_none() {
                match planner.rebalance(&seen.snapshot) {
                    Some(NextStep::Moves { steps, seen, updated }) => {
                        plan.steps = steps;
                        balance = Some(RebalanceUpdate { previous: seen, next: updated });
                    }
                    Some(NextStep::Wait) => reason.reports = Some(seen.snapshot.revision),
                    Some(NextStep::Over(seen)) => {
                        tracing::info!(
                            moved = seen.moved,
                            "rebalancing is complete: no further move improves the balance enough"
                        );
                        leadership.update_rebalancing(&seen, None).await?;
                    }
                    None => {}
                }
            }
        }
        let mut writes = PlacementWrites { rebalance: balance, ..writes(&delta.snapshot, &plan) };
        remove_superseded(&mut writes, &delta.snapshot, mirror.superseded_placements());
        if !writes.is_empty() {
            for step in &plan.steps {
                tracing::info!(%step, "storing a scheduling decision");
            }
            let written = leadership.commit(&writes).await;
            self.observer.on_steps(&plan.steps, written.is_ok());
            let revision = written?;
            causes.extend(&plan.steps);
            self.wait_visible(revision).await;
        }
        self.collect_contents().await?;
        Ok(reason)
    }

    /// Waits until machines may have reported something after this revision. Waits forever if the
    /// revision is `None`.
    ///
    /// Any write creates a revision, not only a report. So the wait takes at least
    /// [`REPORT_INTERVAL`], which limits the number of useless passes.
    async fn wait_report(&self, after: Option<Revision>) {
        let Some(after) = after else {
            return std::future::pending().await;
        };
        self.config.clock.sleep(REPORT_INTERVAL).await;
        let mut progress = self.config.mirror.subscribe();
        if progress.wait_for(|progress| progress.revision > after).await.is_err() {
            std::future::pending::<()>().await; // The other waits notice that it has ended.
        }
    }

    /// Waits until the mirror shows a write, but at most for [`VISIBILITY_TIMEOUT`]. If the write
    /// appears later, it wakes the loop like any other change.
    async fn wait_visible(&self, revision: Revision) {
        tokio::select! {
            biased;
            // A mirror that has ended also ends the loop, at its next wait for a change.
            _seen = self.config.mirror.wait_for(revision) => {}
            () = self.config.clock.sleep(VISIBILITY_TIMEOUT) => {}
        }
    }

    /// Deletes unit files that no unit refers to.
    async fn collect_contents(&self) -> Result<(), RegistryError> {
        let unused = self.config.mirror.unused_contents();
        if !unused.is_empty() {
            self.config.registry.collect_contents(&unused).await?;
        }
        Ok(())
    }
}

/// Gives up the leadership, so that another engine can lead at once. Does nothing if other handles
/// of the leadership still exist.
async fn resign(leadership: Arc<Leadership>) {
    let Some(leadership) = Arc::into_inner(leadership) else {
        return;
    };
    if let Err(error) = leadership.resign().await {
        warn("cannot give up the leadership: no engine leads until it expires", &error);
    }
}

/// Task that renews a leadership. Dropping this handle aborts the task.
struct LeaseRenewer(JoinHandle<()>);

impl LeaseRenewer {
    async fn end(mut self) {
        self.0.abort();
        let _aborted = (&mut self.0).await.is_err();
    }
}

impl Drop for LeaseRenewer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Renews the leadership until it is lost.
async fn renew_lease(
    leadership: Arc<Leadership>,
    ttl: Duration,
    clock: Arc<dyn Clock>,
    heartbeat: Heartbeat,
) {
    let mut renewed = clock.now();
    loop {
        clock.sleep(ttl / 3).await;
        match heartbeat.busy(leadership.renew()).await {
            Ok(()) => renewed = clock.now(),
            Err(RegistryError::Deposed { .. }) => return,
            Err(_) if clock.now().since(renewed) >= ttl => return,
            Err(error) => warn("cannot renew the leadership of the cluster: trying again", &error),
        }
    }
}

fn warn(message: &str, error: &RegistryError) {
    tracing::warn!(error = error as &dyn std::error::Error, "{message}");
}

/// Converts a plan to writes. The plan contains the reasons of all units without a machine. So any
/// other stored reason is outdated, and the writes remove it.
fn writes(snapshot: &Snapshot, plan: &Plan) -> PlacementWrites {
    let mut writes = PlacementWrites::default();
    let epoch = Epoch(plan.based_on.0);
    for step in &plan.steps {
        let (unit, previous) = (step.unit.clone(), snapshot.placement(step.unit.as_str()).cloned());
        match (&step.action, previous) {
            (StepAction::Place { machine } | StepAction::Move { to: machine, .. }, previous) => {
                writes.set.push(SetPlacement { unit, machine: machine.clone(), epoch, previous });
            }
            (StepAction::Remove { .. }, Some(previous)) => {
                writes.remove.push(RemovePlacement { unit, previous });
            }
            (StepAction::Remove { .. }, None) => {}
        }
    }
    for (unit, reason) in &plan.unplaced {
        if snapshot.reason(unit.as_str()).is_none_or(|published| published != reason) {
            writes.reasons.push((unit.clone(), Some(reason.as_ref().clone())));
        }
    }
    let outdated = snapshot.reasons().filter(|(unit, _)| !plan.unplaced.contains_key(*unit));
    writes.reasons.extend(outdated.map(|(unit, _)| (unit.clone(), None)));
    writes
}

/// Adds the deletion of superseded placements to `writes`. Skips each unit whose placement `writes`
/// already changes; a later pass deletes its superseded placements.
fn remove_superseded(
    writes: &mut PlacementWrites,
    snapshot: &Snapshot,
    superseded: Vec<RemovePlacement>,
) {
    if superseded.is_empty() {
        return;
    }
    let planned = writes.set.iter().map(|place| &place.unit);
    let planned = planned.chain(writes.remove.iter().map(|unplace| &unplace.unit));
    let planned: BTreeSet<UnitName> = planned.cloned().collect();
    let counts = |removal: &RemovePlacement| {
        snapshot.placement(removal.unit.as_str()) == Some(&removal.previous)
    };
    let superseded = superseded.into_iter().filter(|removal| !planned.contains(&removal.unit));
    writes.remove.extend(superseded.filter(|removal| !counts(removal)));
}
