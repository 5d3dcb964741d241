//! Shutdown signal for loops.

use tokio::sync::watch;

/// Ends all loops that hold its [`Shutdown`]. Dropping it does so too.
#[derive(Debug)]
pub struct ShutdownTrigger {
    sender: watch::Sender<bool>,
}

/// Receiving side of a [`ShutdownTrigger`].
#[derive(Debug, Clone)]
pub struct Shutdown {
    receiver: watch::Receiver<bool>,
}

impl ShutdownTrigger {
    /// Creates a trigger and its receiver.
    #[must_use]
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Self { sender }, Shutdown { receiver })
    }

    /// Signals all loops to end.
    pub fn fire(&self) {
        self.sender.send_replace(true);
    }
}

impl Shutdown {
    /// Returns when the loop should end.
    pub async fn wait(&mut self) {
        // An error means that the trigger was dropped, which has the same meaning.
        let _asked = self.receiver.wait_for(|fired| *fired).await.is_ok();
    }
}
