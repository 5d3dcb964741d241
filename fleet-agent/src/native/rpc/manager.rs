//! Client of a service manager in another process.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

use super::connection::{CONNECT_TIMEOUT, Connection, SILENT, Stream, chain};
use super::protocol::{ChangedUnits, FileWire, LineWire, ManagerRequest, RequestError};
use crate::backoff::BackoffLimits;
use crate::journal::{Journal, JournalReader};
use crate::lock::acquire;
use crate::{
    ChangeReceiver, ChangeSender, Clock, Drift, ManagedUnit, ServiceError, ServiceManager,
    SystemClock, UnitDetails,
};

/// Backoff between connection attempts.
const RECONNECT: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(50), max: Duration::from_secs(5) };

/// Settings of a [`RemoteManager`].
#[derive(Clone)]
#[non_exhaustive]
pub struct RemoteConfig {
    /// Socket that the other process serves.
    pub socket: PathBuf,
    /// Directory that only one manager can lock at a time, so that two daemons do not control the
    /// same units. `None` for a manager that only reads. In that case, if this process runs as
    /// root, the other process may run as any user.
    pub directory: Option<PathBuf>,
    /// Identifies this client, for people.
    pub program: String,
    /// Clock for connection attempts.
    pub clock: Arc<dyn Clock>,
}

impl RemoteConfig {
    /// Creates a configuration without a directory, and with the real clock. `program` identifies
    /// this client, for people.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, program: impl Into<String>) -> Self {
        let clock = Arc::new(SystemClock::start());
        Self { socket: socket.into(), directory: None, program: program.into(), clock }
    }
}

/// Runs units through the service manager of another process, which [serves](super::serve) a
/// [`ServiceManagerHandler`](super::ServiceManagerHandler). Dropping this manager changes nothing
/// in the other process.
///
/// While the other process cannot be reached, every call returns [`ServiceError::Unavailable`], and
/// this manager tries to reconnect. After a reconnect, all units are reported as changed, including
/// those that the other process no longer has.
///
/// If the connection is lost during a call, the other process may or may not have carried out the
/// call.
pub struct RemoteManager {
    reconnector: Arc<Reconnector>,
    task: AbortHandle,
    _lock: Option<File>,
}

impl RemoteManager {
    /// Connects to the other process.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] if the other process cannot be reached, or if another manager
    /// uses the directory; [`ServiceError::Io`] if the directory cannot be used.
    pub async fn open(config: RemoteConfig) -> Result<Arc<Self>, ServiceError> {
        let lock = match &config.directory {
            Some(directory) => Some(acquire(directory, &*config.clock).await?),
            None => None,
        };
        let reconnector = Arc::new(Reconnector {
            config,
            connection: Mutex::new(Err("not connected yet".to_owned())),
            feed: ChangeSender::default(),
            known: Mutex::default(),
        });
        let watch = reconnector.connect().await.map_err(ServiceError::Unavailable)?;
        let task = tokio::spawn(Arc::clone(&reconnector).run(watch)).abort_handle();
        Ok(Arc::new(Self { reconnector, task, _lock: lock }))
    }

    fn connection(&self) -> Result<Arc<Connection>, ServiceError> {
        self.reconnector.connection().clone().map_err(ServiceError::Unavailable)
    }

    async fn call<T: DeserializeOwned>(&self, request: ManagerRequest) -> Result<T, ServiceError> {
        Ok(self.connection()?.call(request).await?)
    }

    async fn open_journal(&self, request: ManagerRequest) -> Result<Journal, ServiceError> {
        let connection = self.connection()?;
        let mut response = connection.stream(request).await?;
        let first = {
            let _expected = connection.expect_response();
            response.next().await?
        };
        drop(connection);
        let mut lines: Vec<LineWire> = first.unwrap_or_default();
        let (sender, broken, journal) = Journal::fallible();
        tokio::spawn(async move {
            loop {
                for line in lines {
                    if sender.send(line.into()).await.is_err() {
                        return;
                    }
                }
                let next = tokio::select! {
                    () = sender.closed() => return,
                    next = response.next() => next,
                };
                lines = match next {
                    Ok(Some(more)) => more,
                    Ok(None) => return,
                    // If the reader is gone, the reason is dropped.
                    Err(error) => return drop(broken.send(error.into())),
                };
            }
        });
        Ok(journal)
    }
}

impl Drop for RemoteManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl ServiceManager for RemoteManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let (unit, file) = (unit.clone(), FileWire::from(file));
        self.call(ManagerRequest::Load { unit, file, epoch: epoch.0 }).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        self.call(ManagerRequest::Reload).await
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.call(ManagerRequest::Unload { unit: unit.clone() }).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let (unit, generation) = (unit.clone(), generation.0);
        self.call(ManagerRequest::Start { unit, generation }).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let (unit, generation) = (unit.clone(), generation.0);
        self.call(ManagerRequest::Restart { unit, generation }).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.call(ManagerRequest::Stop { unit: unit.clone() }).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.call(ManagerRequest::ReloadUnit { unit: unit.clone() }).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.call(ManagerRequest::Get { unit: unit.clone() }).await
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.call(ManagerRequest::List).await
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        self.call(ManagerRequest::Drift { unit: unit.clone() }).await
    }

    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        self.call(ManagerRequest::StopTimeout { unit: unit.clone() }).await
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        self.call(ManagerRequest::Details { unit: unit.clone() }).await
    }

    fn changes(&self) -> ChangeReceiver {
        self.reconnector.feed.subscribe()
    }
}

#[async_trait]
impl JournalReader for RemoteManager {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let (unit, query) = (unit.to_string(), query.into());
        self.open_journal(ManagerRequest::Journal { unit, query }).await
    }
}

/// Keeps the connection: reconnects when it is lost, and forwards change notifications.
struct Reconnector {
    config: RemoteConfig,
    /// The connection, or the reason why there is none.
    connection: Mutex<Result<Arc<Connection>, String>>,
    feed: ChangeSender,
    /// Units that the other process was last known to have.
    known: Mutex<BTreeSet<UnitName>>,
}

impl Reconnector {
    fn connection(&self) -> MutexGuard<'_, Result<Arc<Connection>, String>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<UnitName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects, and reads the first list of units. Returns further changes.
    ///
    /// # Errors
    ///
    /// A description of the failure, for people.
    async fn connect(&self) -> Result<Stream, String> {
        let RemoteConfig { socket, directory, program, clock } = &self.config;
        let connection = match directory {
            None => Connection::connect_to_any_user(socket, program, Arc::clone(clock)).await,
            Some(_) => Connection::connect(socket, program, Arc::clone(clock)).await,
        };
        let connection = connection.map_err(|error| chain(&error))?;
        let watch = async {
            let _expected = connection.expect_response();
            let mut watch = connection.stream(ManagerRequest::Watch).await?;
            self.notify(watch.next().await?.unwrap_or_default());
            Ok(watch)
        };
        let watch = tokio::select! {
            watch = watch => watch.map_err(message_of)?,
            () = clock.sleep(CONNECT_TIMEOUT) => {
                return Err(format!("{}: {SILENT}", socket.display()));
            }
        };
        *self.connection() = Ok(Arc::new(connection));
        Ok(watch)
    }

    /// Forwards change notifications, and reconnects whenever the connection is lost.
    async fn run(self: Arc<Self>, watch: Stream) {
        let mut connected = Some(watch);
        let mut failures = 0;
        let socket = self.config.socket.display();
        loop {
            if let Some(watch) = connected.take() {
                let why = self.follow(watch).await;
                tracing::warn!(
                    %socket,
                    why,
                    "lost the connection to the service manager: connecting again"
                );
                *self.connection() = Err(why);
                self.known().iter().for_each(|unit| self.feed.report(unit));
                failures = 0;
            }
            failures += 1;
            self.config.clock.sleep(RECONNECT.wait(failures)).await;
            // Units that it had and no longer has have changed too.
            let before = std::mem::take(&mut *self.known());
            match self.connect().await {
                Ok(watch) => {
                    tracing::info!(%socket, "connected to the service manager again");
                    connected = Some(watch);
                    before.iter().for_each(|unit| self.feed.report(unit));
                }
                Err(why) => {
                    self.known().extend(before);
                    *self.connection() = Err(why);
                }
            }
        }
    }

    /// Forwards change notifications until the connection is lost; returns the reason.
    async fn follow(&self, mut watch: Stream) -> String {
        loop {
            match watch.next().await {
                Ok(Some(changed)) => self.notify(changed),
                Ok(None) => return "it no longer reports changes of units".to_owned(),
                Err(error) => return message_of(error),
            }
        }
    }

    fn notify(&self, ChangedUnits { here, gone }: ChangedUnits) {
        let mut known = self.known();
        for unit in gone {
            self.feed.report(&unit);
            known.remove(&unit);
        }
        for unit in here {
            self.feed.report(&unit);
            known.insert(unit);
        }
    }
}

fn message_of(error: RequestError) -> String {
    match error {
        RequestError::Refused(why) | RequestError::Lost(why) => why,
        error => ServiceError::from(error).to_string(),
    }
}
