//! `fleetd --config FILE`: runs one machine of a cluster. Ends on SIGTERM and SIGINT, and reloads
//! its configuration on SIGHUP.

use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use fleet_core::Timestamp;
use fleet_http::{AuthPolicy, ListenAddress, ListenError, Listener};
use rustix::process::geteuid;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::config::{Config, ConfigError};
use super::notify::adopt_all;
use super::offline::StorePolicy;
use super::reload::{AuthReloader, ConfigSource, certificate_warning};
use super::wire_up::{DaemonParts, MachineSetup, RunningDaemon};
use super::{Context as _, StartError, directories, identity, machine, notify};
use crate::ui::logging::Level;

/// Time to wait for a listen address in use. A daemon that was just killed may still hold it.
const BIND_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay between attempts to bind.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Maximum time to wait for the machine to join the cluster before the daemon notifies systemd that
/// it is ready. Without etcd the daemon cannot join, but it still runs units and answers requests.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Converts a configuration error.
pub(crate) fn config_error(error: ConfigError) -> StartError {
    match error {
        ConfigError::Read { path, source } => {
            StartError::usage(format!("cannot read the configuration {}: {source}", path.display()))
        }
        error => StartError::usage(error.to_string()),
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs until a shutdown signal or a failure. Leaves the units running.
pub(crate) async fn run(
    config: Config,
    mut source: ConfigSource,
    level: Level,
) -> Result<(), StartError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let (mut signals, mut hangups) = (ShutdownSignals::listen()?, listen(SignalKind::hangup())?);
    let auth = AuthReloader::open(config.auth.clone())?;
    if let Some(warning) = certificate_warning(&config) {
        tracing::warn!("{warning}");
    }
    let wiring = wiring(&config, &auth).await?;
    let machine = wiring.machines[0].machine.clone();
    let addresses = wiring.listeners.iter().map(|it| it.local_address().to_string());
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    let mut running = wiring.start().await?;
    tracing::info!(machine = %machine.id, "fleetd {VERSION} listens at {addresses}");
    let mut status = SystemdStatus::default();
    let clock = SystemClock::start();
    // A daemon that cannot reach its store is as ready as possible: its units run, and it answers
    // from its last snapshot.
    let result = tokio::select! {
        () = signals.next() => Some(Ok(())),
        () = running.joined() => None,
        () = clock.sleep(JOIN_TIMEOUT) => None,
    };
    // A hanging daemon must be restarted before its machine counts as absent.
    status.pace = notify::started(status.render(&running), config.agent_ttl / 2);
    let result = match result {
        Some(result) => result,
        None => loop {
            tokio::select! {
                () = signals.next() => break Ok(()),
                error = running.wait_failed() => break Err(error),
                _ = hangups.recv() => {
                    notify::reloading();
                    status.reload = source.reload(&machine, &running, &auth, &level);
                    notify::ready(status.render(&running));
                }
                () = status.pause(&clock) => status.update(&running, clock.now()),
            }
        },
    };
    notify::stopping();
    running.end().await;
    result
}

/// Status last sent to systemd.
#[derive(Default)]
struct SystemdStatus {
    /// Interval of updates; `None` without systemd.
    pace: Option<Duration>,
    status: String,
    /// Result of the last reload; empty if it needs no attention.
    reload: String,
}

impl SystemdStatus {
    /// Waits for the next update.
    async fn pause(&self, clock: &SystemClock) {
        match self.pace {
            Some(pace) => clock.sleep(pace).await,
            None => std::future::pending().await,
        }
    }

    /// Pings systemd's watchdog unless a loop is stalled. Also sends the status text if it has
    /// changed.
    fn update(&mut self, running: &RunningDaemon, now: Timestamp) {
        match running.stalled(now).as_slice() {
            [] => notify::ping_watchdog(),
            stalled => tracing::error!(
                ?stalled,
                "tasks of fleetd are stalled: the watchdog of systemd might restart fleetd"
            ),
        }
        let before = std::mem::take(&mut self.status);
        if self.render(running) != before {
            notify::status(&self.status);
        }
    }

    fn render(&mut self, running: &RunningDaemon) -> &str {
        self.status = running.status();
        if !self.reload.is_empty() {
            self.status = format!("{}; {}", self.status, self.reload);
        }
        &self.status
    }
}

async fn wiring(config: &Config, auth: &AuthReloader) -> Result<DaemonParts, StartError> {
    directories::prepare_data_dir(&config.data_dir, directories::DATA_DIR_MODE)?;
    let directory = machine::directory(config);
    directories::create_private(&directory)?;
    let listeners = listeners(config, &auth.policy).await?;
    let at: Vec<ListenAddress> = listeners.iter().map(Listener::local_address).cloned().collect();
    let record = machine::record(config, machine::id(config)?, &at);
    let runtime_dir = machine::runtime_dir(config)?;
    let token = identity::token(&runtime_dir)?;
    let store_policy = StorePolicy::of(config);
    Ok(DaemonParts {
        store: config.store.clone(),
        service_manager: config.service_manager.clone(),
        data_dir: config.data_dir.clone(),
        machines: vec![MachineSetup {
            machine: record,
            token,
            directory,
            runtime_dir,
            store_policy,
        }],
        listeners,
        peers: auth.peers.clone(),
        engine: !config.disable_engine,
        agent_ttl: config.agent_ttl,
        engine_ttl: config.engine_ttl,
        token_limit: config.token_limit,
        strictness: config.strictness,
    })
}

/// Returns the sockets passed by systemd, or otherwise listens on the configured addresses.
async fn listeners(config: &Config, policy: &AuthPolicy) -> Result<Vec<Listener>, StartError> {
    let adopted = adopt_all(policy)?;
    if adopted.is_empty() {
        return bind(&config.listen, policy).await;
    }
    let at = adopted.iter().map(Listener::local_address);
    let checked = config.auth.refuse_open_loopback(at, geteuid().is_root());
    checked.map_err(|problem| {
        StartError::usage(format!("cannot adopt the sockets passed by systemd: {problem}"))
    })?;
    Ok(adopted)
}

/// Listens on all addresses, or fails.
pub(crate) async fn bind(
    listen: &[ListenAddress],
    policy: &AuthPolicy,
) -> Result<Vec<Listener>, StartError> {
    let clock = SystemClock::start();
    let mut listeners = Vec::new();
    for listen in listen {
        let bound = bind_with_retry(listen, policy, &clock).await;
        listeners.push(bound.map_err(cannot_serve)?);
    }
    Ok(listeners)
}

/// Listens on an address. If the address is in use, tries again for up to [`BIND_TIMEOUT`], because
/// a daemon that was just killed may still hold it.
async fn bind_with_retry(
    listen: &ListenAddress,
    policy: &AuthPolicy,
    clock: &dyn Clock,
) -> Result<Listener, ListenError> {
    let deadline = clock.now().after(BIND_TIMEOUT);
    loop {
        match Listener::bind_with_auth(listen, policy).await {
            Err(ListenError::InUse(_)) if clock.now() < deadline => clock.sleep(RETRY_DELAY).await,
            bound => return bound,
        }
    }
}

/// Converts a listen error. An unprotected public port is a configuration error.
pub(super) fn cannot_serve(error: ListenError) -> StartError {
    match error {
        ListenError::NotLoopback(_) | ListenError::NoCertificate(_) | ListenError::OpenToAll(_) => {
            StartError::usage(format!(
                "cannot serve the API: {error}; the keys are tls_cert_file and tls_key_file, with \
             client_ca_file or token_file"
            ))
        }
        error => StartError::because("cannot serve the API", error),
    }
}

fn listen(kind: SignalKind) -> Result<Signal, StartError> {
    signal(kind).context(|| "cannot listen for signals".to_owned())
}

/// Signals that shut the daemon down.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    pub(crate) fn listen() -> Result<Self, StartError> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next shutdown signal.
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
    async fn bind_waits_for_address_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let at = ListenAddress::Unix(folder.path().join("s"));
        let killed = Listener::bind(&at).await.unwrap();
        let (listen, policy) = ([at.clone()], AuthPolicy::default());
        // The first attempt finds the address in use, because it is released only afterwards.
        let (bound, ()) = tokio::join!(biased; bind(&listen, &policy), async { drop(killed) });
        assert_eq!(bound.unwrap()[0].local_address(), &at);
    }
}
