//! Client of a service manager in another process.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::connection::{RequestError, Response};
use super::errors::ErrorWire;
use super::handler::NOT_UNDERSTOOD_PREFIX;
use super::protocol::{
    DriftWire, FileWire, LineWire, Request, ServiceManagerRequest, TimeWire, UnitDetailsWire,
};
use super::reconnect::{ConnectionState, Reconnector};
use super::states::UnitWire;
use crate::journal::{Journal, JournalReader};
use crate::lock::acquire;
use crate::{ChangeReceiver, Clock, Drift, ManagedUnit, ServiceError, ServiceManager, UnitDetails};

/// Settings of a [`RemoteManager`].
#[derive(Clone)]
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

/// Runs units through the service manager of another process, which serves it with
/// [`serve`](super::serve). Dropping this manager changes nothing in the other process.
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
        let reconnector = Arc::new(Reconnector::new(config));
        let (connection, watch) = reconnector.connect().await.map_err(ServiceError::Unavailable)?;
        let task = tokio::spawn(Arc::clone(&reconnector).run(connection, watch)).abort_handle();
        Ok(Arc::new(Self { reconnector, task, _lock: lock }))
    }

    /// Sends a request. It is queued when this returns.
    fn request(&self, request: Request) -> Result<Response, ServiceError> {
        match &*self.reconnector.state() {
            ConnectionState::Up(connection) => {
                connection.request(&ServiceManagerRequest { units: request }).map_err(read_error)
            }
            ConnectionState::Away(why) => Err(ServiceError::Unavailable(why.clone())),
        }
    }

    /// Returns the next item of a response; `None` at its end. During the wait the keepalive
    /// monitors the peer.
    async fn next(&self, response: &mut Response) -> Result<Option<Value>, ServiceError> {
        let _waiting = self.reconnector.keepalive.wait();
        response.next().await.map_err(read_error)
    }

    /// Sends a request whose response has no items.
    async fn execute(&self, request: Request) -> Result<(), ServiceError> {
        match self.next(&mut self.request(request)?).await? {
            None => Ok(()),
            Some(_) => Err(not_understood("unexpected item")),
        }
    }

    /// Sends a request whose response has one item.
    async fn query<T: DeserializeOwned>(&self, request: Request) -> Result<T, ServiceError> {
        let mut response = self.request(request)?;
        let item = self.next(&mut response).await?;
        let item = item.ok_or_else(|| not_understood("no items"))?;
        // Only the end confirms that the response is complete.
        self.next(&mut response).await?;
        read(item)
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
        let file = FileWire::new(file);
        self.execute(Request::Load { unit: unit.to_string(), file, epoch: epoch.0 }).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        self.execute(Request::Reload).await
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.execute(Request::Unload { unit: unit.to_string() }).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.execute(Request::Start { unit: unit.to_string(), generation: generation.0 }).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.execute(Request::Restart { unit: unit.to_string(), generation: generation.0 }).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.execute(Request::Stop { unit: unit.to_string() }).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.execute(Request::ReloadUnit { unit: unit.to_string() }).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        let found: Option<UnitWire> = self.query(Request::Get { unit: unit.to_string() }).await?;
        found.map(read_unit).transpose()
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        let mut response = self.request(Request::List)?;
        let mut units = Vec::new();
        // A list without its end is incomplete, whatever has arrived.
        while let Some(item) = self.next(&mut response).await? {
            for unit in read::<Vec<UnitWire>>(item)? {
                units.push(read_unit(unit)?);
            }
        }
        Ok(units)
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        let drift: Option<DriftWire> =
            self.query(Request::Drift { unit: unit.to_string() }).await?;
        Ok(drift.map(Drift::from))
    }

    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        let time: Option<TimeWire> =
            self.query(Request::StopTimeout { unit: unit.to_string() }).await?;
        Ok(time.map(Duration::from))
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let request = Request::Details { unit: unit.to_string() };
        match self.query::<UnitDetailsWire>(request).await {
            Ok(details) => Ok(details.into()),
            // An earlier version does not know the request.
            Err(ServiceError::Unavailable(why)) if why.starts_with(NOT_UNDERSTOOD_PREFIX) => {
                Ok(UnitDetails::default())
            }
            Err(error) => Err(error),
        }
    }

    fn changes(&self) -> ChangeReceiver {
        self.reconnector.changes()
    }
}

#[async_trait]
impl JournalReader for RemoteManager {
    async fn journal(
        &self,
        unit: &UnitName,
        mut query: JournalQuery,
    ) -> Result<Journal, ServiceError> {
        let Some(cursor) = query.after.take() else {
            return self.open_journal(journal_request(unit, query)).await;
        };
        let follow = query.follow;
        let request = Request::JournalFrom { unit: unit.to_string(), cursor, follow };
        match self.open_journal(request).await {
            // An earlier version does not know cursors.
            Err(ServiceError::Unavailable(why)) if why.starts_with(NOT_UNDERSTOOD_PREFIX) => {
                let query = JournalQuery::default().with_follow(follow);
                Ok(self.open_journal(journal_request(unit, query)).await?.with_gap())
            }
            opened => opened,
        }
    }
}

fn journal_request(unit: &UnitName, query: JournalQuery) -> Request {
    Request::Journal { unit: unit.to_string(), query: query.into(), with_cursors: true }
}

impl RemoteManager {
    async fn open_journal(&self, request: Request) -> Result<Journal, ServiceError> {
        let mut response = self.request(request)?;
        let first = self.next(&mut response).await?;
        let mut lines: Vec<LineWire> = first.map_or_else(|| Ok(Vec::new()), read)?;
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
                let more = next.map_err(read_error).and_then(|item| item.map(read).transpose());
                lines = match more {
                    Ok(Some(more)) => more,
                    Ok(None) => return,
                    // If the reader is gone, the reason is dropped.
                    Err(error) => return drop(broken.send(error)),
                };
            }
        });
        Ok(journal)
    }
}

fn read_unit(unit: UnitWire) -> Result<ManagedUnit, ServiceError> {
    unit.read().map_err(|word| not_understood(&format!("{word:?}")))
}

fn read<T: DeserializeOwned>(item: Value) -> Result<T, ServiceError> {
    serde_json::from_value(item).map_err(|error| not_understood(&error.to_string()))
}

fn read_error(error: RequestError) -> ServiceError {
    match error {
        RequestError::Failed(error) => match serde_json::from_value::<ErrorWire>(error) {
            Ok(error) => error.read(),
            Err(error) => not_understood(&error.to_string()),
        },
        RequestError::Refused(why) => ServiceError::Unavailable(why),
        RequestError::Lost(why) => ServiceError::Unavailable(format!(
            "the connection was lost before a response arrived: {why}"
        )),
    }
}

fn not_understood(problem: &str) -> ServiceError {
    ServiceError::Unavailable(format!(
        "cannot understand the response: {problem}; run both programs from one release"
    ))
}
