//! Journals and details of the units on this daemon's machines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::journal::{Journal, JournalReader};
use fleet_agent::usage::{HostUsage, ResourceUsage};
use fleet_agent::{ManagedUnit, ServiceError, ServiceManager};
use fleet_core::MachineId;
use fleet_core::journal::JournalLine;
use fleet_core::journal::JournalQuery;
use fleet_http::Journals;
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::wire::{MachineUsage, StatusDetails, Time, UnitUsage};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};

/// A machine of this daemon.
pub(crate) struct LocalMachine {
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) journals: Arc<dyn JournalReader>,
}

/// Journals and details of the units on this daemon's machines.
pub(crate) struct LocalJournals {
    machines: BTreeMap<MachineId, LocalMachine>,
}

impl LocalJournals {
    pub(crate) fn new(machines: impl IntoIterator<Item = (MachineId, LocalMachine)>) -> Self {
        Self { machines: machines.into_iter().collect() }
    }

    fn machine(&self, machine: &MachineId) -> Result<&LocalMachine, JournalError> {
        let not_here = || JournalError::NotLocal { machine: machine.clone() };
        self.machines.get(machine).ok_or_else(not_here)
    }
}

#[async_trait]
impl Journals for LocalJournals {
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        let journal = self.machine(machine)?.journals.journal(unit, query.clone()).await;
        let journal = journal.map_err(|error| failed(machine, error))?;
        Ok(stream::unfold(Some(journal), next).boxed())
    }

    async fn details(
        &self,
        machine: &MachineId,
        unit: &UnitName,
    ) -> Result<Option<StatusDetails>, JournalError> {
        let manager = &self.machine(machine)?.manager;
        let read = async { tokio::try_join!(manager.details(unit), manager.get(unit)) };
        let (details, managed) = read.await.map_err(|error| failed(machine, error))?;
        let usage = usage_of(managed.into_iter().collect()).await.pop();
        let is_nothing = details == fleet_agent::UnitDetails::default() && usage.is_none();
        let fleet_agent::UnitDetails {
            status_text,
            retry_in,
            degraded_by,
            ignored_options,
            ignored_sandboxing,
            tracking,
            next_elapse,
            last_elapse,
            ..
        } = details;
        let retry = retry_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let tracking = tracking.unwrap_or_default();
        let shown = StatusDetails::default()
            .with_degraded_by(degraded_by)
            .with_ignored_options(ignored_options)
            .with_ignored_sandboxing(ignored_sandboxing)
            .with_last_elapse(last_elapse.map(Time::from))
            .with_next_elapse(next_elapse.map(Time::from))
            .with_retry_in_milliseconds(retry)
            .with_status_text(status_text.unwrap_or_default())
            .with_tracking(tracking)
            .with_usage(usage);
        Ok((!is_nothing).then_some(shown))
    }

    async fn usage(&self, machine: &MachineId) -> Result<MachineUsage, JournalError> {
        let units = self.machine(machine)?.manager.list().await;
        let units = usage_of(units.map_err(|error| failed(machine, error))?).await;
        let host = tokio::task::spawn_blocking(HostUsage::read).await.unwrap_or_default();
        let mut usage = MachineUsage::default();
        usage.machine_id = machine.to_string();
        (usage.cpus, usage.cpu_nanoseconds) = (host.cpus, host.cpu.map(nanoseconds));
        usage.load_average = host.load_average;
        usage.memory_total = host.memory_total;
        usage.memory_available = host.memory_available;
        usage.units = units;
        Ok(usage)
    }
}

/// Reads the resources that units use, as far as they have a main process.
async fn usage_of(units: Vec<ManagedUnit>) -> Vec<UnitUsage> {
    let read = move || {
        let usage = |unit: ManagedUnit| {
            let ResourceUsage { memory, cpu, tasks, .. } =
                ResourceUsage::read(&unit.unit, unit.state.main_pid?);
            let (name, cpu_nanoseconds) = (unit.unit.to_string(), cpu.map(nanoseconds));
            Some(UnitUsage { cpu_nanoseconds, memory, name, tasks })
        };
        units.into_iter().filter_map(usage).collect()
    };
    // It panics at most if the runtime ends.
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the next line of a journal and the rest of the journal. If reading fails, the error is
/// the last item.
async fn next(
    journal: Option<Journal>,
) -> Option<(Result<JournalLine, JournalError>, Option<Journal>)> {
    let mut journal = journal?;
    let Some(line) = journal.next_line().await else {
        let failure = journal.failure()?;
        return Some((Err(JournalError::Failed(failure.into())), None));
    };
    Some((Ok(line), Some(journal)))
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
