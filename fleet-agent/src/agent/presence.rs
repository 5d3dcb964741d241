//! Keeps a machine present in the cluster, and checks that the mirror shows this machine's writes.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{MachineId, Revision, Timestamp};
use fleet_store::registry::{MachineRecord, Presence};
use fleet_store::{Mirror, Registry, RegistryError, StoreError};
use tokio::sync::watch;

use super::exclusivity::PresenceWindow;
use super::fence;
use super::state::AgentState;
use crate::backoff::BackoffLimits;
use crate::watchdog::Heartbeat;
use crate::{Clock, Shutdown};

/// Wait before the machine joins again.
const REJOIN: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(500), max: Duration::from_secs(10) };

/// Joins the cluster and renews the machine's presence. This is a separate task, so that no other
/// work can delay the renewals.
pub(crate) struct PresenceTask {
    pub(crate) registry: Registry,
    pub(crate) mirror: Mirror,
    /// Description of the machine; it may change.
    pub(crate) machine: watch::Receiver<MachineRecord>,
    pub(crate) token: String,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Channels to the receivers of the presence, one for each receiver. If several receivers
    /// shared a channel, they would wake in random order, and simulations could not be replayed.
    pub(crate) subscribers: Vec<watch::Sender<Option<Arc<Presence>>>>,
    /// The presence window; `None` before this daemon has joined.
    pub(crate) window: watch::Sender<Option<PresenceWindow>>,
    /// The error of the last attempt to join; `None` while the machine is present.
    pub(crate) problem: watch::Sender<Option<String>>,
    pub(crate) state: Arc<dyn AgentState>,
    pub(crate) heartbeat: Heartbeat,
}

impl PresenceTask {
    /// Runs until shutdown. The machine then stays present until its lease ends, so a daemon that
    /// restarts in time finds everything unchanged.
    pub(crate) async fn run(self, mut shutdown: Shutdown) {
        tokio::select! {
            biased;
            () = shutdown.wait() => {}
            () = self.stay_present() => {}
        }
    }

    async fn stay_present(&self) {
        let mut failures = 0;
        loop {
            // A machine that is present in another store would get units that it must not start.
            if self.mirror.wait_expected_store().await.is_err() {
                return std::future::pending().await; // the daemon is shutting down
            }
            let sent = self.clock.now();
            let mut machine = self.machine.clone();
            let record = machine.borrow_and_update().clone();
            let joining = self.registry.join(record, &self.token, self.ttl);
            match self.heartbeat.busy(joining).await {
                Ok(presence) => {
                    failures = 0;
                    self.problem.send_replace(None);
                    let presence = Arc::new(presence);
                    self.extend_window(&presence, sent).await;
                    self.notify(Some(&presence));
                    tokio::select! {
                        biased;
                        () = self.renew(&presence) => {}
                        () = self.publish_changes(&presence, machine) => {}
                    }
                    self.notify(None);
                    let machine = self.id();
                    tracing::warn!(
                        %machine,
                        "this machine's lease has ended: joining the cluster again"
                    );
                }
                Err(error) => {
                    self.log_failure(&error);
                    self.problem.send_replace(Some(with_causes(&error)));
                    self.reset_window(&error).await;
                }
            }
            failures += 1;
            self.clock.sleep(REJOIN.wait(failures)).await;
        }
    }

    fn notify(&self, presence: Option<&Arc<Presence>>) {
        for subscriber in &self.subscribers {
            subscriber.send_replace(presence.cloned());
        }
    }

    fn log_failure(&self, error: &RegistryError) {
        let (machine, error) = (self.id(), error as &dyn std::error::Error);
        tracing::warn!(%machine, error, "cannot join the cluster: trying again");
    }

    fn id(&self) -> MachineId {
        self.machine.borrow().id.clone()
    }

    /// Publishes the machine's description whenever it changes, until the presence is lost.
    async fn publish_changes(
        &self,
        presence: &Presence,
        mut machine: watch::Receiver<MachineRecord>,
    ) {
        while machine.changed().await.is_ok() {
            let mut failures = 0;
            loop {
                let record = machine.borrow_and_update().clone();
                match self.heartbeat.busy(presence.update_machine(record)).await {
                    Ok(_) => break,
                    Err(RegistryError::PresenceLost { .. }) => return,
                    Err(error) => self.log_failure(&error),
                }
                failures += 1;
                self.clock.sleep(REJOIN.wait(failures)).await;
            }
        }
        std::future::pending::<()>().await; // no sender is left to change it
    }

    /// Renews the presence until it is lost.
    async fn renew(&self, presence: &Presence) {
        let mut renewed = self.clock.now();
        loop {
            self.clock.sleep(self.ttl / 3).await;
            let sent = self.clock.now();
            match self.heartbeat.busy(presence.renew()).await {
                Ok(()) => {
                    renewed = self.clock.now();
                    self.extend_window(presence, sent).await;
                }
                Err(error) if self.is_over(&error, renewed) => return,
                Err(error) => self.log_failure(&error),
            }
        }
    }

    /// Moves the fence to one `ttl` after the renewal was sent. The store extends the lease by
    /// `ttl` when it receives the renewal, which is later. So the lease never ends before the
    /// fence.
    async fn extend_window(&self, presence: &Presence, sent: Timestamp) {
        let until = sent.after(self.ttl);
        self.window.send_replace(Some(PresenceWindow { until, joined: presence.joined() }));
        self.heartbeat.busy(self.store_fence(until)).await;
    }

    async fn store_fence(&self, until: Timestamp) {
        fence::write_fence(&*self.state, &self.id(), &*self.clock, until).await;
    }

    /// If `error` leaves the outcome of a join unknown, moves the fence to the current time, so
    /// that units with `OnPartition=stop` stop. The join may have replaced the presence of an
    /// earlier daemon, on which the stored fence is based, and the new presence may already have
    /// ended.
    async fn reset_window(&self, error: &RegistryError) {
        if matches!(error, RegistryError::Store(StoreError::Unknown(_))) {
            let until = self.clock.now();
            self.window.send_replace(Some(PresenceWindow { until, joined: Revision::ZERO }));
            self.store_fence(until).await;
        }
    }

    /// Returns whether the lease has ended, either because the store reports that or because no
    /// renewal has succeeded for `ttl`.
    fn is_over(&self, error: &RegistryError, renewed: Timestamp) -> bool {
        matches!(error, RegistryError::PresenceLost { .. })
            || self.clock.now().since(renewed) >= self.ttl
    }
}

/// Formats an error with its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Task that is busy from each write until the mirror shows the write. So the watchdog detects a
/// mirror that hangs.
///
/// An agent acts only on the content of its mirror. If the mirror's task hangs, the mirror looks
/// the same as in a cluster without changes. To detect that, this check waits for each accepted
/// write to appear in the mirror. It stops waiting if the mirror reports that it is not current.
pub(crate) struct WriteVisibilityCheck {
    pub(crate) mirror: Mirror,
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    /// Revisions of this machine's writes.
    pub(crate) writes: watch::Receiver<Revision>,
    pub(crate) heartbeat: Heartbeat,
}

impl WriteVisibilityCheck {
    /// Runs until shutdown.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        loop {
            // In a fixed order, so that simulated clusters can be replayed.
            let written = tokio::select! {
                biased;
                () = shutdown.wait() => return,
                Ok(()) = self.presence.changed() => {
                    let presence = self.presence.borrow_and_update();
                    presence.as_ref().map(|presence| presence.joined())
                }
                Ok(()) = self.writes.changed() => Some(*self.writes.borrow_and_update()),
                else => return,
            };
            let Some(written) = written else { continue };
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                () = self.heartbeat.busy(wait_visible(&self.mirror, written)) => {}
            }
        }
    }
}

/// Returns when the mirror shows the write, or is no longer current.
async fn wait_visible(mirror: &Mirror, written: Revision) {
    let mut progress = mirror.subscribe();
    let over = progress.wait_for(|now| now.revision >= written || !now.is_current);
    // An error means that the mirror has ended, which its readers notice.
    drop(over.await);
}
