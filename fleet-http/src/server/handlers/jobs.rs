//! Jobs and schedules: listed, shown, and requests to schedules.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use fleet_core::{Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::extract::{Name, Params, read_body};
use super::listings::template;
use super::openapi::{self as path, Failures, Page};
use crate::server::api::{Listing, SharedApi};
use crate::server::failure::Failure;
use crate::wire::{
    JobEntity, JobPage, JobView, ScheduleCommand, ScheduleEntity, SchedulePage, ScheduleView,
};

/// Filter for jobs. A job must match all fields that are set.
#[derive(Debug, Clone)]
struct JobFilter {
    machine: Option<String>,
    phase: Option<String>,
    template: Option<UnitName>,
}

impl JobFilter {
    /// Phase in the query that stands for all outcomes.
    const ENDED: &str = "ended";

    const PHASES: [&str; 8] = [
        "not started",
        "pending",
        "running",
        "succeeded",
        "failed",
        "deadline exceeded",
        "stopped",
        Self::ENDED,
    ];

    fn read(params: &Params) -> Result<Self, Failure> {
        let phase = params.non_empty("phase");
        if let Some(phase) = phase.filter(|phase| !Self::PHASES.contains(phase)) {
            return Err(Failure::bad_request(format!(
                "query parameter \"phase\": {phase:?} is unknown; use one of: {}",
                Self::PHASES.join(", ")
            )));
        }
        let (machine, template) = (params.non_empty("machineID"), template(params)?);
        let text = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self { machine: text(machine), phase: text(phase), template })
    }

    fn matches(&self, name: &UnitName, job: &JobView<'_>) -> bool {
        let has_ended = || job.summary().has_ended;
        let is_in = |phase: &String| match phase.as_str() {
            Self::ENDED => has_ended(),
            phase => job.phase() == phase,
        };
        self.machine.as_ref().is_none_or(|machine| job.machine() == Some(machine))
            && self.phase.as_ref().is_none_or(is_in)
            && (self.template.is_none() || name.template() == self.template)
    }
}

/// List the jobs.
///
/// Includes those that have ended, until their units are removed. Page tokens do not contain the
/// filters, so repeat the filters in the request for each page.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "listJobs",
    tag = "units",
    params(
        Page,
        (
            "machineID" = Option<String>, Query,
            description = "Only jobs whose current attempt, or else whose unit, is on this machine",
        ),
        (
            "phase" = Option<String>, Query,
            description = "Only jobs in this phase, such as running; ended selects all outcomes",
        ),
        ("template" = Option<String>, Query, description = "Only instances of this template"),
    ),
    responses(
        (status = 200, body = JobPage, description = "A page of jobs, without their output"),
        Failures,
    ),
)]
pub(crate) async fn list(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<JobPage>, Failure> {
    let listing = api.listing(&params)?;
    let filter = JobFilter::read(&params)?;
    let (jobs, next_page_token) = page_of_units(&api, &listing, |unit| {
        JobView::new(unit, &listing.snapshot).filter(|job| filter.matches(&unit.name, job))
    });
    let jobs = jobs.iter().map(|job| job.entity(false)).collect();
    Ok(Json(JobPage { jobs, next_page_token }))
}

/// Get a job, with its last attempts and their output.
#[utoipa::path(
    get,
    path = "/jobs/{name}",
    operation_id = "getJob",
    tag = "units",
    params(path::UnitName),
    responses(
        (status = 200, body = JobEntity, description = "The job"),
        Failures,
    ),
)]
pub(crate) async fn get(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<JobEntity>, Failure> {
    let known = api.view()?;
    let unit = known.unit(&name).ok_or_else(Failure::no_unit)?;
    let job = JobView::new(unit, &known).ok_or_else(|| {
        Failure::not_found(format!("{name} is not a job: it has no RunOnce=true, or has Schedule="))
    })?;
    Ok(Json(job.entity(true)))
}

/// List the schedules.
#[utoipa::path(
    get,
    path = "/schedules",
    operation_id = "listSchedules",
    tag = "units",
    params(Page),
    responses(
        (status = 200, body = SchedulePage, description = "A page of schedules"),
        Failures,
    ),
)]
pub(crate) async fn list_schedules(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<SchedulePage>, Failure> {
    let listing = api.listing(&params)?;
    let (schedules, next_page_token) =
        page_of_units(&api, &listing, |unit| ScheduleView::new(unit, &listing.snapshot));
    let schedules = schedules.iter().map(ScheduleView::entity).collect();
    Ok(Json(SchedulePage { next_page_token, schedules }))
}

/// Get a schedule, with its unfinished runs and its history.
#[utoipa::path(
    get,
    path = "/schedules/{name}",
    operation_id = "getSchedule",
    tag = "units",
    params(path::UnitName),
    responses(
        (status = 200, body = ScheduleEntity, description = "The schedule"),
        Failures,
    ),
)]
pub(crate) async fn get_schedule(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<ScheduleEntity>, Failure> {
    let known = api.view()?;
    Ok(Json(schedule(&known, &name)?.entity()))
}

/// Pause or resume a schedule, or run its job now.
#[utoipa::path(
    post,
    path = "/schedules/{name}",
    operation_id = "requestSchedule",
    tag = "units",
    params(path::UnitName),
    request_body = ScheduleCommand,
    responses(
        (status = 200, body = ScheduleEntity, description = "The schedule after the request"),
        Failures,
    ),
)]
pub(crate) async fn request_schedule(
    State(api): State<SharedApi>,
    Name(name): Name,
    request: Request,
) -> Result<Json<ScheduleEntity>, Failure> {
    let (head, body) = request.into_parts();
    let command: ScheduleCommand =
        serde_json::from_slice(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let request = command.request().ok_or_else(|| {
        let text = "write \"pause\", \"resume\" or \"runNow\"";
        Failure::bad_request(format!("request: {:?} is unknown: {text}", command.request))
    })?;
    let unit = UnitName::parse(&name).map_err(|_| Failure::no_unit())?;
    schedule(&*api.view()?, &name)?;
    let (record, revision) = api.registry.request_schedule(&unit, request).await?;
    api.wait_until_visible(revision).await;
    let known = api.view()?;
    Ok(Json(schedule(&known, &name)?.with_record(&record).entity()))
}

fn schedule<'a>(known: &'a Snapshot, name: &str) -> Result<ScheduleView<'a>, Failure> {
    let unit = known.unit(name).ok_or_else(Failure::no_unit)?;
    ScheduleView::new(unit, known).ok_or_else(|| {
        Failure::not_found(format!("{name} has no schedule: its file has no Schedule="))
    })
}

/// Returns the page of the units for which `view` returns a value, and the token of the next page.
fn page_of_units<'a, V>(
    api: &SharedApi,
    listing: &'a Listing,
    view: impl Fn(&'a Arc<Unit>) -> Option<V>,
) -> (Vec<V>, String) {
    let snapshot = &listing.snapshot;
    let first = listing.first.as_deref().and_then(|name| UnitName::parse(name).ok());
    let units: Box<dyn Iterator<Item = _>> = match &first {
        None => Box::new(snapshot.units()),
        Some(first) => Box::new(snapshot.units_from(first.clone())),
    };
    let views = units.filter_map(|unit| Some((&unit.name, view(unit)?)));
    let name = |(name, _): (&UnitName, V)| name.to_string();
    let (page, next_page_token) = api.page(listing, first.is_some(), views, |_| 0, name);
    (page.into_iter().map(|(_, view)| view).collect(), next_page_token)
}
