//! Client methods for machines.

use fleet_core::MachineId;
use hyper::Method;

use super::query::{self, Query};
use super::{Client, ClientError, none_if_not_found};
use crate::wire::{DrainReport, MachineEntity};

impl Client {
    /// Returns the machine with that ID, or `None` if it is not present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn machine(&self, id: &MachineId) -> Result<Option<MachineEntity>, ClientError> {
        none_if_not_found(self.caller.get(&path(id), &Query::new()).await)
    }

    /// Cordons a machine, so that the engine places no more units on it. If the machine is being
    /// drained, ends the drain.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the machine is not present.
    pub async fn cordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/cordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Uncordons a machine, so that it takes units again. If the machine is being drained, ends the
    /// drain. The machine need not be present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn uncordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/uncordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Drains a machine: orders the engine to move its units to other machines, and returns the
    /// first moves. The engine leaves at least `min_available` instances of each template up. A dry
    /// run returns the moves without ordering them.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the machine is not present.
    pub async fn drain(
        &self,
        id: &MachineId,
        min_available: u32,
        dry_run: bool,
    ) -> Result<DrainReport, ClientError> {
        let query = Query::new().with("keepUp", Some(&min_available.to_string()));
        let query = query.with("dryRun", dry_run.then_some("1"));
        let path = format!("{}/drain{query}", path(id));
        let body = self.caller.send_empty(Method::POST, &path).await?;
        self.caller.decode(&body)
    }

    /// Returns the remaining work of a drain, or `None` if the machine is not being drained.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn drain_status(&self, id: &MachineId) -> Result<Option<DrainReport>, ClientError> {
        none_if_not_found(self.caller.get(&format!("{}/drain", path(id)), &Query::new()).await)
    }
}

pub(super) fn path(id: &MachineId) -> String {
    format!("machines/{}", query::escape(id.as_str()))
}
