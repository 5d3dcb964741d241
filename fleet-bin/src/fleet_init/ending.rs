//! The end of a fleet-init: its units end first, within a time, or are killed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{Clock, NativeManager, Runner, ServiceManager as _};
use rustix::process::{Pid, Signal, kill_process_group};
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

    /// The main processes of units.
    async fn processes(&self) -> Result<Vec<u32>, CliError> {
        match self {
            Self::Manager(manager) => {
                let units = manager.list().await.map_err(cannot)?;
                Ok(units.into_iter().filter_map(|unit| unit.state.main_pid).collect())
            }
            Self::Runner(runner) => {
                let units = runner.snapshot().await.map_err(cannot)?.units;
                Ok(units.into_iter().filter_map(|unit| unit.main_pid).collect())
            }
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
        kill(&units.processes().await?);
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

/// Kills processes and their groups: each main process begins one.
fn kill(processes: &[u32]) {
    let pid = |pid: &u32| i32::try_from(*pid).ok().and_then(Pid::from_raw);
    for pid in processes.iter().filter_map(pid) {
        // One that is gone already has nothing to be killed.
        let _gone = kill_process_group(pid, Signal::KILL);
    }
}
