//! Schedules: reports of their runs, and requests.

use fleet_core::schedule::{
    HistoryEntry, RunId, RunPhase, ScheduleRecord, ScheduleRequest, ScheduleSettings, ScheduledRun,
};
use fleet_core::{Generation, Snapshot, TargetState, Unit};
use fleet_unitfile::UnitName;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;
use super::entity::{is_false, is_zero};
use crate::clock::wall_time;

/// The schedule of a unit, in brief.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ScheduleSummary {
    /// Next elapse. Missing while the schedule makes no runs by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
    /// Whether a user has paused the schedule.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// The state: `on`, `paused`, or `off` if the desired state of the unit is not `launched`.
    pub state: String,
}

/// A page of schedules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct SchedulePage {
    /// Token that requests the next page; empty on the last page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
    /// The schedules, ordered by name.
    pub schedules: Vec<ScheduleEntity>,
}

/// A schedule. Times are by the clock of the leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = Schedule)]
#[non_exhaustive]
pub struct ScheduleEntity {
    /// Treatment of missed elapses: `once` or `none`.
    pub catch_up: String,
    /// Treatment of an elapse while an earlier run is unfinished: `allow`, `forbid` or `replace`.
    pub concurrency_policy: String,
    /// The calendar event, in the normalized form.
    pub event: String,
    /// Number of the last request to run now that the leader has handled.
    #[serde(skip_serializing_if = "is_zero")]
    pub handled: u64,
    /// The last twenty finished runs, and elapses without a run, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ScheduleHistoryEntry>,
    /// Name of the unit.
    pub name: String,
    /// Number of requests to run now.
    #[serde(skip_serializing_if = "is_zero")]
    pub requested: u64,
    /// Unfinished runs, in the order in which they were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<ScheduleRun>,
    /// The state in brief.
    #[serde(flatten)]
    pub summary: ScheduleSummary,
}

/// An unfinished run of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScheduleRun {
    /// Number of the request that the run follows from, if a request made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<u64>,
    /// The phase: `recorded` before its unit exists, `started`, or `stopping` for another run.
    pub phase: String,
    /// The time at which the leader recorded the run.
    pub recorded: Time,
    /// Name of the run's unit.
    pub unit: String,
}

/// A finished run of a schedule, or elapses and requests that made no run for the same reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScheduleHistoryEntry {
    /// Number of elapses and requests without a run; zero for a run.
    #[serde(skip_serializing_if = "is_zero")]
    pub count: u64,
    /// The time at which the leader recorded the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Number of the last request among them, if a request is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<u64>,
    /// The time at which the leader recorded the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Time>,
    /// The outcome of the run, or the reason for no run.
    pub result: String,
    /// The entry as one line.
    pub text: String,
    /// Name of the run's unit, which may have been removed since. Empty without a run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// Body of `POST /schedules/<unit>`: a request to a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleCommand {
    /// `pause`, `resume`, or `runNow`, which also works while the schedule is paused.
    #[schema(pattern = "^(pause|resume|runNow)$", example = "pause")]
    pub request: String,
}

impl ScheduleCommand {
    pub(crate) fn new(request: ScheduleRequest) -> Self {
        Self { request: name_of(request).to_owned() }
    }

    pub(crate) fn request(&self) -> Option<ScheduleRequest> {
        use ScheduleRequest::{Pause, Resume, RunNow};
        [Pause, Resume, RunNow].into_iter().find(|it| name_of(*it) == self.request)
    }
}

const fn name_of(request: ScheduleRequest) -> &'static str {
    match request {
        ScheduleRequest::Pause => "pause",
        ScheduleRequest::Resume => "resume",
        ScheduleRequest::RunNow => "runNow",
    }
}

/// A schedule with its unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleView<'a> {
    unit: &'a Unit,
    settings: &'a ScheduleSettings,
    /// The record; `None` before the leader has made it.
    record: Option<&'a ScheduleRecord>,
}

impl<'a> ScheduleView<'a> {
    /// Returns the schedule of a unit; `None` if the unit has none.
    pub(crate) fn new(unit: &'a Unit, snapshot: &'a Snapshot) -> Option<Self> {
        let job = unit.requirements.job.as_ref().filter(|_| !unit.name.is_template())?;
        let record = snapshot.schedule(unit.name.as_str()).map(|record| &**record);
        Some(Self { unit, settings: job.schedule.as_ref()?, record })
    }

    /// Replaces the record by a newer one.
    pub(crate) fn with_record(self, record: &'a ScheduleRecord) -> Self {
        Self { record: Some(record), ..self }
    }

    pub(crate) fn summary(&self) -> ScheduleSummary {
        let paused = self.record.is_some_and(|record| record.requests.paused);
        let state = match (self.unit.desired == TargetState::Launched, paused) {
            (false, _) => "off",
            (true, true) => "paused",
            (true, false) => "on",
        };
        let next = self.record.filter(|_| state == "on").and_then(|record| {
            let zone = self.settings.calendar.time_zone(&TimeZone::UTC, jiff::tz::db()).ok()?;
            let decided = record.state.decided_until;
            // The leader has not handled the end of a pause yet.
            let after = if record.state.is_paused { decided.max(wall_time()) } else { decided };
            self.settings.next_elapse(&zone, after)
        });
        ScheduleSummary { next: next.map(Time::from), paused, state: state.to_owned() }
    }

    pub(crate) fn entity(&self) -> ScheduleEntity {
        let ScheduleSettings { calendar, concurrency, catch_up } = self.settings;
        let name = &self.unit.name;
        let entity = ScheduleEntity {
            catch_up: catch_up.to_string(),
            concurrency_policy: concurrency.to_string(),
            event: calendar.to_string(),
            name: name.to_string(),
            summary: self.summary(),
            ..ScheduleEntity::default()
        };
        let Some(ScheduleRecord { requests, state, .. }) = self.record else { return entity };
        ScheduleEntity {
            handled: state.run_now.0,
            history: state.history.iter().map(|entry| history_entry(entry, name)).collect(),
            requested: requests.run_now.0,
            runs: state.runs.iter().map(|it| run(it, name)).collect(),
            ..entity
        }
    }
}

fn run(run: &ScheduledRun, schedule: &UnitName) -> ScheduleRun {
    let phase = match run.phase {
        RunPhase::Recorded => "recorded",
        RunPhase::Started => "started",
        RunPhase::Stopping => "stopping",
    };
    ScheduleRun {
        manual: manual(run.id),
        phase: phase.to_owned(),
        recorded: run.recorded.into(),
        unit: unit_of(run.id, schedule),
    }
}

fn history_entry(entry: &HistoryEntry, schedule: &UnitName) -> ScheduleHistoryEntry {
    let text = entry.to_string();
    match entry {
        HistoryEntry::Run { id, recorded, ended, result } => ScheduleHistoryEntry {
            ended: Some((*ended).into()),
            manual: manual(*id),
            recorded: Some((*recorded).into()),
            result: result.to_string(),
            text,
            unit: unit_of(*id, schedule),
            ..ScheduleHistoryEntry::default()
        },
        HistoryEntry::Omitted { last, count, reason, .. } => ScheduleHistoryEntry {
            count: *count,
            manual: manual(*last),
            result: reason.to_string(),
            text,
            ..ScheduleHistoryEntry::default()
        },
    }
}

fn manual(id: RunId) -> Option<u64> {
    match id {
        RunId::Manual(Generation(number)) => Some(number),
        RunId::Elapse(_) => None,
    }
}

fn unit_of(id: RunId, schedule: &UnitName) -> String {
    id.unit_name(schedule).map_or_else(|_| id.to_string(), |unit| unit.to_string())
}
