//! Serves the output of units that run on this daemon's own machines, and what else is asked
//! there.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::{Journal, JournalQuery, ServiceError, ServiceManager, wall_time};
use fleet_core::{MachineId, Timestamp};
use fleet_http::wire::StatusDetails;
use fleet_http::{JournalError, JournalEntry, JournalStream, Journals};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};

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

    fn manager(&self, machine: &MachineId) -> Result<&dyn ServiceManager, JournalError> {
        let manager = self.managers.get(machine);
        let not_here = || JournalError::NotLocal { machine: machine.clone() };
        manager.map(|manager| &**manager).ok_or_else(not_here)
    }
}

#[async_trait]
impl Journals for LocalJournals {
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &fleet_http::JournalRequest,
    ) -> Result<JournalStream, JournalError> {
        let manager = self.manager(machine)?;
        let journal = match &query.after {
            Some(position) => manager.journal_from(unit, position, query.follow).await,
            None => manager.journal(unit, read(query)).await,
        };
        let journal = journal.map_err(|error| failed(machine, error))?;
        Ok(stream::unfold(Some(journal), next).boxed())
    }

    async fn details(
        &self,
        machine: &MachineId,
        unit: &UnitName,
    ) -> Result<Option<StatusDetails>, JournalError> {
        let told = self.manager(machine)?.details(unit).await;
        let told = told.map_err(|error| failed(machine, error))?;
        let is_nothing = told == fleet_agent::UnitDetails::default();
        let fleet_agent::UnitDetails { retry_in, degraded_by, tracking } = told;
        let retry = retry_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let tracking = tracking.unwrap_or_default();
        Ok((!is_nothing).then_some(StatusDetails {
            degraded_by,
            retry_in_milliseconds: retry,
            tracking,
        }))
    }
}

/// The next line; what breaks a journal is told as the last thing of it.
async fn next(
    journal: Option<Journal>,
) -> Option<(Result<JournalEntry, JournalError>, Option<Journal>)> {
    let mut journal = journal?;
    let Some(fleet_agent::JournalLine { at, text, cursor }) = journal.next_line().await else {
        let broke = journal.failure()?;
        return Some((Err(JournalError::Failed(broke.into())), None));
    };
    Some((Ok(JournalEntry { timestamp: at, text, cursor }), Some(journal)))
}

fn failed(machine: &MachineId, error: ServiceError) -> JournalError {
    let machine = machine.clone();
    match error {
        ServiceError::NotLoaded { unit } => JournalError::NotLoaded { unit, machine },
        // It may be back soon, as a daemon may.
        ServiceError::Unavailable(_) => JournalError::Unreachable { machine, cause: error.into() },
        error => JournalError::Failed(error.into()),
    }
}

fn read(query: &fleet_http::JournalRequest) -> JournalQuery {
    let lines = query.lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
    // The machine is this one, so its clock is the one that counts.
    let origin = Timestamp::default();
    let before = |age| origin.after(wall_time().since(origin.after(age)));
    JournalQuery { lines, since: query.since.map(before), follow: query.follow }
}
