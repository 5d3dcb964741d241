//! `fleetd --config FILE`: this machine's part of a cluster.

use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use fleet_core::Timestamp;
use fleet_http::{Guard, Listen, ListenError, Listener};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::config::{Config, ConfigError};
use super::doors::Doors;
use super::error::{Context as _, StartError};
use super::handed_over::adopted;
use super::logging::Level;
use super::reload::Source;
use super::wire_up::{MachineSetup, Running, Wiring};
use super::{identity, machine, notify};

/// How long to wait for an address that another daemon may be about to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait before looking again whether it is free.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a daemon may take to find its place in the cluster before it counts as ready without.
const JOINING: Duration = Duration::from_secs(5);

/// What is wrong with a configuration, as it is told to the person who wrote it.
pub(crate) fn explain(error: ConfigError) -> StartError {
    match error {
        ConfigError::Read { path, source } => {
            StartError::usage(format!("cannot read {}: {source}", path.display()))
        }
        error => StartError::usage(error.to_string()),
    }
}

/// Runs until a signal asks for the end, or it cannot go on. The units stay as they are.
pub(crate) async fn run(
    config: Config,
    mut source: Source,
    level: Level,
) -> Result<(), StartError> {
    for remark in &config.remarks {
        tracing::warn!("{remark}");
    }
    let (mut ends, mut hangups) = (Ends::listen()?, listen(SignalKind::hangup())?);
    let doors = Doors::open(config.doors.clone())?;
    let wiring = wiring(&config, &doors).await?;
    let machine = wiring.machines[0].machine.clone();
    let mut running = wiring.start().await?;
    // One that hangs is to be replaced before its machine counts as gone.
    let pace = notify::guard(config.agent_ttl / 2);
    let mut told = Told { pace, ..Told::default() };
    let clock = SystemClock::start();
    // A daemon that does not reach its cluster is as ready as it can be: its units run, and it
    // answers what it knows.
    let result = tokio::select! {
        () = ends.next() => Some(Ok(())),
        () = running.joined() => None,
        () = clock.sleep(JOINING) => None,
    };
    notify::ready(told.now(&running));
    let result = match result {
        Some(result) => result,
        None => loop {
            tokio::select! {
                () = ends.next() => break Ok(()),
                error = running.broken() => break Err(error),
                _ = hangups.recv() => {
                    notify::reloading();
                    told.reload = source.reload(&machine, &running, &doors, &level);
                    notify::ready(told.now(&running));
                }
                () = told.pause(&clock) => told.tell(&running, clock.now()),
            }
        },
    };
    notify::stopping();
    running.end().await;
    result
}

/// What systemd was told.
#[derive(Default)]
struct Told {
    /// How often there may be something to tell; never where nobody listens.
    pace: Option<Duration>,
    status: String,
    /// What came of the last reload, if that is worth a word.
    reload: String,
}

impl Told {
    /// Returns when there may be something to tell.
    async fn pause(&self, clock: &SystemClock) {
        match self.pace {
            Some(pace) => clock.sleep(pace).await,
            None => std::future::pending().await,
        }
    }

    /// Tells that all loops are alive, if they are, and how the daemon is, if that has changed.
    fn tell(&mut self, running: &Running, now: Timestamp) {
        match running.silent(now).as_slice() {
            [] => notify::alive(),
            silent => tracing::error!(?silent, "loops hang"),
        }
        let before = std::mem::take(&mut self.status);
        if self.now(running) != before {
            notify::status(&self.status);
        }
    }

    fn now(&mut self, running: &Running) -> &str {
        self.status = running.status();
        if !self.reload.is_empty() {
            self.status = format!("{}; {}", self.status, self.reload);
        }
        &self.status
    }
}

async fn wiring(config: &Config, doors: &Doors) -> Result<Wiring, StartError> {
    let directory = machine::directory(config);
    std::fs::create_dir_all(&directory)
        .context(|| format!("cannot make {}: choose another data_dir", directory.display()))?;
    let listeners = listeners(&config.listen, &doors.guard).await?;
    let at: Vec<Listen> = listeners.iter().map(Listener::local_listen).cloned().collect();
    let record = machine::record(config, machine::id(config)?, &at);
    let until_boot = machine::until_boot(config)?;
    let token = identity::token(&until_boot)?;
    Ok(Wiring {
        store: config.store.clone(),
        service_manager: config.service_manager.clone(),
        data_dir: config.data_dir.clone(),
        machines: vec![MachineSetup { machine: record, token, directory, until_boot }],
        listeners,
        peers: doors.peers.clone(),
        engine: !config.disable_engine,
        agent_ttl: config.agent_ttl,
        engine_ttl: config.engine_ttl,
        token_limit: config.token_limit,
        strictness: config.strictness,
    })
}

/// The sockets that systemd handed over; if it handed over none, those that are configured.
async fn listeners(listen: &[Listen], guard: &Guard) -> Result<Vec<Listener>, StartError> {
    let adopted = adopted(guard)?;
    if !adopted.is_empty() {
        return Ok(adopted);
    }
    bind(listen, guard).await
}

/// Listens on every address, or on none.
pub(crate) async fn bind(listen: &[Listen], guard: &Guard) -> Result<Vec<Listener>, StartError> {
    let clock = SystemClock::start();
    let mut listeners = Vec::new();
    for listen in listen {
        let bound = bind_once_free(listen, guard, &clock).await;
        listeners.push(bound.map_err(cannot_serve)?);
    }
    Ok(listeners)
}

/// Gives a daemon that was just killed the moment that it takes until its socket is gone.
async fn bind_once_free(
    listen: &Listen,
    guard: &Guard,
    clock: &dyn Clock,
) -> Result<Listener, ListenError> {
    let deadline = clock.now().after(PATIENCE);
    loop {
        match Listener::bind_guarded(listen, guard).await {
            Err(ListenError::InUse(_)) if clock.now() < deadline => clock.sleep(PAUSE).await,
            bound => return bound,
        }
    }
}

/// A door that stands open to other hosts is a mistake of who asked for it.
pub(super) fn cannot_serve(error: ListenError) -> StartError {
    match error {
        ListenError::NotLoopback(_) | ListenError::NoCertificate(_) | ListenError::OpenToAll(_) => {
            StartError::usage(format!(
                "cannot serve: {error}; the keys are tls_cert_file and tls_key_file, with \
             client_ca_file or token_file"
            ))
        }
        error => StartError::because("cannot serve", error),
    }
}

fn listen(kind: SignalKind) -> Result<Signal, StartError> {
    signal(kind).context(|| "cannot wait for signals".to_owned())
}

/// The signals that ask a daemon to end.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    pub(crate) fn listen() -> Result<Self, StartError> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next such signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_left_in_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = Listen::Unix(folder.path().join("s"));
        let killed = Listener::bind(&at).await.unwrap();
        let (listen, guard) = ([at.clone()], Guard::default());
        // The first look finds the address in use, for the other lets go only afterwards.
        let (bound, ()) = tokio::join!(biased; bind(&listen, &guard), async { drop(killed) });
        assert_eq!(bound.unwrap()[0].local_listen(), &at);
    }
}
