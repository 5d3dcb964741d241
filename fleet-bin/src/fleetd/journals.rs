//! Serves the output of units that run on this daemon's own machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::{JournalQuery, ServiceError, ServiceManager, wall_time};
use fleet_core::{MachineId, Timestamp};
use fleet_http::{JournalError, JournalLine, JournalStream, Journals};
use fleet_unitfile::UnitName;

/// The service managers of this daemon's machines.
pub(crate) struct LocalJournals {
    managers: BTreeMap<MachineId, Arc<dyn ServiceManager>>,
}

impl LocalJournals {
    pub(crate) fn new(
        managers: impl IntoIterator<Item = (MachineId, Arc<dyn ServiceManager>)>,
    ) -> Self {
        Self { managers: managers.into_iter().collect() }
    }
}

#[async_trait]
impl Journals for LocalJournals {
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &fleet_http::JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        let manager = self.managers.get(machine);
        let manager = manager.ok_or_else(|| JournalError::NotHere { machine: machine.clone() })?;
        let journal = match &query.after {
            Some(position) => manager.journal_after(unit, position, query.follow).await,
            None => manager.journal(unit, read(query)).await,
        };
        let journal = journal.map_err(|error| match error {
            ServiceError::NotLoaded { unit } => {
                JournalError::NotLoaded { unit, machine: machine.clone() }
            }
            error => JournalError::Failed(error.into()),
        })?;
        let lines = futures_util::stream::unfold(journal, async |mut journal| {
            let fleet_agent::JournalLine { at, text, position } = journal.next_line().await?;
            Some((Ok(JournalLine { at, text, position }), journal))
        });
        Ok(Box::pin(lines))
    }
}

fn read(query: &fleet_http::JournalQuery) -> JournalQuery {
    let lines = query.lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
    // The machine is this one, so its clock is the one that counts.
    let origin = Timestamp::default();
    let before = |age| origin.after(wall_time().since(origin.after(age)));
    JournalQuery { lines, since: query.since.map(before), follow: query.follow }
}
