//! The end of a fleet-init: its units end first, within a time, or are killed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{Clock, NativeManager, Runner};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::fleetctl::error::CliError;

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(10);

/// How long to wait before the next ones are killed.
const AGAIN: Duration = Duration::from_millis(100);

/// The signals that ask for the end.
pub(super) struct Ends {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Ends {
    pub(super) fn listen() -> Result<Self, CliError> {
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Listens to a signal, which then does not end this process.
pub(super) fn listen(kind: SignalKind) -> Result<unix::Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed("cannot wait for signals").because(error))
}

/// What has hold of the units.
pub(super) enum Grip {
    Manager(Arc<NativeManager>),
    Runner(Arc<Runner>),
}

impl Grip {
    async fn shutdown(&self) -> Result<(), CliError> {
        match self {
            Self::Manager(manager) => manager.shutdown().await.map_err(cannot),
            Self::Runner(runner) => runner.shutdown().await.map_err(cannot),
        }
    }

    async fn kill_all(&self) -> Result<(), CliError> {
        match self {
            Self::Manager(manager) => manager.kill_all().await.map_err(cannot),
            Self::Runner(runner) => runner.kill_all().await.map_err(cannot),
        }
    }
}

fn cannot(error: impl Error + Send + Sync + 'static) -> CliError {
    CliError::failed("cannot end all units").because(error)
}

/// Ends all units; what is left after the time, or at another signal, is killed.
pub(super) async fn end(
    units: &Grip,
    ends: &mut Ends,
    limit: Duration,
    clock: &dyn Clock,
) -> Result<(), CliError> {
    let mut ended = Box::pin(units.shutdown());
    let why = tokio::select! {
        ended = &mut ended => return ended,
        () = ends.next() => "it was told so again",
        () = clock.sleep(limit) => "their time is over",
    };
    tracing::warn!(why, "kills the units that are left");
    let deadline = clock.now().after(GRACE);
    loop {
        units.kill_all().await?;
        // Units that end in order come one after the other.
        tokio::select! {
            ended = &mut ended => return ended,
            () = clock.sleep(AGAIN) => {}
        }
        if clock.now() >= deadline {
            return Err(CliError::failed("processes of units are left"));
        }
    }
}
