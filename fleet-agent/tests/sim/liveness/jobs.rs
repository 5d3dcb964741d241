//! Jobs and schedules: each job ends or runs, and each elapse is decided in time (I-28).

use std::time::Duration;

use fleet_core::job::JobPhase;
use fleet_core::schedule::{RunPhase, ScheduleRecord};
use fleet_core::{KnownUnit, MachineId, Snapshot, TargetState, Timestamp, Unit};
use fleet_unitfile::calendar::Utc;
use fleet_unitfile::{Calendar, UnitName};

use super::{BOUND, STEP};
use crate::clock;
use crate::cluster::Cluster;

/// Time for all retries, deadlines and removals of jobs, by clocks that may have been ahead.
const JOBS: Duration = Duration::from_secs(300);

/// Time in which an elapse is decided, and a recorded run is started.
const IN_TIME: Duration = Duration::from_secs(5);

/// Schedules that elapse in this time keep a cluster from its rest.
const SOON: Duration = Duration::from_secs(3600);

impl Cluster {
    /// Waits until all schedules decide their elapses in time, then destroys those that elapse
    /// soon.
    pub(super) async fn end_schedules(&mut self) {
        let now = self.history.now();
        if now.schedules().len() == 0 && !now.units().any(|unit| calendar(unit).is_some()) {
            return;
        }
        let (mut waited, mut in_time) = (Duration::ZERO, Duration::ZERO);
        while in_time < 2 * IN_TIME {
            let late = schedule_differences(&self.history.now(), clock::date());
            assert!(waited < BOUND, "after {BOUND:?}:\n{}", late.join("\n"));
            in_time = if late.is_empty() { in_time + STEP } else { Duration::ZERO };
            self.wait(STEP).await;
            waited += STEP;
        }
        let now = self.history.now();
        let until = clock::date().after(SOON);
        for unit in now.units().filter(|unit| calendar(unit).is_some()) {
            let next = calendar(unit).and_then(|event| next(event, clock::date()));
            if next.is_some_and(|next| next < until) {
                self.destroy(&unit.name).await;
            }
        }
        self.settle().await;
    }

    /// Returns the time in which all jobs have ended that the clock alone ends.
    pub(super) fn job_bound(&self) -> Duration {
        let has_jobs = self.history.now().units().any(|unit| unit.is_job());
        if has_jobs { JOBS } else { Duration::ZERO }
    }

    /// Whether the clock alone will change a job: it has a retry, a deadline or its removal to
    /// come.
    pub(super) fn awaits_jobs(&self) -> bool {
        let now = self.history.now();
        now.jobs().any(|(unit, record)| {
            let Some(unit) = now.unit(unit.as_str()).filter(|unit| unit.is_job()) else {
                return false;
            };
            let Some(job) = &unit.requirements.job else { return false };
            let seen = record.observe(unit, &now);
            let (state, date) = (&record.state, clock::date());
            // A leader whose clock was ahead, and was set back, waits as long as it has decided.
            let is_delayed = state.retry_at(&job.settings).is_some_and(|retry| retry > date);
            is_delayed || state.clone().advance(&job.settings, &seen, date).next.is_some()
        })
    }
}

/// Returns all deviations of jobs from what their units ask for.
pub(super) fn differences(now: &Snapshot) -> Vec<String> {
    let mut found = schedule_differences(now, clock::date());
    for (name, record) in now.jobs() {
        let unit = now.unit(name.as_str()).filter(|unit| unit.is_job());
        if unit.is_none() && now.fault(name.as_str()).is_none() {
            found.push(format!("I-28: the job of {name} is left over: {record:?}"));
        }
    }
    for unit in now.units().filter(|unit| unit.is_job() && !unit.name.is_template()) {
        let name = unit.name.as_str();
        let (record, placement) = (now.job(name), now.placement(name));
        let text = |text: &str| format!("I-28: {name}: {text}: {record:?}, at {placement:?}");
        let Some(record) = record else {
            if unit.desired == TargetState::Launched {
                found.push(text("there is no job"));
            }
            continue;
        };
        let is_launched = unit.desired == TargetState::Launched;
        match &record.state.phase {
            _ if record.is_outdated(unit) => found.push(text("the job is outdated")),
            JobPhase::Ended { .. } if placement.is_some() => {
                found.push(text("the ended job is still placed"));
            }
            JobPhase::Ended { .. } if unit.desired != TargetState::Inactive => {
                found.push(text("the ended job is still wanted"));
            }
            JobPhase::Ended { .. } => {}
            _ if !is_launched => found.push(text("the stopped job has not ended")),
            JobPhase::Running { machine, .. } => {
                if placement.map(|placement| &placement.machine) != Some(machine) {
                    found.push(text("the running job is placed elsewhere"));
                }
            }
            JobPhase::Pending { since } => {
                // The longest delay is that of a retry.
                let delay = Duration::from_secs(360);
                if placement.is_some() && clock::date() > since.after(delay) {
                    found.push(text("the next attempt is late"));
                }
            }
        }
    }
    found
}

/// Returns whether a job is in its machine's service manager as its record asks for.
pub(super) fn is_as_recorded(
    now: &Snapshot,
    unit: &Unit,
    machine: &MachineId,
    known: KnownUnit,
) -> bool {
    let record = now.job(unit.name.as_str());
    let attempt = record.and_then(|record| record.state.current_attempt());
    attempt.filter(|(on, _)| *on == machine).is_none_or(|(_, attempt)| {
        let is_requested = known.requested == TargetState::Launched;
        is_requested && known.generation == attempt.generation()
    })
}

fn schedule_differences(now: &Snapshot, date: Timestamp) -> Vec<String> {
    let mut found = Vec::new();
    for (name, record) in now.schedules() {
        let unit = now.unit(name.as_str()).filter(|unit| calendar(unit).is_some());
        if unit.is_none() && now.fault(name.as_str()).is_none() {
            found.push(format!("I-28: the schedule of {name} is left over: {record:?}"));
        }
    }
    for unit in now.units() {
        let Some(event) = calendar(unit) else { continue };
        let is_launched = unit.desired == TargetState::Launched;
        match now.schedule(unit.name.as_str()) {
            None if is_launched => found.push(format!("I-28: {} has no schedule", unit.name)),
            None => {}
            Some(record) => {
                let late = lateness(&unit.name, event, record, (now, date));
                found.extend(late.map(|text| format!("I-28: {}: {text}: {record:?}", unit.name)));
            }
        }
    }
    found
}

/// Returns what a schedule should have done by now.
fn lateness(
    name: &UnitName,
    event: &Calendar,
    record: &ScheduleRecord,
    (now, date): (&Snapshot, Timestamp),
) -> Option<String> {
    let state = &record.state;
    let is_paused = state.is_paused && (record.requests.paused || !is_launched(now, name));
    let due = next(event, state.decided_until).filter(|due| due.after(IN_TIME) < date);
    if let Some(due) = due.filter(|_| !is_paused) {
        return Some(format!("the elapse at {due:?} is undecided at {date:?}"));
    }
    if state.run_now != record.requests.run_now {
        return Some("a request is not handled".to_owned());
    }
    let is_stopping = state.runs.iter().any(|run| run.phase == RunPhase::Stopping);
    for run in &state.runs {
        let has_unit = run.id.unit_name(name).is_ok_and(|it| now.unit(it.as_str()).is_some());
        match run.phase {
            RunPhase::Recorded if !is_stopping && run.recorded.after(IN_TIME) < date => {
                return Some(format!("{} is not started", run.id));
            }
            RunPhase::Started | RunPhase::Stopping if !has_unit => {
                return Some(format!("{} is gone", run.id));
            }
            _ => {}
        }
    }
    None
}

fn is_launched(now: &Snapshot, unit: &UnitName) -> bool {
    now.unit(unit.as_str()).is_some_and(|unit| unit.desired == TargetState::Launched)
}

/// Returns the calendar event of a schedule.
fn calendar(unit: &Unit) -> Option<&Calendar> {
    let job = unit.requirements.job.as_ref().filter(|_| !unit.name.is_template());
    job.and_then(|job| job.schedule.as_ref()).map(|schedule| &schedule.calendar)
}

/// Returns the first elapse after a time, in whole seconds as the events of the campaign are.
fn next(event: &Calendar, after: Timestamp) -> Option<Timestamp> {
    let next = event.next_after(Duration::from_millis(after.as_millis()), &Utc)?;
    u64::try_from(next.as_millis()).ok().map(Timestamp::from_millis)
}
