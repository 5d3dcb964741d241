//! Server side of a service manager.

use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitName;
use serde_json::Value;
use tokio::net::UnixListener;

use super::errors::ErrorWire;
use super::protocol::{
    ChangedUnits, DriftWire, FileWire, Request, ServiceManagerRequest, TimeWire, UnitDetailsWire,
};
use super::response::ResponseSender;
use super::server::{RequestHandler, serve_with};
use super::states::UnitWire;
use crate::journal::JournalReader;
use crate::{Clock, ServiceError, ServiceManager};

/// Prefix of the error for a request of a newer version.
pub(crate) const NOT_UNDERSTOOD_PREFIX: &str = "request not understood: ";

/// Number of units per item.
const UNITS: usize = 256;

/// Serves a service manager to the [`RemoteManager`](super::RemoteManager)s of other processes,
/// until the future is dropped. Neither the end of the server nor the disconnection of a client
/// affects the units, which keep running.
///
/// `program` is the name of this server, for people.
pub async fn serve(
    listener: UnixListener,
    handler: ServiceManagerHandler,
    program: &str,
    clock: Arc<dyn Clock>,
) {
    serve_with(listener, Arc::new(handler), program, clock).await;
}

/// Handles calls to a service manager. A program that also serves other requests has its own
/// [`RequestHandler`], which forwards the calls to this handler.
pub struct ServiceManagerHandler {
    manager: Arc<dyn ServiceManager>,
    journals: Arc<dyn JournalReader>,
}

impl ServiceManagerHandler {
    /// Creates a handler for this service manager, and for the journals of its units.
    #[must_use]
    pub fn new<M: ServiceManager + JournalReader>(manager: Arc<M>) -> Self {
        Self { manager: manager.clone(), journals: manager }
    }

    /// Whether this is a call to a service manager.
    #[must_use]
    pub fn accepts(request: &Value) -> bool {
        request.get("units").is_some()
    }

    /// Returns the error to send for every call if this process has no service manager. `why` is
    /// the reason, for people.
    #[must_use]
    pub fn unavailable(why: &str) -> Value {
        to_value(ServiceError::Unavailable(why.to_owned()))
    }

    async fn handle_request(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), ServiceError> {
        match request {
            Request::Load { unit, file, epoch } => {
                self.load(&name(&unit)?, &file, Epoch(epoch)).await
            }
            Request::Reload => self.manager.reload().await,
            Request::Ping => Ok(()),
            Request::Unload { unit } => self.manager.unload(&name(&unit)?).await,
            Request::Start { unit, generation } => {
                self.manager.start(&name(&unit)?, Generation(generation)).await
            }
            Request::Restart { unit, generation } => {
                self.manager.restart(&name(&unit)?, Generation(generation)).await
            }
            Request::Stop { unit } => self.manager.stop(&name(&unit)?).await,
            Request::ReloadUnit { unit } => self.manager.reload_unit(&name(&unit)?).await,
            // Boxed: hundreds of concurrent starts would take the memory.
            query => Box::pin(self.handle_query(query, response)).await,
        }
    }

    async fn handle_query(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), ServiceError> {
        match request {
            Request::Get { unit } => {
                let found = self.manager.get(&name(&unit)?).await?;
                response.send(&found.map(UnitWire::from)).await;
            }
            Request::Drift { unit } => {
                let drift = self.manager.drift(&name(&unit)?).await?;
                response.send(&drift.map(DriftWire::from)).await;
            }
            Request::StopTimeout { unit } => {
                let time_out = self.manager.stop_timeout(&name(&unit)?).await?;
                response.send(&time_out.map(TimeWire::from)).await;
            }
            Request::Details { unit } => {
                let units = self.manager.details(&name(&unit)?).await?;
                response.send(&UnitDetailsWire::from(units)).await;
            }
            Request::List => {
                let mut units = self.manager.list().await?.into_iter().map(UnitWire::from);
                while let Some(first) = units.next() {
                    let part: Vec<_> =
                        [first].into_iter().chain(units.by_ref()).take(UNITS).collect();
                    response.send(&part).await;
                }
            }
            Request::Watch => self.watch(response).await?,
            Request::Journal { unit, query, with_cursors } => {
                let journal = self.journals.journal(&name(&unit)?, query.into()).await?;
                match with_cursors {
                    true => response.send_journal_with_cursors(journal).await?,
                    false => response.send_journal(journal).await?,
                }
            }
            Request::JournalFrom { unit, cursor, follow } => {
                let query = JournalQuery::default().with_after(cursor).with_follow(follow);
                let journal = self.journals.journal(&name(&unit)?, query).await?;
                response.send_journal_with_cursors(journal).await?;
            }
            change => {
                return Err(ServiceError::Unavailable(format!("unexpected request: {change:?}")));
            }
        }
        Ok(())
    }

    async fn load(
        &self,
        unit: &UnitName,
        file: &FileWire,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let file = file.read().map_err(|error| ServiceError::BadSetting {
            unit: unit.clone(),
            line: 0,
            problem: error.to_string(),
        })?;
        self.manager.load(unit, &file, epoch).await
    }

    /// Sends the names of all units, and afterwards the names of units that change. The
    /// subscription to changes begins before the units are listed, so no change is missed.
    async fn watch(&self, response: &mut ResponseSender) -> Result<(), ServiceError> {
        let mut changes = self.manager.changes();
        let units = self.manager.list().await?;
        let all: Vec<UnitName> = units.into_iter().map(|it| it.unit).collect();
        // Sent even if there are no units: the first item confirms the connection.
        let here = |names: &[UnitName]| names.iter().map(ToString::to_string).collect();
        let (first, rest) = all.split_at(all.len().min(UNITS));
        for part in [first].into_iter().chain(rest.chunks(UNITS)) {
            response.send(&ChangedUnits { here: here(part), gone: Vec::new() }).await;
        }
        loop {
            let changed: Vec<UnitName> = changes.next().await.into_iter().collect();
            for part in changed.chunks(UNITS) {
                response.send(&self.changed_units(part).await).await;
            }
        }
    }

    async fn changed_units(&self, changed: &[UnitName]) -> ChangedUnits {
        let mut units = ChangedUnits::default();
        for unit in changed {
            let is_gone = matches!(self.manager.get(unit).await, Ok(None));
            let list = if is_gone { &mut units.gone } else { &mut units.here };
            list.push(unit.to_string());
        }
        units
    }
}

#[async_trait]
impl RequestHandler for ServiceManagerHandler {
    async fn handle(&self, request: Value, response: &mut ResponseSender) -> Result<(), Value> {
        let request: ServiceManagerRequest = serde_json::from_value(request)
            .map_err(|error| Self::unavailable(&format!("{NOT_UNDERSTOOD_PREFIX}{error}")))?;
        self.handle_request(request.units, response).await.map_err(to_value)
    }
}

fn to_value(error: ServiceError) -> Value {
    // A serialisation failure becomes null, which the client does not understand, so it is an error
    // too.
    serde_json::to_value(ErrorWire::from(error)).unwrap_or(Value::Null)
}

fn name(text: &str) -> Result<UnitName, ServiceError> {
    let bad = |error| ServiceError::Unavailable(format!("invalid unit name {text:?}: {error}"));
    UnitName::parse(text).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_future_is_small() {
        fn size<'a, F: Future>(
            _: fn(&'a ServiceManagerHandler, Request, &'a mut ResponseSender) -> F,
        ) -> usize {
            size_of::<F>()
        }
        assert!(
            size(ServiceManagerHandler::handle_request) <= 400,
            "{} bytes",
            size(ServiceManagerHandler::handle_request)
        );
    }
}
