//! What a client can do with machines.

use fleet_core::MachineId;
use hyper::Method;

use super::query::{self, Query};
use super::{Client, ClientError, found};
use crate::wire::{DrainReport, Machine};

impl Client {
    /// The machine of that ID; `None` if it is not present.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn machine(&self, id: &MachineId) -> Result<Option<Machine>, ClientError> {
        found(self.caller.get(&path(id), &Query::new()).await)
    }

    /// Lets a machine take no more units; a drain of it ends.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when it is not present.
    pub async fn cordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/cordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Lets a machine take units again, present or not; a drain of it ends.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn uncordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/uncordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Has a machine emptied, with so many instances of each template up at any time, and returns
    /// what will be done first; where it is a dry run that is all.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when it is not present.
    pub async fn drain(
        &self,
        id: &MachineId,
        keep_up: u32,
        dry_run: bool,
    ) -> Result<DrainReport, ClientError> {
        let query = Query::new().with("keepUp", Some(&keep_up.to_string()));
        let query = query.with("dryRun", dry_run.then_some("1"));
        let path = format!("{}/drain{query}", path(id));
        let body = self.caller.send_empty(Method::POST, &path).await?;
        self.caller.decode(&body)
    }

    /// What is left to be done on a machine that is drained; `None` if it is not drained.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn draining(&self, id: &MachineId) -> Result<Option<DrainReport>, ClientError> {
        found(self.caller.get(&format!("{}/drain", path(id)), &Query::new()).await)
    }
}

pub(super) fn path(id: &MachineId) -> String {
    format!("machines/{}", query::escape(id.as_str()))
}
