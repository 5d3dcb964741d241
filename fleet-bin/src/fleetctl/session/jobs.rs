//! Requests about jobs and schedules.

use fleet_core::schedule::ScheduleRequest;
use fleet_http::client::{ClientError, JobFilter};
use fleet_http::wire::{JobEntity, ScheduleEntity};
use fleet_unitfile::UnitName;

use super::{Session, cannot};
use crate::ui::error::CliError;

impl Session {
    /// Returns all jobs.
    pub(crate) async fn jobs(&self) -> Result<Vec<JobEntity>, CliError> {
        match self.client.jobs(&JobFilter::default()).await {
            Err(ClientError::Api { status: 404, .. }) => Err(too_old("list the jobs")),
            jobs => jobs.map_err(|error| cannot("list the jobs", error)),
        }
    }

    /// Returns the job of a unit; `None` if the cluster does not know it as a job.
    pub(crate) async fn find_job(&self, unit: &UnitName) -> Result<Option<JobEntity>, CliError> {
        let job = self.client.job(unit).await;
        job.map_err(|error| cannot(format!("read the job {unit}"), error))
    }

    /// Returns the job of a unit.
    pub(crate) async fn job(&self, unit: &UnitName) -> Result<JobEntity, CliError> {
        if let Some(job) = self.find_job(unit).await? {
            return Ok(job);
        }
        let known = self.known_unit(unit).await?;
        let error = CliError::failed(format!("{unit} is not a job"));
        Err(match known.schedule {
            Some(_) => error.help(format!("\"fleetctl schedule status {unit}\" shows its runs")),
            None => error.help("\"fleetctl job list --all\" lists the jobs"),
        })
    }

    /// Returns all schedules.
    pub(crate) async fn schedules(&self) -> Result<Vec<ScheduleEntity>, CliError> {
        match self.client.schedules().await {
            Err(ClientError::Api { status: 404, .. }) => Err(too_old("list the schedules")),
            schedules => schedules.map_err(|error| cannot("list the schedules", error)),
        }
    }

    /// Returns the schedule of a unit.
    pub(crate) async fn schedule(&self, unit: &UnitName) -> Result<ScheduleEntity, CliError> {
        let schedule = self.client.schedule(unit).await;
        let schedule = schedule.map_err(|error| cannot(format!("read {unit}"), error))?;
        match schedule {
            Some(schedule) => Ok(schedule),
            None => Err(self.no_schedule(unit).await),
        }
    }

    /// Sends a request to a schedule. `verb` is for messages.
    pub(crate) async fn request_schedule(
        &self,
        unit: &UnitName,
        request: ScheduleRequest,
        verb: &str,
    ) -> Result<ScheduleEntity, CliError> {
        // The check names the mistake better than the error of the request.
        self.schedule(unit).await?;
        let schedule = self.client.request_schedule(unit, request).await;
        schedule.map_err(|error| cannot(format!("{verb} {unit}"), error))
    }

    async fn no_schedule(&self, unit: &UnitName) -> CliError {
        let known = match self.known_unit(unit).await {
            Ok(known) => known,
            Err(error) => return error,
        };
        let error = CliError::failed(format!("{unit} has no schedule")).final_answer();
        match known.job {
            Some(_) => error.help(format!("\"fleetctl run {unit}\" runs the job")),
            None => error.help("\"fleetctl schedule list\" lists the schedules"),
        }
    }
}

fn too_old(what: &str) -> CliError {
    CliError::failed(format!("cannot {what}: this fleetd is older than fleetctl"))
        .help("upgrade fleetd, or use the fleetctl of its version")
}
