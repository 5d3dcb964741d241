//! The client, with one method for each operation of the API.

mod body;
mod bulk;
mod call;
mod conditional;
mod endpoint;
mod error;
mod events;
mod jobs;
mod journal;
mod machines;
pub(crate) mod query;

use std::time::Duration;

use fleet_core::{Epoch, Generation, Intent, MachineId, TargetState};
use fleet_store::registry::MetadataChange;
use fleet_unitfile::UnitName;
use hyper::{Method, StatusCode};
use serde::Serialize;

use crate::setters::setters;
use crate::wire::{
    ImportRequest, MachineEntity, MachinePage, MachineStatus, MetadataOp, PutUnit, RestartResponse,
    StatusDetails, UnitEntity, UnitEventEntity, UnitHistoryEntity, UnitPage, UnitRevisionEntity,
    UnitRevisions, UnitStateEntity, UnitStatePage, UnitStatusReport, VersionResponse,
};
use crate::{ClientTls, Token};
use call::Caller;
use query::Query;

pub use self::bulk::{UnitWrites, WrittenUnits};
pub use self::conditional::UnitUpload;
pub(crate) use self::events::Retry;
pub use self::jobs::JobFilter;
pub use self::query::{StateFilter, UnitFilter};
pub use body::ExportBytes;
pub use conditional::WithEtag;
pub use endpoint::{Endpoint, EndpointError};
pub use error::ClientError;
pub use events::{EventOptions, Events};
pub use journal::{JournalLines, JournalOptions};

/// A client of the API. Cloning is cheap, and clones share connections.
///
/// Connecting may take at most five seconds, and a complete response at most thirty seconds.
/// Streams have no time limit. If the connection breaks during a `GET` request, the client repeats
/// the request once. The client never repeats other requests.
#[derive(Debug, Clone)]
pub struct Client {
    caller: Caller,
}

/// TLS configuration and token of a client.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Credentials {
    /// TLS configuration. `None` trusts the CAs of this host and presents no certificate.
    pub tls: Option<ClientTls>,
    /// Bearer token. The client refuses to send it to another host without TLS.
    pub token: Option<Token>,
}

impl Credentials {
    setters! {
        optional:
            with_tls = tls: ClientTls,
            with_token = token: Token;
    }
}

/// Result of sending a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The unit was created or its content replaced.
    Created,
    /// The unit already had this content; its desired state was set.
    Changed,
    /// The unit exists and `create_only` was set.
    Exists,
}

impl Client {
    /// Creates a client of the server at this endpoint. The client connects when it sends the first
    /// request.
    #[must_use]
    pub fn new(endpoint: &Endpoint) -> Self {
        Self::with_credentials(endpoint, Credentials::default())
    }

    /// Creates a client with credentials.
    #[must_use]
    pub fn with_credentials(endpoint: &Endpoint, credentials: Credentials) -> Self {
        Self { caller: Caller::new(endpoint.clone(), credentials) }
    }

    /// Creates a client that forwards requests on behalf of another client.
    pub(crate) fn proxying(endpoint: &Endpoint, credentials: Credentials) -> Self {
        Self { caller: Caller::new(endpoint.clone(), credentials).proxying() }
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    /// Returns the time for which the server had been out of contact with its store when it sent
    /// the last response. That response may be outdated. Returns `None` if the server was in
    /// contact with its store.
    #[must_use]
    pub fn behind(&self) -> Option<Duration> {
        self.caller.behind()
    }

    /// Returns the version of the daemon.
    ///
    /// # Errors
    ///
    /// As for all methods, returns [`ClientError`] if the request fails.
    pub async fn version(&self) -> Result<String, ClientError> {
        Ok(self.daemon().await?.version)
    }

    /// Returns the version of the daemon, and why its machine could not join the cluster.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn daemon(&self) -> Result<VersionResponse, ClientError> {
        self.caller.get("version", &Query::new()).await
    }

    /// Checks that the daemon is alive.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the daemon does not respond.
    pub async fn health(&self) -> Result<(), ClientError> {
        self.caller.probe("healthz").await
    }

    /// Checks that the daemon's responses show the current state of the cluster.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 503 and the reason if the daemon's data may be
    /// outdated.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.caller.probe("readyz").await
    }

    /// Returns all units at one revision, ordered by name.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn units(&self) -> Result<Vec<UnitEntity>, ClientError> {
        let split = |page: UnitPage| (page.units, page.next_page_token);
        self.caller.list("units", &Query::new(), split).await
    }

    /// Returns the units that match the filter at one revision, ordered by name.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn units_matching(
        &self,
        filter: &UnitFilter,
    ) -> Result<Vec<UnitEntity>, ClientError> {
        let split = |page: UnitPage| (page.units, page.next_page_token);
        self.caller.list("units", &filter.query(), split).await
    }

    /// Returns the unit of that name with its source, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn unit(&self, name: &UnitName) -> Result<Option<UnitEntity>, ClientError> {
        none_if_not_found(self.caller.get(&unit_path(name), &Query::new()).await)
    }

    /// Returns the revisions of a unit in the order of their numbers, the current one last. Returns
    /// `None` if the unit does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn revisions(
        &self,
        name: &UnitName,
    ) -> Result<Option<Vec<UnitRevisionEntity>>, ClientError> {
        let path = format!("{}/revisions", unit_path(name));
        let found: Option<UnitRevisions> =
            none_if_not_found(self.caller.get(&path, &Query::new()).await)?;
        Ok(found.map(|found| found.revisions))
    }

    /// Returns the last events of a unit in the order in which the leader recorded them. Returns
    /// `None` if the unit does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn history(
        &self,
        name: &UnitName,
    ) -> Result<Option<Vec<UnitEventEntity>>, ClientError> {
        let path = format!("{}/history", unit_path(name));
        let found: Option<UnitHistoryEntity> =
            none_if_not_found(self.caller.get(&path, &Query::new()).await)?;
        Ok(found.map(|found| found.events))
    }

    /// Creates a unit, or replaces the content of an existing unit. The server stores the unit file
    /// byte for byte.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 and details if the unit file is invalid.
    pub async fn put_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
    ) -> Result<PutOutcome, ClientError> {
        self.send_unit(name, upload, None).await
    }

    /// Like [`put_unit`](Self::put_unit), but a created unit begins with this generation, which it
    /// had in another cluster, and its schedule may have elapsed. Call
    /// [`prepare_import`](Self::prepare_import) before.
    ///
    /// # Errors
    ///
    /// As for [`put_unit`](Self::put_unit).
    pub async fn import_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
        generation: Generation,
    ) -> Result<PutOutcome, ClientError> {
        self.send_unit(name, upload, Some(generation.0)).await
    }

    async fn send_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
        generation: Option<u64>,
    ) -> Result<PutOutcome, ClientError> {
        let (entity, header) = (PutUnit { generation, ..upload.entity() }, upload.header());
        match self.caller.send(Method::PUT, &unit_path(name), header, &entity).await {
            Ok((StatusCode::CREATED, _)) => Ok(PutOutcome::Created),
            Ok(_) => Ok(PutOutcome::Changed),
            Err(ClientError::Api { status: 412, .. }) => Ok(PutOutcome::Exists),
            Err(error) => Err(error),
        }
    }

    /// Sets the desired state of an existing unit.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 409 if the unit does not exist.
    pub async fn set_desired(
        &self,
        name: &UnitName,
        desired: TargetState,
    ) -> Result<(), ClientError> {
        let desired_state = Some(desired.to_string());
        let entity = PutUnit { desired_state, ..PutUnit::default() };
        self.caller.send(Method::PUT, &unit_path(name), None, &entity).await.map(drop)
    }

    /// Destroys a unit. Returns whether the unit existed.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn destroy(&self, name: &UnitName) -> Result<bool, ClientError> {
        let gone = self.caller.send_empty(Method::DELETE, &unit_path(name)).await;
        Ok(none_if_not_found(gone.map(drop))?.is_some())
    }

    /// Requests a restart and returns the unit's new generation.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the unit does not exist. The status is 409
    /// if the unit's desired state is not launched.
    pub async fn restart(&self, name: &UnitName) -> Result<Generation, ClientError> {
        let path = format!("{}/restart", unit_path(name));
        let body = self.caller.send_empty(Method::POST, &path).await?;
        let restarted: RestartResponse = self.caller.decode(&body)?;
        Ok(Generation(restarted.generation))
    }

    /// Requests the stop of a loaded unit's run, which a timer, a socket or another unit started.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the unit does not exist. The status is 409
    /// if the unit's desired state is not loaded.
    pub async fn stop(&self, name: &UnitName) -> Result<(), ClientError> {
        let path = format!("{}/stop", unit_path(name));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Returns the states that match the filter, ordered by unit name, then machine ID.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn states(&self, filter: &StateFilter) -> Result<Vec<UnitStateEntity>, ClientError> {
        let query = filter.query();
        let split = |page: UnitStatePage| (page.states, page.next_page_token);
        self.caller.list("state", &query, split).await
    }

    /// Returns the machines that are present, ordered by ID.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn machines(&self) -> Result<Vec<MachineEntity>, ClientError> {
        let split = |page: MachinePage| (page.machines, page.next_page_token);
        self.caller.list("machines", &Query::new(), split).await
    }

    /// Returns the machines that the daemon has seen leave and that are still absent, with the time
    /// since each was present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn absent_machines(&self) -> Result<Vec<MachineEntity>, ClientError> {
        let split = |page: MachinePage| (page.machines, page.next_page_token);
        let mut machines =
            self.caller.list("machines", &Query::new().with("absent", Some("1")), split).await?;
        // An older daemon ignores the parameter.
        machines.retain(|machine| machine.absent_for.is_some());
        Ok(machines)
    }

    /// Changes metadata of machines: either makes all changes, or none.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 if a change is invalid.
    pub async fn patch_machines(&self, changes: &[MetadataChange]) -> Result<(), ClientError> {
        let ops: Vec<MetadataOp> = changes.iter().map(MetadataOp::from).collect();
        self.caller.send(Method::PATCH, "machines", None, &ops).await.map(drop)
    }

    /// Opens the journal of a unit.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with one of these statuses:
    /// - 404: the unit does not exist or is not loaded on the machine, or the machine is not
    ///   present.
    /// - 409: the unit is on no machine.
    /// - 501: the machine's API URL is unknown.
    /// - 502: the machine does not respond.
    pub async fn journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open(self.caller.clone(), unit_path(name), options.clone()).await
    }

    /// Opens the journal of a unit, and requests a timestamp for each line. Use
    /// [`JournalLines::next_entry`] to read the timestamps, which an older server may not send.
    ///
    /// # Errors
    ///
    /// As for [`journal`](Self::journal).
    pub async fn journal_with_timestamps(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open_with_timestamps(self.caller.clone(), unit_path(name), options.clone())
            .await
    }

    /// Opens the journal of a unit after the line with the cursor `after`. Requests a timestamp and
    /// a cursor for each line.
    pub(crate) async fn full_journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
        after: Option<&str>,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open_full(self.caller.clone(), unit_path(name), options.clone(), after).await
    }

    /// Returns a unit's status on each of its machines, with the last lines of its journal. Returns
    /// `None` if the unit does not exist. `lines` is the maximum number of lines from each machine,
    /// ten by default.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails. If a machine does not respond, the request
    /// does not fail: the status of that machine contains the reason instead of the lines.
    pub async fn status(
        &self,
        name: &UnitName,
        lines: Option<u32>,
    ) -> Result<Option<UnitStatusReport>, ClientError> {
        let path = format!("{}/status", unit_path(name));
        let lines = lines.map(|lines| lines.to_string());
        none_if_not_found(
            self.caller.get(&path, &Query::new().with("lines", lines.as_deref())).await,
        )
    }

    /// Returns details of a unit beyond its state, as the daemon of `machine` reports them. Returns
    /// `None` if it reports none.
    pub(crate) async fn details(
        &self,
        name: &UnitName,
        machine: &MachineId,
    ) -> Result<Option<StatusDetails>, ClientError> {
        let path = format!("{}/status", unit_path(name));
        let query = Query::new().with("lines", Some("0")).with("machine", Some(machine.as_str()));
        let status: UnitStatusReport = self.caller.get(&path, &query).await?;
        let own = |on: &MachineStatus| on.machine_id == machine.as_str();
        Ok(status.machines.into_iter().find(own).and_then(|on| on.details))
    }

    /// Follows the cluster's events, beginning now or after a given event.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 if `since` is not an event ID.
    pub async fn events(&self, options: &EventOptions) -> Result<Events, ClientError> {
        Events::open(self.caller.clone(), options.clone()).await
    }

    /// Opens an export of the whole cluster at one revision. Its bytes form a portable file,
    /// readable with [`fleet_store::transfer::ExportReader`].
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 503 if the server cannot reach its store.
    pub async fn export(&self) -> Result<ExportBytes, ClientError> {
        let response = self.caller.open("export", &Query::new()).await?;
        Ok(ExportBytes::new(self.endpoint().clone(), response))
    }

    /// Prepares the cluster for the import of another cluster's units. Call this method before you
    /// create the units.
    ///
    /// Raises the epoch above `past`, the latest epoch of the other cluster. As a result, new
    /// placements supersede the placements of the other cluster that machines still remember. Also
    /// records the given intents, even for machines that are not present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 409 if the server's store has no lineage.
    pub async fn prepare_import(
        &self,
        past: Epoch,
        intents: &[(MachineId, Intent)],
    ) -> Result<(), ClientError> {
        let body = ImportRequest::new(past, intents);
        self.caller.send(Method::POST, "import", None, &body).await.map(drop)
    }
}

/// Maps a 404 response to `None`.
fn none_if_not_found<T>(response: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match response {
        Err(ClientError::Api { status: 404, .. }) => Ok(None),
        response => response.map(Some),
    }
}

fn unit_path(name: &UnitName) -> String {
    format!("units/{}", query::escape(name.as_str()))
}

/// Serializable request body.
trait Entity: Serialize + Sync {}

impl<T: Serialize + Sync> Entity for T {}
