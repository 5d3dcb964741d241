//! Detects a peer that is connected but does nothing, for example because it is stopped.
//!
//! A call may take long, for example a stop. So a late response does not prove that the peer hangs.
//! Therefore a ping is sent if no frame arrives for a while although a call waits. A working peer
//! responds to the ping at once. As long as no call waits, no ping is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::connection::Connection;
use super::protocol::{Request, ServiceManagerRequest};
use crate::Clock;

/// While a call waits: time without a received frame after which a ping is sent. If no frame
/// arrives for this time after the ping either, the peer has timed out.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Keepalive {
    clock: Arc<dyn Clock>,
    /// Number of calls that wait for a response.
    waiting: watch::Sender<usize>,
}

/// A call that waits for a response, until this is dropped.
pub(crate) struct WaitGuard<'a>(&'a watch::Sender<usize>);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Keepalive {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, waiting: watch::Sender::new(0) }
    }

    pub(crate) fn wait(&self) -> WaitGuard<'_> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        WaitGuard(&self.waiting)
    }

    /// Returns when the peer has been silent for too long, despite a ping.
    pub(crate) async fn timed_out(&self, connection: &Connection) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // The sender is a field of this struct, so it exists.
            drop(waiting.wait_for(|&waiting| waiting > 0).await);
            let received = connection.received();
            self.clock.sleep(LIMIT).await;
            if connection.received() != received || *waiting.borrow() == 0 {
                continue;
            }
            // Any response will do: an earlier version does not know pings. If the ping cannot be
            // sent because too many requests are pending, those should have been answered.
            let _asked = connection.request(&ServiceManagerRequest { units: Request::Ping });
            self.clock.sleep(LIMIT).await;
            if connection.received() == received {
                return;
            }
        }
    }
}
