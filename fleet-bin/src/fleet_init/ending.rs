//! The end of a fleet-init: its units end first, within a time, or are killed.

use std::time::Duration;

use fleet_agent::{Clock, NativeManager, ServiceManager as _};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::fleetctl::error::CliError;

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(10);

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

/// Ends all units; what is left after the time, or at another signal, is killed.
pub(super) async fn end(
    manager: &NativeManager,
    ends: &mut Ends,
    limit: Duration,
    clock: &dyn Clock,
) -> Result<(), CliError> {
    let mut ended = Box::pin(manager.shutdown());
    let cannot = |error| CliError::failed("cannot end all units").because(error);
    let why = tokio::select! {
        ended = &mut ended => return ended.map_err(cannot),
        () = ends.next() => "it was told so again",
        () = clock.sleep(limit) => "their time is over",
    };
    tracing::warn!(why, "kills the units that are left");
    for unit in manager.list().await.map_err(cannot)? {
        let pid = unit.state.main_pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // Each begins a process group; one that is gone already has nothing to be killed.
            let _gone = kill_process_group(pid, Signal::KILL);
        }
    }
    tokio::select! {
        ended = ended => ended.map_err(cannot),
        () = clock.sleep(GRACE) => Err(CliError::failed("processes of units are left")),
    }
}
