//! Watches whether the mirror comes to show what this machine has written.
//!
//! All that an agent does follows from its mirror, and a mirror whose task hangs looks like one of
//! a cluster at rest. So each write that the store has taken is to be seen in it, as long as it
//! says that it follows the store.

use std::sync::Arc;

use fleet_core::Revision;
use fleet_store::{Mirror, Presence};
use tokio::sync::watch;

use crate::{Beat, Shutdown};

/// Has a turn for each write, which ends when the mirror shows it.
pub(crate) struct EchoWatch {
    pub(crate) mirror: Mirror,
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    /// Revisions of this machine's own writes.
    pub(crate) writes: watch::Receiver<Revision>,
    pub(crate) beat: Beat,
}

impl EchoWatch {
    /// Runs until told to end.
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
                () = self.beat.turn(shown(&self.mirror, written)) => {}
            }
        }
    }
}

/// Returns when the mirror shows a write, or says that it does not know what the store holds.
async fn shown(mirror: &Mirror, written: Revision) {
    let mut progress = mirror.subscribe();
    let over = progress.wait_for(|now| now.revision >= written || !now.is_current);
    // An error means that the mirror has ended, which its readers notice.
    drop(over.await);
}
