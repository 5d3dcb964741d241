//! Server side of a service manager.

use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use super::protocol::{ChangedUnits, FileWire, ManagerRequest, Request, RequestError};
use super::server::{RequestHandler, ResponseSender};
use crate::journal::JournalReader;
use crate::{ServiceError, ServiceManager};

/// Number of changed units per item.
const UNITS: usize = 256;

/// Handles calls to a service manager. A program that also handles commands has its own
/// [`RequestHandler`], which forwards the calls to this handler.
pub struct ServiceManagerHandler {
    manager: Arc<dyn ServiceManager>,
    journals: Arc<dyn JournalReader>,
}

impl ServiceManagerHandler {
    /// Creates a handler for this service manager, and for the journals of its units.
    #[must_use]
    pub fn new<M: ServiceManager + JournalReader>(manager: Arc<M>) -> Self {
        Self::from_parts(manager.clone(), manager)
    }

    /// Creates a handler for this service manager, and for journals that another type reads.
    #[must_use]
    pub fn from_parts(manager: Arc<dyn ServiceManager>, journals: Arc<dyn JournalReader>) -> Self {
        Self { manager, journals }
    }

    async fn handle_call(
        &self,
        request: ManagerRequest,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        use ManagerRequest as R;
        let manager = &self.manager;
        match request {
            R::Load { unit, file, epoch } => self.load(&unit, &file, Epoch(epoch)).await?,
            R::Reload => manager.reload().await?,
            R::Unload { unit } => manager.unload(&unit).await?,
            R::Start { unit, generation } => manager.start(&unit, Generation(generation)).await?,
            R::Restart { unit, generation } => {
                manager.restart(&unit, Generation(generation)).await?;
            }
            R::Stop { unit } => manager.stop(&unit).await?,
            R::ReloadUnit { unit } => manager.reload_unit(&unit).await?,
            // Boxed: hundreds of concurrent starts would take the memory.
            query => Box::pin(self.handle_query(query, response)).await?,
        }
        Ok(())
    }

    async fn handle_query(
        &self,
        request: ManagerRequest,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        use ManagerRequest as R;
        let manager = &self.manager;
        match request {
            R::Get { unit } => response.send(&manager.get(&unit).await?).await,
            R::Drift { unit } => response.send(&manager.drift(&unit).await?).await,
            R::StopTimeout { unit } => response.send(&manager.stop_timeout(&unit).await?).await,
            R::Details { unit } => response.send(&manager.details(&unit).await?).await,
            R::List => response.send(&manager.list().await?).await,
            R::Watch => self.watch(response).await?,
            R::Journal { unit, query } => {
                let unit = UnitName::parse(&unit).map_err(|error| {
                    RequestError::InvalidArgument(format!("invalid unit {unit:?}: {error}"))
                })?;
                response.send_journal(self.journals.journal(&unit, query.into()).await?).await?;
            }
            change => {
                return Err(RequestError::Refused(format!("unexpected request: {change:?}")));
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
        let file = UnitFile::try_from(file).map_err(|error| ServiceError::BadSetting {
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
        let here = units.into_iter().map(|it| it.unit).collect();
        // Sent even if there are no units: the first item confirms the connection.
        response.send(&ChangedUnits { here, gone: Vec::new() }).await;
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
            list.push(unit.clone());
        }
        units
    }
}

#[async_trait]
impl RequestHandler for ServiceManagerHandler {
    async fn handle(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        match request {
            Request::Manager(call) => self.handle_call(call, response).await,
            Request::Init(_) => Err(RequestError::RunsForFleet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_future_is_small() {
        fn size<'a, F: Future>(
            _: fn(&'a ServiceManagerHandler, ManagerRequest, &'a mut ResponseSender) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let size = size(ServiceManagerHandler::handle_call);
        assert!(size <= 400, "{size} bytes");
    }
}
