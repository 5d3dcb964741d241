//! Telling loops to end.

use tokio::sync::watch;

/// Ends all loops that hold its [`Shutdown`]; dropping it does so too.
#[derive(Debug)]
pub struct ShutdownTrigger {
    sender: watch::Sender<bool>,
}

/// A loop's end of a [`ShutdownTrigger`].
#[derive(Debug, Clone)]
pub struct Shutdown {
    receiver: watch::Receiver<bool>,
}

impl ShutdownTrigger {
    /// A trigger and what listens to it.
    #[must_use]
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Self { sender }, Shutdown { receiver })
    }

    /// Tells all loops to end.
    pub fn fire(&self) {
        self.sender.send_replace(true);
    }
}

impl Shutdown {
    /// Returns when the loop should end.
    pub async fn wait(&mut self) {
        // An error means that the trigger is gone, which asks for the same.
        let _asked = self.receiver.wait_for(|fired| *fired).await.is_ok();
    }
}
