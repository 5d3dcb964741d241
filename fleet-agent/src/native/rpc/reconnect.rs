//! Keeps the connection: reconnects when it is lost, and forwards change notifications.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_unitfile::UnitName;
use serde_json::Value;

use super::connection::{Connection, ConnectionError, RequestError, Response};
use super::keepalive::Keepalive;
use super::manager::RemoteConfig;
use super::protocol::{ChangedUnits, Request, ServiceManagerRequest};
use crate::backoff::BackoffLimits;
use crate::{ChangeReceiver, ChangeSender, Clock};

/// Backoff between connection attempts.
const RECONNECT: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(50), max: Duration::from_secs(5) };

/// How long the connection and the first response may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the other process can be reached.
pub(crate) enum ConnectionState {
    Up(Arc<Connection>),
    /// The reason why it cannot.
    Away(String),
}

pub(crate) struct Reconnector {
    socket: PathBuf,
    program: String,
    /// Whether the units are only read, and never changed.
    read_only: bool,
    clock: Arc<dyn Clock>,
    state: Mutex<ConnectionState>,
    pub(crate) keepalive: Keepalive,
    feed: ChangeSender,
    /// Units that the other process was last known to have.
    known: Mutex<BTreeSet<UnitName>>,
}

impl Reconnector {
    pub(crate) fn new(config: RemoteConfig) -> Self {
        let RemoteConfig { socket, program, clock, directory } = config;
        let state = Mutex::new(ConnectionState::Away("not connected yet".to_owned()));
        let (feed, known) = (ChangeSender::default(), Mutex::default());
        let (read_only, keepalive) = (directory.is_none(), Keepalive::new(Arc::clone(&clock)));
        Self { socket, program, read_only, clock, state, keepalive, feed, known }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<UnitName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes(&self) -> ChangeReceiver {
        self.feed.subscribe()
    }

    /// Connects, and reads the first list of units.
    ///
    /// # Errors
    ///
    /// A description of the failure, for people.
    pub(crate) async fn connect(&self) -> Result<(Arc<Connection>, Response), String> {
        let attempt = async {
            let connection = match self.read_only {
                true => Connection::connect_to_any_user(&self.socket, &self.program).await,
                false => Connection::connect(&self.socket, &self.program).await,
            };
            let connection = connection.map_err(|error| chain(&error))?;
            let mut watch = connection
                .request(&ServiceManagerRequest { units: Request::Watch })
                .map_err(message_of)?;
            let changed = watch.next().await.map_err(message_of)?;
            self.notify(changed.unwrap_or_default());
            Ok::<_, String>((Arc::new(connection), watch))
        };
        let (connection, watch) = tokio::select! {
            connected = attempt => connected?,
            () = self.clock.sleep(CONNECT_TIMEOUT) => {
                return Err(format!("{} does not respond", self.socket.display()));
            }
        };
        *self.state() = ConnectionState::Up(Arc::clone(&connection));
        Ok((connection, watch))
    }

    /// Forwards change notifications, and reconnects whenever the connection is lost.
    pub(crate) async fn run(self: Arc<Self>, connection: Arc<Connection>, watch: Response) {
        let mut connected = Some((connection, watch));
        let mut failures = 0;
        loop {
            if let Some((connection, watch)) = connected.take() {
                let why = self.follow(&connection, watch).await;
                drop(connection); // the state holds a clone of it
                let socket = self.socket.display();
                tracing::warn!(
                    %socket,
                    why,
                    "lost the connection to the service manager: connecting again"
                );
                *self.state() = ConnectionState::Away(why);
                self.known().iter().for_each(|unit| self.feed.report(unit));
                failures = 0;
            }
            failures += 1;
            self.clock.sleep(RECONNECT.wait(failures)).await;
            // Units that it had and no longer has have changed too.
            let before = std::mem::take(&mut *self.known());
            match self.connect().await {
                Ok(both) => {
                    let socket = self.socket.display();
                    tracing::info!(%socket, "connected to the service manager again");
                    connected = Some(both);
                    before.iter().for_each(|unit| self.feed.report(unit));
                }
                Err(why) => {
                    self.known().extend(before);
                    *self.state() = ConnectionState::Away(why);
                }
            }
        }
    }

    /// Forwards change notifications until the connection is lost; returns the reason.
    async fn follow(&self, connection: &Connection, mut watch: Response) -> String {
        let silent = self.keepalive.timed_out(connection);
        tokio::pin!(silent);
        loop {
            let changed = tokio::select! {
                changed = watch.next() => changed,
                () = &mut silent => {
                    let why = "it does not respond: its process may be stopped";
                    connection.abort(why);
                    return why.to_owned();
                }
            };
            match changed {
                Ok(Some(changed)) => self.notify(changed),
                Ok(None) => return "it no longer reports changes of units".to_owned(),
                Err(error) => return message_of(error),
            }
        }
    }

    fn notify(&self, changed: Value) {
        let ChangedUnits { here, gone } = serde_json::from_value(changed).unwrap_or_default();
        let mut known = self.known();
        for unit in gone.iter().filter_map(|name| UnitName::parse(name).ok()) {
            self.feed.report(&unit);
            known.remove(&unit);
        }
        for unit in here.iter().filter_map(|name| UnitName::parse(name).ok()) {
            self.feed.report(&unit);
            known.insert(unit);
        }
    }
}

fn message_of(error: RequestError) -> String {
    match error {
        RequestError::Failed(error) => format!("it returned the error {error}"),
        RequestError::Refused(why) | RequestError::Lost(why) => why,
    }
}

fn chain(error: &ConnectionError) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
