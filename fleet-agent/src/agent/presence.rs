//! Keeps a machine present in the cluster.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{MachineId, Revision, Timestamp};
use fleet_store::{MachineRecord, Presence, Registry, RegistryError, StoreError};
use tokio::sync::watch;

use super::fence;
use super::gate::Standing;
use super::notes::Notes;
use crate::backoff::Pace;
use crate::{Beat, Clock, Shutdown};

/// The wait before the machine's place is claimed again.
const REJOIN: Pace = Pace { first: Duration::from_millis(500), longest: Duration::from_secs(10) };

/// Claims the machine's place in the cluster, and renews the claim in a task of its own, so that no
/// other work can delay it.
pub(crate) struct PresenceKeeper {
    pub(crate) registry: Registry,
    /// What the machine says of itself; it may change.
    pub(crate) machine: watch::Receiver<MachineRecord>,
    pub(crate) token: String,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Who is told of it, each by a signal of its own: in which order several that wait for one
    /// signal wake is chance, and a simulation could not be replayed.
    pub(crate) told: Vec<watch::Sender<Option<Arc<Presence>>>>,
    /// Until when the machine is certainly present; nothing before this daemon was.
    pub(crate) standing: watch::Sender<Option<Standing>>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) beat: Beat,
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
            let sent = self.clock.now();
            let mut machine = self.machine.clone();
            let record = machine.borrow_and_update().clone();
            let joining = self.registry.join(record, &self.token, self.ttl);
            match self.beat.turn(joining).await {
                Ok(presence) => {
                    failures = 0;
                    let presence = Arc::new(presence);
                    self.stand(&presence, sent).await;
                    self.tell(Some(&presence));
                    tokio::select! {
                        biased;
                        () = self.renew(&presence) => {}
                        () = self.tell_changes(&presence, machine) => {}
                    }
                    self.tell(None);
                    tracing::warn!(machine = %self.id(), "presence was lost");
                }
                Err(error) => {
                    self.report(&error);
                    self.doubt(&error).await;
                }
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
        let (machine, error) = (self.id(), error as &dyn std::error::Error);
        tracing::warn!(%machine, error, "cannot join the cluster");
    }

    fn id(&self) -> MachineId {
        self.machine.borrow().id.clone()
    }

    /// Publishes what the machine says of itself whenever that changes, until the presence is lost.
    async fn tell_changes(&self, presence: &Presence, mut machine: watch::Receiver<MachineRecord>) {
        while machine.changed().await.is_ok() {
            let mut failures = 0;
            loop {
                let record = machine.borrow_and_update().clone();
                match self.beat.turn(presence.update_machine(record)).await {
                    Ok(_) => break,
                    Err(RegistryError::PresenceLost { .. }) => return,
                    Err(error) => self.report(&error),
                }
                failures += 1;
                self.clock.sleep(REJOIN.wait(failures)).await;
            }
        }
        std::future::pending::<()>().await; // nobody can change it any more
    }

    /// Renews the presence until it is lost.
    async fn renew(&self, presence: &Presence) {
        let mut renewed = self.clock.now();
        loop {
            self.clock.sleep(self.ttl / 3).await;
            let sent = self.clock.now();
            match self.beat.turn(presence.renew()).await {
                Ok(()) => {
                    renewed = self.clock.now();
                    self.stand(presence, sent).await;
                }
                Err(error) if self.is_over(&error, renewed) => return,
                Err(error) => self.report(&error),
            }
        }
    }

    /// Moves the fence: the lease begins again when the store has what was sent, so it lasts for
    /// its whole time from when that was sent, at least.
    async fn stand(&self, presence: &Presence, sent: Timestamp) {
        let until = sent.after(self.ttl);
        self.standing.send_replace(Some(Standing { until, joined: presence.joined() }));
        self.beat.turn(self.note(until)).await;
    }

    async fn note(&self, until: Timestamp) {
        fence::note(&*self.notes, &self.id(), &*self.clock, until).await;
    }

    /// A claim of which nobody knows whether it was made may have taken the place of the one of an
    /// earlier daemon, and be gone by now.
    async fn doubt(&self, error: &RegistryError) {
        if matches!(error, RegistryError::Store(StoreError::Unknown(_))) {
            let until = self.clock.now();
            self.standing.send_replace(Some(Standing { until, joined: Revision::ZERO }));
            self.note(until).await;
        }
    }

    /// Whether the lease has ended: the store says so, or it was out of reach for too long.
    fn is_over(&self, error: &RegistryError, renewed: Timestamp) -> bool {
        matches!(error, RegistryError::PresenceLost { .. })
            || self.clock.now().since(renewed) >= self.ttl
    }
}
