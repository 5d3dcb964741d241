//! The client: one method for each thing that the API can do.

mod again;
mod call;
mod conditions;
mod connect;
mod endpoint;
mod error;
mod events;
mod export;
mod filter;
mod journal;
mod lines;
mod machines;
mod pages;
mod plans;
mod query;
mod rebalance;
mod upload;

use std::time::Duration;

use fleet_core::{Generation, MachineId, TargetState};
use fleet_store::MetadataChange;
use fleet_unitfile::UnitName;
use hyper::{Method, StatusCode};
use serde::Serialize;

use crate::wire::{
    Machine, MachinePage, MachineStatus, MetadataOp, Particulars, PutUnit, Restarted, Unit,
    UnitPage, UnitState, UnitStatePage, UnitStatus, Version,
};
use crate::{ClientTls, Token};
use call::Caller;
use query::Query;

pub(crate) use again::Again;
pub use conditions::Tagged;
pub use endpoint::{Endpoint, EndpointError};
pub use error::ClientError;
pub use events::{EventOptions, Events};
pub use export::ExportBytes;
pub use filter::{StateFilter, UnitFilter};
pub use journal::{JournalLines, JournalOptions};
pub use upload::UnitUpload;

/// A client of the API. Cloning is cheap, and clones share connections.
///
/// Connecting may take five seconds, and a whole answer thirty; only a journal may take its time. A
/// `GET` whose connection turns out to have been closed is repeated once; nothing else is ever
/// repeated.
#[derive(Debug, Clone)]
pub struct Client {
    caller: Caller,
}

/// What a client trusts, and what it shows to be let in.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// How to speak by TLS. `None` trusts the authorities that this host trusts, and shows nothing.
    pub tls: Option<ClientTls>,
    /// The token to show. It is not sent where others could read it on its way.
    pub token: Option<Token>,
}

/// What came of sending a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// It was created, or its content replaced.
    Created,
    /// It had this content already; its desired state was set.
    Changed,
    /// It exists, and was only to be created.
    Exists,
}

impl Client {
    /// A client of the server at that endpoint. It connects when it is first used.
    #[must_use]
    pub fn new(endpoint: &Endpoint) -> Self {
        Self::with(endpoint, Credentials::default())
    }

    /// The same with what it takes to be let in.
    #[must_use]
    pub fn with(endpoint: &Endpoint, credentials: Credentials) -> Self {
        Self { caller: Caller::new(endpoint.clone(), credentials) }
    }

    /// A client by which a daemon asks another for somebody else.
    pub(crate) fn proxying(endpoint: &Endpoint, credentials: Credentials) -> Self {
        Self { caller: Caller::new(endpoint.clone(), credentials).proxying() }
    }

    /// Where it connects to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    /// For how long the server had not seen its store when it last answered: what it said may have
    /// changed since. `None` if it saw its store.
    #[must_use]
    pub fn behind(&self) -> Option<Duration> {
        self.caller.behind()
    }

    /// The version of the daemon that answers.
    ///
    /// # Errors
    ///
    /// As for all methods: [`ClientError`] says whether nobody answered, or what was answered.
    pub async fn version(&self) -> Result<String, ClientError> {
        let version: Version = self.caller.get("version", &Query::new()).await?;
        Ok(version.version)
    }

    /// Whether the daemon lives.
    ///
    /// # Errors
    ///
    /// [`ClientError`] when it does not.
    pub async fn health(&self) -> Result<(), ClientError> {
        self.caller.probe("healthz").await
    }

    /// Whether what the daemon answers is the present state of the cluster.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 503 and what is missing when it is not.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.caller.probe("readyz").await
    }

    /// All units, in order of their names, of one revision.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn units(&self) -> Result<Vec<Unit>, ClientError> {
        let split = |page: UnitPage| (page.units, page.next_page_token);
        self.list("units", &Query::new(), split).await
    }

    /// The units that match the filter, in order of their names, of one revision.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn units_that(&self, filter: &UnitFilter) -> Result<Vec<Unit>, ClientError> {
        let split = |page: UnitPage| (page.units, page.next_page_token);
        self.list("units", &filter.query(), split).await
    }

    /// The unit of that name with its source; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn unit(&self, name: &UnitName) -> Result<Option<Unit>, ClientError> {
        found(self.caller.get(&unit_path(name), &Query::new()).await)
    }

    /// Creates a unit or replaces its content, byte for byte.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 and details when the unit file is not acceptable.
    pub async fn put_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
    ) -> Result<PutOutcome, ClientError> {
        let (entity, header) = (upload.entity(), upload.header());
        match self.caller.send(Method::PUT, &unit_path(name), header, &entity).await {
            Ok((StatusCode::CREATED, _)) => Ok(PutOutcome::Created),
            Ok(_) => Ok(PutOutcome::Changed),
            Err(ClientError::Api { status: 412, .. }) => Ok(PutOutcome::Exists),
            Err(error) => Err(error),
        }
    }

    /// Changes the desired state of a unit that is there.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 409 when there is no such unit.
    pub async fn set_desired(
        &self,
        name: &UnitName,
        desired: TargetState,
    ) -> Result<(), ClientError> {
        let desired_state = Some(desired.to_string());
        let entity = PutUnit { desired_state, ..PutUnit::default() };
        self.caller.send(Method::PUT, &unit_path(name), None, &entity).await.map(drop)
    }

    /// Forgets a unit, and says whether there was one.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn destroy(&self, name: &UnitName) -> Result<bool, ClientError> {
        let gone = self.caller.send_empty(Method::DELETE, &unit_path(name)).await;
        Ok(found(gone.map(drop))?.is_some())
    }

    /// Asks for a restart, and returns the generation that the unit will then have.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when there is no such unit, 409 when its desired state
    /// is not launched.
    pub async fn restart(&self, name: &UnitName) -> Result<Generation, ClientError> {
        let path = format!("{}/restart", unit_path(name));
        let body = self.caller.send_empty(Method::POST, &path).await?;
        let restarted: Restarted = self.caller.decode(&body)?;
        Ok(Generation(restarted.generation))
    }

    /// The states that match the filter, in order of units' names, then of machine IDs.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn states(&self, filter: &StateFilter) -> Result<Vec<UnitState>, ClientError> {
        let query = filter.query();
        let split = |page: UnitStatePage| (page.states, page.next_page_token);
        self.list("state", &query, split).await
    }

    /// The machines that are present, in order of their IDs.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn machines(&self) -> Result<Vec<Machine>, ClientError> {
        let split = |page: MachinePage| (page.machines, page.next_page_token);
        self.list("machines", &Query::new(), split).await
    }

    /// Changes metadata of machines, all of it or nothing.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 when a change cannot be carried out.
    pub async fn patch_machines(&self, changes: &[MetadataChange]) -> Result<(), ClientError> {
        let ops: Vec<MetadataOp> = changes.iter().map(MetadataOp::from).collect();
        self.caller.send(Method::PATCH, "machines", None, &ops).await.map(drop)
    }

    /// Opens the journal of a unit.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when there is no such unit, 409 when it is on no
    /// machine, 501 when nobody says how its machine is reached, 502 when that does not answer.
    pub async fn journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open(self.caller.clone(), unit_path(name), options.clone()).await
    }

    /// The same with when each line was written, where the server tells that: for those who ask by
    /// [`JournalLines::next_dated`].
    ///
    /// # Errors
    ///
    /// As [`journal`](Self::journal).
    pub async fn dated_journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open_dated(self.caller.clone(), unit_path(name), options.clone()).await
    }

    /// The same with all that is known of each line, after the one with that position.
    pub(crate) async fn whole_journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
        after: Option<&str>,
    ) -> Result<JournalLines, ClientError> {
        JournalLines::open_whole(self.caller.clone(), unit_path(name), options.clone(), after).await
    }

    /// How a unit is on each of its machines, with the last lines that it wrote there; `None` if
    /// there is no such unit. `lines` is how many of them, ten if it is not said.
    ///
    /// # Errors
    ///
    /// [`ClientError`]. That a machine does not answer is none: what is missing is told in its
    /// place.
    pub async fn status(
        &self,
        name: &UnitName,
        lines: Option<u32>,
    ) -> Result<Option<UnitStatus>, ClientError> {
        let path = format!("{}/status", unit_path(name));
        let lines = lines.map(|lines| lines.to_string());
        found(self.caller.get(&path, &Query::new().with("lines", lines.as_deref())).await)
    }

    /// What the daemon of a machine tells of a unit there beyond its state.
    pub(crate) async fn particulars(
        &self,
        name: &UnitName,
        machine: &MachineId,
    ) -> Result<Option<Particulars>, ClientError> {
        let path = format!("{}/status", unit_path(name));
        let query = Query::new().with("lines", Some("0")).with("machine", Some(machine.as_str()));
        let status: UnitStatus = self.caller.get(&path, &query).await?;
        let own = |on: &MachineStatus| on.machine_id == machine.as_str();
        Ok(status.machines.into_iter().find(own).and_then(|on| on.particulars))
    }

    /// Follows what changes in the cluster, from now on or from an event on that was seen.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 when `since` is not the id of an event.
    pub async fn events(&self, options: &EventOptions) -> Result<Events, ClientError> {
        Events::open(self.caller.clone(), options.clone()).await
    }

    /// Opens an export of the whole cluster at one revision. Its bytes are those of a portable
    /// file, to be read by a [`fleet_store::ExportReader`].
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 503 when the server does not see its store.
    pub async fn export(&self) -> Result<ExportBytes, ClientError> {
        let answer = self.caller.open("export", &Query::new()).await?;
        Ok(ExportBytes::new(self.endpoint().clone(), answer))
    }
}

/// `None` for an answer that says that there is no such thing.
fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(ClientError::Api { status: 404, .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

fn unit_path(name: &UnitName) -> String {
    format!("units/{}", query::escape(name.as_str()))
}

/// What the body of a request can be made of.
trait Entity: Serialize + Sync {}

impl<T: Serialize + Sync> Entity for T {}
