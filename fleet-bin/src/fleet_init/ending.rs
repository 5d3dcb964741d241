//! The end of a fleet-init: its units end first, within a time, or are killed.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{Clock, NativeManager, InitSupervisor, UnitSnapshot};
use fleet_core::graph::DerivedState;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::fleetctl::error::CliError;

/// How long the end may take before it is told what it waits for.
const NOTICE: Duration = Duration::from_secs(1);

/// How many units that are left are named.
const MOST_NAMES: usize = 20;

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(10);

/// How long what was begun before the end may take.
const SOON: Duration = Duration::from_secs(1);

/// How long to wait before the next ones are killed.
const AGAIN: Duration = Duration::from_millis(100);

/// The signals that ask for the end.
pub(super) struct Ends {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    quit: unix::Signal,
    /// One was waited for and is still to be obeyed.
    is_owed: bool,
}

impl Ends {
    pub(super) fn listen() -> Result<Self, CliError> {
        let interrupt = listen(SignalKind::interrupt())?;
        let (terminate, quit) = (listen(SignalKind::terminate())?, listen(SignalKind::quit())?);
        Ok(Self { interrupt, terminate, quit, is_owed: false })
    }

    /// Waits for the next of them.
    pub(super) async fn next(&mut self) {
        if std::mem::take(&mut self.is_owed) {
            return;
        }
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

impl Ends {
    /// Does what may take for ever: nothing comes of it if it is not done soon after one of them,
    /// which is then still to be obeyed.
    pub(super) async fn cut<T>(
        &mut self,
        work: impl Future<Output = T>,
        clock: &dyn Clock,
    ) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return Some(done),
            () = self.next() => self.is_owed = true,
        }
        tokio::select! {
            done = work => Some(done),
            () = clock.sleep(SOON) => None,
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
    InitSupervisor(Arc<InitSupervisor>),
}

impl Grip {
    async fn shutdown(&self) -> Result<(), CliError> {
        match self {
            Self::Manager(manager) => manager.shutdown().await.map_err(cannot),
            Self::InitSupervisor(supervisor) => {
                supervisor.shutdown().await.map_err(cannot)?;
                let stuck = self.names(is_stuck).await;
                if stuck.is_empty() { Ok(()) } else { Err(are_left(&stuck)) }
            }
        }
    }

    /// The names of the units that are left.
    async fn left(&self) -> String {
        self.names(is_left).await
    }

    /// The names of the units that are so.
    async fn names(&self, are_so: fn(&UnitSnapshot) -> bool) -> String {
        let snapshot = match self {
            Self::Manager(manager) => manager.snapshot().await.map_err(cannot),
            Self::InitSupervisor(supervisor) => supervisor.snapshot().await.map_err(cannot),
        };
        let units = snapshot.map(|snapshot| snapshot.units).unwrap_or_default();
        let names: Vec<_> =
            units.iter().filter(|unit| are_so(unit)).map(|unit| unit.unit.as_str()).collect();
        match names.get(..MOST_NAMES) {
            Some(first) if names.len() > MOST_NAMES => {
                format!("{} and {} more", first.join(", "), names.len() - MOST_NAMES)
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

/// Says what is waited for, once it takes a while.
async fn tell_what_is_left(units: &Grip, clock: &dyn Clock) -> Infallible {
    clock.sleep(NOTICE).await;
    let left = units.left().await;
    tracing::info!(units = left, "waits for units to end");
    std::future::pending().await
}

/// Whether there may be processes of a unit.
fn is_left(unit: &UnitSnapshot) -> bool {
    use DerivedState::{Active, Starting, Stopping};
    is_stuck(unit) || matches!(unit.report.state, Starting | Active(_) | Stopping(_))
}

/// Whether there are processes of a unit that nothing can end.
fn is_stuck(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { stuck: true, .. })
}

fn are_left(names: &str) -> CliError {
    CliError::failed(format!("processes of units are left: {names}"))
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
        never = tell_what_is_left(units, clock) => match never {},
    };
    let left = units.left().await;
    tracing::warn!(why, units = left, "kills the units that are left");
    let deadline = clock.now().after(GRACE);
    loop {
        units.kill_all().await?;
        // Units that end in order come one after the other.
        tokio::select! {
            ended = &mut ended => return ended,
            () = clock.sleep(AGAIN) => {}
        }
        if clock.now() >= deadline {
            return Err(are_left(&units.left().await));
        }
    }
}
