//! Keeps a machine present in the cluster.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_store::{MachineRecord, Presence, Registry, RegistryError};
use tokio::sync::watch;

use crate::backoff::Pace;
use crate::{Clock, Shutdown};

/// The wait before the machine's place is claimed again.
const REJOIN: Pace = Pace { first: Duration::from_millis(500), longest: Duration::from_secs(10) };

/// Claims the machine's place in the cluster, and renews the claim in a task of its own, so that no
/// other work can delay it.
pub(crate) struct PresenceKeeper {
    pub(crate) registry: Registry,
    pub(crate) machine: MachineRecord,
    pub(crate) token: String,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Who is told of it, each by a signal of its own: in which order several that wait for one
    /// signal wake is chance, and a simulation could not be replayed.
    pub(crate) told: Vec<watch::Sender<Option<Arc<Presence>>>>,
}

impl PresenceKeeper {
    /// Runs until told to end. The machine then stays present until its lease ends, so that a
    /// daemon that is back in time finds everything as it was.
    pub(crate) async fn run(self, mut shutdown: Shutdown) {
        tokio::select! {
            biased;
            () = shutdown.wait() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        let mut failures = 0;
        loop {
            match self.registry.join(self.machine.clone(), &self.token, self.ttl).await {
                Ok(presence) => {
                    failures = 0;
                    let presence = Arc::new(presence);
                    self.tell(Some(&presence));
                    self.renew(&presence).await;
                    self.tell(None);
                    tracing::warn!(machine = %self.machine.id, "presence was lost");
                }
                Err(error) => self.report(&error),
            }
            failures += 1;
            self.clock.sleep(REJOIN.wait(failures)).await;
        }
    }

    fn tell(&self, presence: Option<&Arc<Presence>>) {
        for told in &self.told {
            told.send_replace(presence.cloned());
        }
    }

    fn report(&self, error: &RegistryError) {
        let (machine, error) = (&self.machine.id, error as &dyn std::error::Error);
        tracing::warn!(%machine, error, "cannot join the cluster");
    }

    /// Renews the presence until it is lost.
    async fn renew(&self, presence: &Presence) {
        let mut renewed = self.clock.now();
        loop {
            self.clock.sleep(self.ttl / 3).await;
            match presence.renew().await {
                Ok(()) => renewed = self.clock.now(),
                Err(error) if self.is_over(&error, renewed) => return,
                Err(error) => self.report(&error),
            }
        }
    }

    /// Whether the lease has ended: the store says so, or it was out of reach for too long.
    fn is_over(&self, error: &RegistryError, renewed: Timestamp) -> bool {
        matches!(error, RegistryError::PresenceLost { .. })
            || self.clock.now().since(renewed) >= self.ttl
    }
}
