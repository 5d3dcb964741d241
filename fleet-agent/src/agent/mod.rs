//! The agent: makes one machine do what the cluster wants of it, and says what became of it.
//!
//! Three tasks share the work, so that none can delay another: *presence* renews the machine's
//! lease, *reconcile* compares and acts, *publish* writes unit states.

mod execute;
mod presence;
mod problems;
mod publish;
mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use fleet_store::{MachineRecord, Mirror, Presence, Registry};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use self::presence::PresenceKeeper;
use self::problems::Problems;
use self::publish::Publisher;
use self::reconcile::Reconciler;
use crate::{Clock, ServiceManager, Shutdown};

/// What an agent needs to run.
pub struct AgentConfig {
    /// What the machine says of itself.
    pub machine: MachineRecord,
    /// What tells this machine from another one under the same identity.
    pub token: String,
    /// How long the machine stays present without a sign of life.
    pub ttl: Duration,
    /// The cluster's memory, for writing.
    pub registry: Registry,
    /// The cluster's memory, for reading.
    pub mirror: Mirror,
    /// What runs the machine's units.
    pub manager: Arc<dyn ServiceManager>,
    /// The clock of all waits.
    pub clock: Arc<dyn Clock>,
}

/// An agent at work.
#[derive(Debug)]
pub struct Agent {
    tasks: JoinSet<()>,
    presence: watch::Receiver<Option<Arc<Presence>>>,
}

impl Agent {
    /// Starts an agent's tasks; they end when told to, or when the agent is dropped.
    #[must_use]
    pub fn start(config: AgentConfig, shutdown: &Shutdown) -> Self {
        let AgentConfig { machine, token, ttl, registry, mirror, manager, clock } = config;
        let id = machine.id.clone();
        let problems = Arc::new(Problems::default());
        let [to_reconciler, to_publisher, to_all] = [(); 3].map(|()| watch::channel(None));
        let reconciler = Reconciler::new(
            id.clone(),
            to_reconciler.1,
            mirror,
            manager.clone(),
            clock.clone(),
            problems.clone(),
        );
        let publisher = Publisher {
            machine: id,
            manager,
            problems,
            presence: to_publisher.1,
            clock: clock.clone(),
        };
        let told = vec![to_reconciler.0, to_publisher.0, to_all.0];
        let keeper = PresenceKeeper { registry, machine, token, ttl, clock, told };
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.run(shutdown.clone()));
        tasks.spawn(publisher.run(shutdown.clone()));
        tasks.spawn(reconciler.run(shutdown.clone()));
        Self { tasks, presence: to_all.1 }
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Option<Arc<Presence>>> {
        self.presence.clone()
    }

    /// Waits until the machine is present in the cluster.
    pub async fn joined(&mut self) {
        // An error means that the agent has ended, and then there is nothing to wait for.
        let _present = self.presence.wait_for(Option::is_some).await.is_ok();
    }

    /// Returns when one of the agent's tasks has ended that nobody told to, with how it ended: what
    /// is left does only part of an agent's work.
    pub async fn broken(&mut self) -> Result<(), JoinError> {
        match self.tasks.join_next().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    /// Waits until all tasks have ended; a task that panicked hands its panic on.
    pub async fn ended(mut self) {
        while let Some(result) = self.tasks.join_next().await {
            match result {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => {}
            }
        }
    }
}
