//! Jobs and schedules.

use fleet_core::schedule::ScheduleRequest;
use fleet_unitfile::UnitName;
use hyper::Method;

use super::query::{self, Query};
use super::{Client, ClientError, none_if_not_found};
use crate::wire::{JobEntity, JobPage, ScheduleCommand, ScheduleEntity, SchedulePage};

/// Filter for jobs. A job must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFilter {
    /// Only jobs whose current attempt, or else whose unit, is on this machine.
    pub machine: Option<String>,
    /// Only jobs in this phase. `ended` selects all outcomes.
    pub phase: Option<String>,
    /// Only instances of this template.
    pub template: Option<UnitName>,
}

/// Jobs and schedules.
impl Client {
    /// Returns the jobs that match the filter at one revision, ordered by name. They have no
    /// output.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobEntity>, ClientError> {
        let query = Query::new()
            .with("machineID", filter.machine.as_deref())
            .with("phase", filter.phase.as_deref())
            .with("template", filter.template.as_ref().map(UnitName::as_str));
        let split = |page: JobPage| (page.jobs, page.next_page_token);
        self.caller.list("jobs", &query, split).await
    }

    /// Returns the job of a unit, or `None` if the unit does not exist or is not a job.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn job(&self, unit: &UnitName) -> Result<Option<JobEntity>, ClientError> {
        none_if_not_found(self.caller.get(&path("jobs", unit), &Query::new()).await)
    }

    /// Returns all schedules at one revision, ordered by name.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn schedules(&self) -> Result<Vec<ScheduleEntity>, ClientError> {
        let split = |page: SchedulePage| (page.schedules, page.next_page_token);
        self.caller.list("schedules", &Query::new(), split).await
    }

    /// Returns the schedule of a unit, or `None` if the unit does not exist or has no schedule.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn schedule(&self, unit: &UnitName) -> Result<Option<ScheduleEntity>, ClientError> {
        none_if_not_found(self.caller.get(&path("schedules", unit), &Query::new()).await)
    }

    /// Sends a request to a schedule, and returns the schedule.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the unit does not exist or has no schedule,
    /// or if no leader has seen the schedule yet.
    pub async fn request_schedule(
        &self,
        unit: &UnitName,
        request: ScheduleRequest,
    ) -> Result<ScheduleEntity, ClientError> {
        let command = ScheduleCommand::new(request);
        let path = path("schedules", unit);
        let (_, body) = self.caller.send(Method::POST, &path, None, &command).await?;
        self.caller.decode(&body)
    }
}

fn path(resource: &str, unit: &UnitName) -> String {
    format!("{resource}/{}", query::escape(unit.as_str()))
}
