//! Schedules as a part of the cluster, and the observation of their runs in a snapshot.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use super::{
    HistoryEntry, RunEnd, RunId, RunPhase, RunStatus, ScheduleRequests, ScheduleSettings,
    ScheduleState,
};
use crate::{Snapshot, Timestamp, Unit};

/// A schedule that the cluster stores.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of schedules that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// The calendar event that the state belongs to, in the normalized form.
    pub event: String,
    /// Requests of users.
    pub requests: ScheduleRequests,
    /// The state of the schedule.
    pub state: ScheduleState,
}

/// A request of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleRequest {
    /// Elapses make no runs until the schedule is resumed.
    Pause,
    /// Elapses make runs again.
    Resume,
    /// The job runs now, also while the schedule is paused.
    RunNow,
}

impl ScheduleRecord {
    /// Makes the record of a new schedule. Elapses up to now make no runs.
    #[must_use]
    pub fn new(settings: &ScheduleSettings, now: Timestamp) -> Self {
        let (event, requests) = (event_of(settings), ScheduleRequests::default());
        Self { event, requests, state: ScheduleState::new(now) }
    }

    /// Applies a request. Returns whether it changes anything.
    pub fn request(&mut self, request: ScheduleRequest) -> bool {
        let before = self.requests;
        match request {
            ScheduleRequest::Pause => self.requests.paused = true,
            ScheduleRequest::Resume => self.requests.paused = false,
            ScheduleRequest::RunNow => self.requests.run_now = before.run_now.next(),
        }
        self.requests != before
    }

    /// Adapts the schedule to its settings. If the calendar event has changed, earlier elapses of
    /// the new event make no runs.
    pub fn follow(&mut self, settings: &ScheduleSettings, now: Timestamp) {
        let event = event_of(settings);
        if self.event != event {
            self.event = event;
            self.state.skip_until(now);
        }
    }

    /// Returns the record that remains when the unit of the schedule is destroyed; `None` if the
    /// schedule has made no run. The leader destroys the units of the runs, and then removes the
    /// record. If there is a new unit of this name by then, the leader [renews](Self::renewed) it.
    #[must_use]
    pub fn after_destroy(&self) -> Option<Self> {
        let mut state = self.state.clone();
        state.is_paused = false;
        state.runs.retain(|run| run.phase != RunPhase::Recorded);
        let requests = ScheduleRequests { paused: false, run_now: state.run_now };
        let rest = Self { event: String::new(), requests, state };
        let has_runs = rest.started_runs().next().is_some();
        has_runs.then_some(rest)
    }

    /// Whether this is the record of a destroyed schedule: see
    /// [`after_destroy`](Self::after_destroy).
    #[must_use]
    pub fn is_left_over(&self) -> bool {
        self.event.is_empty()
    }

    /// Makes the record of a new schedule from one that was left over. Requests to the new unit and
    /// the numbers of its runs are kept.
    #[must_use]
    pub fn renewed(&self, settings: &ScheduleSettings, now: Timestamp) -> Self {
        let state = ScheduleState { run_now: self.state.run_now, ..ScheduleState::new(now) };
        Self { event: event_of(settings), requests: self.requests, state }
    }

    /// Returns all runs for which a unit was created, latest first. The units of ended runs may
    /// have been removed.
    pub fn started_runs(&self) -> impl Iterator<Item = RunId> + '_ {
        let unfinished = self.state.runs.iter().rev();
        let started = unfinished.filter(|run| run.phase != RunPhase::Recorded).map(|run| run.id);
        let ended = self.state.history.iter().rev().filter_map(|entry| match entry {
            HistoryEntry::Run { result: RunEnd::Removed, .. } | HistoryEntry::Omitted { .. } => {
                None
            }
            HistoryEntry::Run { id, .. } => Some(*id),
        });
        started.chain(ended)
    }

    /// Returns the status of each unfinished run of a schedule that has a unit.
    #[must_use]
    pub fn observe(&self, schedule: &UnitName, snapshot: &Snapshot) -> BTreeMap<RunId, RunStatus> {
        let status = |id: RunId| {
            let name = id.unit_name(schedule).ok()?;
            let unit = snapshot.unit(name.as_str())?;
            Some((id, run_status(unit, snapshot)))
        };
        self.state.runs.iter().filter_map(|run| status(run.id)).collect()
    }
}

/// Returns the event in the normalized form.
fn event_of(settings: &ScheduleSettings) -> String {
    settings.calendar.to_string()
}

fn run_status(unit: &Unit, snapshot: &Snapshot) -> RunStatus {
    let job = snapshot.job(unit.name.as_str());
    let outcome = job.and_then(|job| job.state.settled(&job.observe(unit, snapshot)));
    outcome.map_or(RunStatus::Active, RunStatus::Ended)
}
