//! `fleetd --config FILE`: this machine's part of a cluster.

use std::path::Path;
use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use fleet_http::{Listen, ListenError, Listener};
use fleet_store::MachineRecord;
use listenfd::ListenFd;
use tokio::signal::unix::{SignalKind, signal};

use super::config::{self, Config, ConfigError, Low};
use super::error::{Context as _, StartError};
use super::identity;
use super::wire_up::{MachineSetup, Wiring};

/// How long to wait for an address that another daemon may be about to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait before looking again whether it is free.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads and checks the configuration.
pub(crate) fn configure(file: Option<&Path>, flags: Low) -> Result<Config, StartError> {
    let environment = |name: &str| std::env::var(name).ok();
    config::load(file, &environment, flags).map_err(|error| match error {
        ConfigError::Read { path, source } => {
            StartError::usage(format!("cannot read {}: {source}", path.display()))
        }
        error => StartError::usage(error.to_string()),
    })
}

/// Runs until a signal asks for the end, or it cannot go on. The units stay as they are.
pub(crate) async fn run(config: Config) -> Result<(), StartError> {
    for remark in &config.remarks {
        tracing::warn!("{remark}");
    }
    let mut ends = Ends::listen()?;
    let mut running = wiring(&config).await?.start().await?;
    tell_ready();
    let result = tokio::select! {
        () = ends.next() => Ok(()),
        error = running.broken() => Err(error),
    };
    running.end().await;
    result
}

async fn wiring(config: &Config) -> Result<Wiring, StartError> {
    let directory = config.data_dir.join("machine");
    std::fs::create_dir_all(&directory)
        .context(|| format!("cannot make {}: choose another data_dir", directory.display()))?;
    let id = match &config.machine_id {
        Some(id) => id.clone(),
        None => identity::of_this_machine(&directory)?,
    };
    let machine = MachineRecord {
        address: config.public_ip,
        metadata: config.metadata.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..MachineRecord::new(id)
    };
    let token = identity::token(&directory)?;
    Ok(Wiring {
        store: config.store.clone(),
        service_manager: config.service_manager.clone(),
        data_dir: config.data_dir.clone(),
        machines: vec![MachineSetup { machine, token, directory }],
        listeners: listeners(&config.listen).await?,
        engine: !config.disable_engine,
        agent_ttl: config.agent_ttl,
        engine_ttl: config.engine_ttl,
        token_limit: config.token_limit,
        strictness: config.strictness,
    })
}

/// The sockets that systemd handed over; if it handed over none, those that are configured.
async fn listeners(listen: &[Listen]) -> Result<Vec<Listener>, StartError> {
    let adopted = adopted()?;
    if !adopted.is_empty() {
        return Ok(adopted);
    }
    bind(listen).await
}

/// Listens on every address, or on none.
pub(crate) async fn bind(listen: &[Listen]) -> Result<Vec<Listener>, StartError> {
    let clock = SystemClock::start();
    let mut listeners = Vec::new();
    for listen in listen {
        let bound = bind_once_free(listen, &clock).await;
        listeners.push(bound.context(|| "cannot serve".to_owned())?);
    }
    Ok(listeners)
}

/// Gives a daemon that was just killed the moment that it takes until its socket is gone.
async fn bind_once_free(listen: &Listen, clock: &dyn Clock) -> Result<Listener, ListenError> {
    let deadline = clock.now().after(PATIENCE);
    loop {
        match Listener::bind(listen).await {
            Err(ListenError::InUse(_)) if clock.now() < deadline => clock.sleep(PAUSE).await,
            bound => return bound,
        }
    }
}

fn adopted() -> Result<Vec<Listener>, StartError> {
    let mut handed_over = ListenFd::from_env();
    let what = || "cannot adopt the sockets that were handed over".to_owned();
    let mut listeners = Vec::new();
    for index in 0..handed_over.len() {
        // A socket is of one kind or the other; taking it as the wrong one leaves it in place.
        let listener = match handed_over.take_unix_listener(index) {
            Ok(Some(unix)) => Listener::from_std_unix(unix).context(what)?,
            _ => match handed_over.take_tcp_listener(index).context(what)? {
                Some(tcp) => Listener::from_std_tcp(tcp).context(what)?,
                None => continue,
            },
        };
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Tells systemd that the daemon is ready; elsewhere nobody listens.
fn tell_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell systemd that the daemon is ready");
    }
}

/// The signals that ask a daemon to end.
pub(crate) struct Ends {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Ends {
    pub(crate) fn listen() -> Result<Self, StartError> {
        let listen = |kind| signal(kind).context(|| "cannot wait for signals".to_owned());
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
        let listen = [at.clone()];
        // The first look finds the address in use, for the other lets go only afterwards.
        let (bound, ()) = tokio::join!(biased; bind(&listen), async { drop(killed) });
        assert_eq!(bound.unwrap()[0].local_listen(), &at);
    }
}
