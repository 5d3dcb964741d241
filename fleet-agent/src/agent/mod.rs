//! The agent: makes one machine do what the cluster wants of it, and says what became of it.
//!
//! Four tasks share the work, so that none can delay another: *presence* renews the machine's
//! lease, *reconcile* compares and acts, *publish* writes unit states, *fence* stops what must not
//! run where the cluster is out of reach. A fifth only watches whether the mirror keeps up.

mod assignment;
mod attempts;
mod echo;
mod entrance;
mod execute;
mod fence;
mod gate;
mod memory;
mod notes;
mod presence;
mod problems;
mod publish;
mod reconcile;
mod returned;

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{MachineRecord, Mirror, Presence, Registry};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

pub use self::notes::{Note, Notes, NotesInMemory, NotesOnDisk};

use self::echo::EchoWatch;
use self::fence::{Ending, FenceKeeper};
use self::presence::PresenceKeeper;
use self::problems::Problems;
use self::publish::Publisher;
use self::reconcile::{Reconciler, Surroundings};
use crate::{AgentTally, Beat, Clock, Pulse, ServiceManager, Shutdown};

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
    /// What the next daemon of this machine must know.
    pub notes: Arc<dyn Notes>,
    /// The clock of all waits.
    pub clock: Arc<dyn Clock>,
}

/// An agent at work.
#[derive(Debug)]
pub struct Agent {
    tasks: JoinSet<()>,
    presence: watch::Receiver<Option<Arc<Presence>>>,
    machine: watch::Sender<MachineRecord>,
    pulse: Pulse,
    tally: AgentTally,
}

impl Agent {
    /// Starts an agent's tasks; they end when told to, or when the agent is dropped.
    #[must_use]
    pub fn start(config: AgentConfig, shutdown: &Shutdown) -> Self {
        let AgentConfig { machine, token, ttl, registry, mirror, manager, notes, clock } = config;
        let id = machine.id.clone();
        let problems = Arc::new(Problems::default());
        let tally = problems.tally().clone();
        let [to_reconciler, to_publisher, to_echo, to_all] = [(); 4].map(|()| watch::channel(None));
        let (standing, stands) = watch::channel(None);
        let (fenced, units) = watch::channel(Arc::default());
        let (written, writes) = watch::channel(Revision::ZERO);
        let names = ["presence", "fence", "publish", "reconcile", "mirror"];
        let [presence, fencing, publishing, reconciling, following] = names.map(Beat::new);
        let ending = Arc::new(Ending::default());
        let reconciler = Reconciler::new(Surroundings {
            machine: id.clone(),
            ttl,
            presence: to_reconciler.1,
            mirror: mirror.clone(),
            manager: manager.clone(),
            clock: clock.clone(),
            notes: notes.clone(),
            problems: problems.clone(),
            standing: stands.clone(),
            fenced,
            ending: ending.clone(),
            beat: reconciling.clone(),
        });
        let fence = FenceKeeper {
            machine: id.clone(),
            manager: manager.clone(),
            clock: clock.clone(),
            notes: notes.clone(),
            standing: stands,
            units,
            ending,
            beat: fencing.clone(),
        };
        let publisher = Publisher {
            machine: id,
            manager,
            problems,
            presence: to_publisher.1,
            clock: clock.clone(),
            written,
            beat: publishing.clone(),
        };
        let echo = EchoWatch { mirror, presence: to_echo.1, writes, beat: following.clone() };
        let (describe, machine) = watch::channel(machine);
        let told = vec![to_reconciler.0, to_publisher.0, to_echo.0, to_all.0];
        let beat = presence.clone();
        let keeper =
            PresenceKeeper { registry, machine, token, ttl, clock, told, standing, notes, beat };
        let (mut tasks, pulse) = (JoinSet::new(), Pulse::default());
        tasks.spawn(pulse.watch(&presence, keeper.run(shutdown.clone())));
        tasks.spawn(pulse.watch(&fencing, fence.run(shutdown.clone())));
        tasks.spawn(pulse.watch(&publishing, publisher.run(shutdown.clone())));
        tasks.spawn(pulse.watch(&reconciling, reconciler.run(shutdown.clone())));
        tasks.spawn(pulse.watch(&following, echo.run(shutdown.clone())));
        Self { tasks, presence: to_all.1, machine: describe, pulse, tally }
    }

    /// Lets the machine say something else of itself from now on. Its identity stays what it was.
    pub fn describe(&self, machine: MachineRecord) {
        self.machine.send_replace(machine);
    }

    /// Whether the machine is present in the cluster, as far as the agent knows.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.presence.borrow().is_some()
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Option<Arc<Presence>>> {
        self.presence.clone()
    }

    /// By what to find out whether the agent's loops are alive.
    #[must_use]
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// How often the agent came to nothing.
    #[must_use]
    pub fn tally(&self) -> &AgentTally {
        &self.tally
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
