//! Serves the output of units that run on this daemon's own machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::{JournalQuery, ServiceError, ServiceManager, Shutdown, wall_time};
use fleet_core::{MachineId, Timestamp};
use fleet_http::{JournalError, JournalLine, JournalStream, Journals};
use fleet_unitfile::UnitName;

/// The service managers of this daemon's machines.
pub(crate) struct LocalJournals {
    managers: BTreeMap<MachineId, Arc<dyn ServiceManager>>,
    /// Ends the journals that are followed, so that nobody waits for a daemon that has gone.
    shutdown: Shutdown,
}

impl LocalJournals {
    pub(crate) fn new(
        managers: impl IntoIterator<Item = (MachineId, Arc<dyn ServiceManager>)>,
        shutdown: Shutdown,
    ) -> Self {
        Self { managers: managers.into_iter().collect(), shutdown }
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
        let lines = query.lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
        // The machine is this one, so its clock is the one that counts.
        let origin = Timestamp::default();
        let before = |age| origin.after(wall_time().since(origin.after(age)));
        let since = query.since.map(before);
        let query = JournalQuery { lines, since, follow: query.follow };
        let journal = manager.journal(unit, query).await;
        let journal = journal.map_err(|error| match error {
            ServiceError::NotLoaded { unit } => {
                JournalError::NotLoaded { unit, machine: machine.clone() }
            }
            error => JournalError::Failed(error.into()),
        })?;
        let source = (journal, self.shutdown.clone());
        let lines = futures_util::stream::unfold(source, async |(mut journal, mut shutdown)| {
            let line = tokio::select! {
                line = journal.next_line() => line?,
                () = shutdown.wait() => return None,
            };
            let line = JournalLine { at: line.at, text: line.text };
            Some((Ok(line), (journal, shutdown)))
        });
        Ok(Box::pin(lines))
    }
}
