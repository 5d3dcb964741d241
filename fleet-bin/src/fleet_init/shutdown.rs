//! Shutdown of a fleet-init. Its units get a limited time to stop, and those that still run are
//! then killed.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::native::{InitSupervisor, UnitSnapshot};
use fleet_agent::{Clock, NativeManager};
use fleet_core::graph::DerivedState;
use tokio::signal::unix;
use tokio::signal::unix::{SignalKind, signal};

use crate::ui::error::CliError;

/// Time after which the log names the units that are awaited.
const LOG_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of units named in the log.
const MAX_NAMES: usize = 20;

/// Maximum time to wait until the killed processes have exited.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// Additional time for work in progress to finish after a signal.
const WORK_GRACE: Duration = Duration::from_secs(1);

/// Pause between two attempts to kill all units. One attempt is not enough: in an ordered stop, the
/// next unit begins to stop only after the previous one has stopped.
const KILL_INTERVAL: Duration = Duration::from_millis(100);

/// The signals that request the end.
pub(super) struct StopSignals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    quit: unix::Signal,
    /// A signal was received by [`run_until_signal`](Self::run_until_signal) and is still pending.
    is_pending: bool,
}

impl StopSignals {
    pub(super) fn listen() -> Result<Self, CliError> {
        let interrupt = listen(SignalKind::interrupt())?;
        let (terminate, quit) = (listen(SignalKind::terminate())?, listen(SignalKind::quit())?);
        Ok(Self { interrupt, terminate, quit, is_pending: false })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            return;
        }
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

impl StopSignals {
    /// Runs `work`, which may never finish. If a signal arrives, `work` gets one more second.
    /// Returns `None` if it has not finished by then. The signal then stays pending, so the next
    /// call of [`next`](Self::next) returns at once.
    pub(super) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = T>,
        clock: &dyn Clock,
    ) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return Some(done),
            () = self.next() => self.is_pending = true,
        }
        tokio::select! {
            done = work => Some(done),
            () = clock.sleep(WORK_GRACE) => None,
        }
    }
}

/// Handles a signal, so that it does not end this process.
pub(super) fn listen(kind: SignalKind) -> Result<unix::Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed("cannot wait for signals").because(error))
}

/// The supervisor to shut down.
pub(super) enum UnitOwner {
    Manager(Arc<NativeManager>),
    InitSupervisor(Arc<InitSupervisor>),
}

impl UnitOwner {
    async fn shutdown(&self) -> Result<(), CliError> {
        match self {
            Self::Manager(manager) => manager.shutdown().await.map_err(cannot),
            Self::InitSupervisor(supervisor) => {
                supervisor.shutdown().await.map_err(cannot)?;
                let stuck = self.names(is_stuck).await;
                if stuck.is_empty() { Ok(()) } else { Err(processes_remain(&stuck)) }
            }
        }
    }

    /// Names of the units with processes.
    async fn left(&self) -> String {
        self.names(has_processes).await
    }

    /// Names of the units that satisfy the predicate.
    async fn names(&self, are_so: fn(&UnitSnapshot) -> bool) -> String {
        let snapshot = match self {
            Self::Manager(manager) => manager.snapshot().await.map_err(cannot),
            Self::InitSupervisor(supervisor) => supervisor.snapshot().await.map_err(cannot),
        };
        let units = snapshot.map(|snapshot| snapshot.units).unwrap_or_default();
        let names: Vec<_> =
            units.iter().filter(|unit| are_so(unit)).map(|unit| unit.unit.as_str()).collect();
        match names.get(..MAX_NAMES) {
            Some(first) if names.len() > MAX_NAMES => {
                format!("{} and {} more", first.join(", "), names.len() - MAX_NAMES)
            }
            _ => names.join(", "),
        }
    }

    async fn kill_all(&self) -> Result<(), CliError> {
        match self {
            Self::Manager(manager) => manager.kill_all().await.map_err(cannot),
            Self::InitSupervisor(supervisor) => supervisor.kill_all().await.map_err(cannot),
        }
    }
}

/// Logs the awaited units once the end takes a while.
async fn log_remaining(units: &UnitOwner, clock: &dyn Clock) -> Infallible {
    clock.sleep(LOG_DELAY).await;
    let left = units.left().await;
    tracing::info!(units = left, "waiting for units to stop");
    std::future::pending().await
}

/// Whether a unit may have processes.
fn has_processes(unit: &UnitSnapshot) -> bool {
    use DerivedState::{Active, Starting, Stopping};
    is_stuck(unit) || matches!(unit.report.state, Starting | Active(_) | Stopping(_))
}

/// Whether a unit has processes that SIGKILL did not end.
fn is_stuck(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { stuck: true, .. })
}

fn processes_remain(names: &str) -> CliError {
    CliError::failed(format!("cannot stop all units: SIGKILL did not end all processes of {names}"))
}

fn cannot(error: impl Error + Send + Sync + 'static) -> CliError {
    CliError::failed("cannot stop all units").because(error)
}

/// Stops all units. Kills the units that still run when the time limit ends or another signal
/// arrives. Returns an error if some processes survive even that.
pub(super) async fn end(
    units: &UnitOwner,
    signals: &mut StopSignals,
    limit: Duration,
    clock: &dyn Clock,
) -> Result<(), CliError> {
    let mut ended = Box::pin(units.shutdown());
    let why = tokio::select! {
        ended = &mut ended => return ended,
        () = signals.next() => "second signal",
        () = clock.sleep(limit) => "time limit reached",
        never = log_remaining(units, clock) => match never {},
    };
    let left = units.left().await;
    tracing::warn!(why, units = left, "killing the remaining units");
    let deadline = clock.now().after(KILL_GRACE);
    loop {
        units.kill_all().await?;
        // Repeat, because units that stop in order follow each other.
        tokio::select! {
            ended = &mut ended => return ended,
            () = clock.sleep(KILL_INTERVAL) => {}
        }
        if clock.now() >= deadline {
            return Err(processes_remain(&units.left().await));
        }
    }
}
