//! The agent: makes its machine match the desired state, and publishes the resulting states.
//!
//! Five tasks share the work, so that none can delay another:
//!
//! - *presence* renews the machine's lease.
//! - *reconcile* compares the desired units with the known ones, and starts and stops units.
//! - *publish* writes unit states.
//! - *fence* stops units that must not run while the cluster is out of reach.
//! - *health* checks the health of units.
//!
//! A sixth task checks that the mirror keeps up with the machine's own writes.

mod attempts;
mod desired_state;
mod exclusivity;
mod execute;
mod fence;
mod health;
mod job_reports;
mod presence;
mod prober;
mod publish;
mod reconcile;
mod state;
mod task_tracker;
mod unit_errors;

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::registry::{MachineRecord, Presence};
use fleet_store::{Mirror, Registry};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::journal::JournalReader;
use crate::watchdog::{Heartbeat, Watchdog};
use crate::{AgentMetrics, Clock, ServiceManager, Shutdown, SystemClock};
use fence::FenceTask;
use health::HealthTask;
use job_reports::JobReports;
use presence::{PresenceTask, WriteVisibilityCheck};
use publish::Publisher;
use reconcile::{Reconciler, ReconcilerConfig};
use unit_errors::UnitErrors;

pub use prober::{HealthProber, SystemProber};
pub use state::{
    AgentState, DiskState, MemoryState, StateKey, accept_any_store, protected_lineage,
};

/// Dependencies and settings of an agent.
#[non_exhaustive]
pub struct AgentConfig {
    /// Description of the machine.
    pub machine: MachineRecord,
    /// Distinguishes this machine from another one with the same identity.
    pub token: String,
    /// Time for which the machine stays present without renewal.
    pub ttl: Duration,
    /// Registry for writes to the cluster's state.
    pub registry: Registry,
    /// Mirror for reads of the cluster's state.
    pub mirror: Mirror,
    /// Service manager of the machine.
    pub manager: Arc<dyn ServiceManager>,
    /// State for the next daemon of this machine.
    pub state: Arc<dyn AgentState>,
    /// Clock of all waits.
    pub clock: Arc<dyn Clock>,
    /// Runs the health checks of units.
    pub prober: Arc<dyn HealthProber>,
    /// Reads the output of jobs that have ended. Without it, no output is reported.
    pub journals: Option<Arc<dyn JournalReader>>,
}

impl AgentConfig {
    /// Default time for which the machine stays present without renewal.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

    /// Creates a configuration with the default time to live, the real clock and real health
    /// checks. `token` distinguishes the machine from another one with the same identity.
    #[must_use]
    pub fn new(
        machine: MachineRecord,
        token: impl Into<String>,
        registry: Registry,
        mirror: Mirror,
        manager: Arc<dyn ServiceManager>,
        state: Arc<dyn AgentState>,
    ) -> Self {
        let (token, ttl) = (token.into(), Self::DEFAULT_TTL);
        let (clock, prober) = (Arc::new(SystemClock::start()), Arc::new(SystemProber));
        let journals = None;
        Self { machine, token, ttl, registry, mirror, manager, state, clock, prober, journals }
    }
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    tasks: JoinSet<()>,
    presence: watch::Receiver<Option<Arc<Presence>>>,
    join_problem: watch::Receiver<Option<String>>,
    machine: watch::Sender<MachineRecord>,
    watchdog: Watchdog,
    metrics: AgentMetrics,
}

impl Agent {
    /// Starts the tasks of an agent. The tasks end on shutdown, or when the agent is dropped.
    #[must_use]
    pub fn start(config: AgentConfig, shutdown: &Shutdown) -> Self {
        let health = HealthTask::new(&config);
        let jobs = Arc::new(JobReports::new(config.journals.clone()));
        let AgentConfig { machine, token, ttl, registry, mirror, manager, state, clock, .. } =
            config;
        let (id, errors) = (machine.id.clone(), Arc::new(UnitErrors::default()));
        let metrics = errors.metrics().clone();
        let [to_reconciler, to_publisher, to_check, to_all] =
            [(); 4].map(|()| watch::channel(None));
        let (window, stands) = watch::channel(None);
        let (problem, join_problem) = watch::channel(None);
        let (fenced, units) = watch::channel(Arc::default());
        let (written, writes) = watch::channel(Revision::ZERO);
        let names = ["presence", "fence", "publish", "reconcile", "mirror"];
        let [presence, fencing, publishing, reconciling, following] = names.map(Heartbeat::new);
        let reconciler = ReconcilerConfig {
            machine: id.clone(),
            ttl,
            presence: to_reconciler.1,
            mirror: mirror.clone(),
            manager: manager.clone(),
            clock: clock.clone(),
            state: state.clone(),
            errors: errors.clone(),
            jobs: jobs.clone(),
            window: stands,
            fenced,
            stopping: Arc::default(),
            heartbeat: reconciling.clone(),
        };
        let fence = FenceTask::new(&reconciler, units, fencing.clone());
        let publisher = Publisher {
            machine: id,
            manager,
            errors,
            health: health.health.clone(),
            jobs,
            presence: to_publisher.1,
            clock: clock.clone(),
            written,
            heartbeat: publishing.clone(),
        };
        let (describe, machine) = watch::channel(machine);
        let presence_task = PresenceTask {
            registry,
            mirror: mirror.clone(),
            machine,
            token,
            ttl,
            clock,
            subscribers: vec![to_reconciler.0, to_publisher.0, to_check.0, to_all.0],
            window,
            problem,
            state,
            heartbeat: presence.clone(),
        };
        let heartbeat = following.clone();
        let check = WriteVisibilityCheck { mirror, presence: to_check.1, writes, heartbeat };
        let (mut tasks, watchdog) = (JoinSet::new(), Watchdog::default());
        tasks.spawn(watchdog.monitor(&presence, presence_task.run(shutdown.clone())));
        tasks.spawn(watchdog.monitor(&fencing, fence.run(shutdown.clone())));
        tasks.spawn(watchdog.monitor(&publishing, publisher.run(shutdown.clone())));
        tasks.spawn(
            watchdog.monitor(&reconciling, Reconciler::new(reconciler).run(shutdown.clone())),
        );
        tasks.spawn(watchdog.monitor(&following, check.run(shutdown.clone())));
        tasks.spawn(watchdog.monitor(&health.heartbeat.clone(), health.run(shutdown.clone())));
        Self { tasks, presence: to_all.1, join_problem, machine: describe, watchdog, metrics }
    }

    /// Replaces the description of the machine. Its identity stays the same.
    pub fn describe(&self, machine: MachineRecord) {
        self.machine.send_replace(machine);
    }

    /// Returns whether the machine is present in the cluster, as far as the agent knows.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.presence.borrow().is_some()
    }

    /// Returns the error of the last attempt to join the cluster, which follows later attempts. It
    /// is `None` while the machine is present, and before the first attempt has failed.
    #[must_use]
    pub fn join_problem(&self) -> watch::Receiver<Option<String>> {
        self.join_problem.clone()
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Option<Arc<Presence>>> {
        self.presence.clone()
    }

    /// Returns the watchdog of the agent's loops.
    #[must_use]
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Returns the failure counters of the agent.
    #[must_use]
    pub fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    /// Waits until the machine is present in the cluster.
    pub async fn joined(&mut self) {
        // An error means that the agent has ended, and then there is nothing to wait for.
        let _present = self.presence.wait_for(Option::is_some).await.is_ok();
    }

    /// Waits until one of the agent's tasks has ended unexpectedly, and returns the result of that
    /// task. The agent no longer works then, because the remaining tasks do only part of its work.
    pub async fn broken(&mut self) -> Result<(), JoinError> {
        match self.tasks.join_next().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    /// Waits until all tasks have ended. A panic of a task is propagated.
    pub async fn ended(mut self) {
        while let Some(result) = self.tasks.join_next().await {
            match result {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => {}
            }
        }
    }
}
