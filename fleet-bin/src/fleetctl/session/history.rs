//! Calls for the history of a unit: its events, and its earlier files.

use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::{Session, cannot};
use crate::ui::error::CliError;

impl Session {
    /// Returns the last events of a unit; `None` if the cluster does not know it.
    pub(crate) async fn history(
        &self,
        name: &UnitName,
    ) -> Result<Option<Vec<wire::UnitEventEntity>>, CliError> {
        let history = self.client.history(name).await;
        history.map_err(|error| cannot(format!("read the history of {name}"), error))
    }

    /// Returns the revisions of a unit; `None` if the cluster does not know it.
    pub(crate) async fn revisions(
        &self,
        name: &UnitName,
    ) -> Result<Option<Vec<wire::UnitRevisionEntity>>, CliError> {
        let revisions = self.client.revisions(name).await;
        revisions.map_err(|error| cannot(format!("list the revisions of {name}"), error))
    }
}
