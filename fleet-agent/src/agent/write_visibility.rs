//! Checks that the mirror eventually shows this machine's writes.
//!
//! An agent acts only on the content of its mirror. If the mirror's task hangs, the mirror looks
//! the same as in a cluster without changes. To detect that, this check waits for each accepted
//! write to appear in the mirror. It stops waiting if the mirror reports that it is not current.

use std::sync::Arc;

use fleet_core::Revision;
use fleet_store::{Mirror, Presence};
use tokio::sync::watch;

use crate::{Heartbeat, Shutdown};

/// Task that is busy from each write until the mirror shows the write. So the watchdog detects a
/// mirror that hangs.
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
