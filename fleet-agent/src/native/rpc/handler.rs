//! Server side of a service manager, and the check of a connection's peer. Trusted peers run as
//! root or as the user of this process. Root may connect to a peer of any user.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::net::UnixStream;

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

/// Returns the reason why the peer is not trusted; `None` if it is trusted. The kernel reports the
/// user of the peer. With `any_user`, root trusts every peer. That is for connections that only
/// read, because the responses of another user cannot harm root.
pub(crate) fn untrusted_peer(stream: &UnixStream, any_user: bool) -> io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    let theirs = stream.peer_cred()?.uid();
    Ok((!is_trusted(own, theirs, any_user)).then(|| {
        format!("the peer runs as user {theirs}, but only root and user {own} are trusted")
    }))
}

fn is_trusted(own: u32, theirs: u32, any_user: bool) -> bool {
    theirs == 0 || theirs == own || (any_user && own == 0)
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

    #[test]
    fn only_root_and_same_user_are_trusted() {
        let rows = [(0, 0, true), (1000, 0, true), (1000, 1000, true)];
        let others = [(0, 1000, false), (1000, 1001, false)];
        for (own, theirs, expected) in rows.into_iter().chain(others) {
            assert_eq!(is_trusted(own, theirs, false), expected, "{theirs} with {own}");
        }
        assert!(is_trusted(0, 1000, true), "root may read from any user");
        assert!(!is_trusted(1000, 1001, true));
    }

    #[tokio::test]
    async fn own_process_is_trusted() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(untrusted_peer(&one, false).unwrap(), None);
    }
}
