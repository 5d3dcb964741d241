//! Journals and details of the units on this daemon's machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::{Journal, JournalQuery, ServiceError, ServiceManager, wall_time};
use fleet_core::{MachineId, Timestamp};
use fleet_http::wire::StatusDetails;
use fleet_http::{JournalEntry, JournalError, JournalStream, Journals};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};

/// Service managers of this daemon's machines.
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
            Some(cursor) => manager.journal_from(unit, cursor, query.follow).await,
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
        let details = self.manager(machine)?.details(unit).await;
        let details = details.map_err(|error| failed(machine, error))?;
        let is_nothing = details == fleet_agent::UnitDetails::default();
        let fleet_agent::UnitDetails { retry_in, degraded_by, tracking, next_elapse, last_elapse } =
            details;
        let retry = retry_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let tracking = tracking.unwrap_or_default();
        Ok((!is_nothing).then_some(StatusDetails {
            degraded_by,
            last_elapse: last_elapse.map(Timestamp::as_millis),
            next_elapse: next_elapse.map(Timestamp::as_millis),
            retry_in_milliseconds: retry,
            tracking,
        }))
    }
}

/// Returns the next line of a journal and the rest of the journal. If reading fails, the error is
/// the last item.
async fn next(
    journal: Option<Journal>,
) -> Option<(Result<JournalEntry, JournalError>, Option<Journal>)> {
    let mut journal = journal?;
    let Some(fleet_agent::JournalLine { at, text, cursor }) = journal.next_line().await else {
        let failure = journal.failure()?;
        return Some((Err(JournalError::Failed(failure.into())), None));
    };
    Some((Ok(JournalEntry { timestamp: at, text, cursor }), Some(journal)))
}

fn failed(machine: &MachineId, error: ServiceError) -> JournalError {
    let machine = machine.clone();
    match error {
        ServiceError::NotLoaded { unit } => JournalError::NotLoaded { unit, machine },
        // The service manager may return soon, like a daemon.
        ServiceError::Unavailable(_) => JournalError::Unreachable { machine, cause: error.into() },
        error => JournalError::Failed(error.into()),
    }
}

fn read(query: &fleet_http::JournalRequest) -> JournalQuery {
    let lines = query.lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
    // The machine is local, so the local clock applies.
    let origin = Timestamp::default();
    let before = |age| origin.after(wall_time().since(origin.after(age)));
    JournalQuery { lines, since: query.since.map(before), follow: query.follow }
}
