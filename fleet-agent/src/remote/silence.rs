//! Tells that the other process is there and does nothing, as one that is stopped does.
//!
//! What is asked may rightly take long, as a stop does, so it is not by the answers that this is
//! told: who says nothing for a while, though somebody waits, is asked something that is answered
//! at once. Where nobody waits nothing is asked, and no time is measured.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::asks::{Ask, OfUnits};
use super::link::Link;
use crate::Clock;

/// How long the other process may say nothing until it is asked whether it is there, and how long
/// then.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Silence {
    clock: Arc<dyn Clock>,
    /// How many wait for an answer.
    waiting: watch::Sender<usize>,
}

/// Somebody waits for an answer, until this is dropped.
pub(super) struct Waiting<'a>(&'a watch::Sender<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Silence {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, waiting: watch::Sender::new(0) }
    }

    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        Waiting(&self.waiting)
    }

    /// Returns when the other process has said nothing for too long, though it was asked.
    pub(super) async fn lasts(&self, link: &Link) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // The sender is our own, and there.
            drop(waiting.wait_for(|&waiting| waiting > 0).await);
            let heard = link.heard();
            self.clock.sleep(LIMIT).await;
            if link.heard() != heard || *waiting.borrow() == 0 {
                continue;
            }
            // Whatever the answer is: an earlier version does not understand it. Where no more can
            // be asked, there was time enough to answer what was.
            let _asked = link.ask(&OfUnits { units: Ask::Ping });
            self.clock.sleep(LIMIT).await;
            if link.heard() == heard {
                return;
            }
        }
    }
}
