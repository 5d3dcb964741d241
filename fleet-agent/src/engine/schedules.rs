//! Decisions about schedules: which runs to create, to stop and to remove.

use std::sync::Arc;

use fleet_core::schedule::{
    HistoryEntry, RunEnd, RunId, RunPhase, ScheduleAction, ScheduleRecord, ScheduleRequests,
    ScheduleSettings,
};
use fleet_core::{Snapshot, TargetState, Timestamp, Unit};
use fleet_store::registry::{NewUnit, UnitWrite};
use fleet_unitfile::UnitName;
use jiff::tz::TimeZone;

use super::jobs::Decision;

/// Number of ended runs whose units are kept if the unit has no `KeepFor=`.
const KEPT_RUNS: usize = 3;

/// Maximum number of units of runs that are destroyed in one step.
const DESTROYED_RUNS: usize = 10;

/// Options that the unit of a run does not have.
const SCHEDULE_OPTIONS: [&str; 3] = ["Schedule", "ConcurrencyPolicy", "CatchUp"];

/// Decides the next state of the schedule of a unit, which may not exist.
///
/// A run is recorded in one step. Its unit is created in a later step, which requires that the
/// record is still the stored one.
pub(super) fn decide_schedule(
    name: &UnitName,
    unit: Option<&Unit>,
    seen: Option<&ScheduleRecord>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Decision<ScheduleRecord> {
    let Some((unit, settings)) = unit.and_then(|unit| Some((unit, schedule_of(unit)?))) else {
        return seen.map_or_else(Decision::none, |record| end_runs(name, record, snapshot, now));
    };
    let is_on = unit.desired == TargetState::Launched;
    let mut next = match seen {
        Some(seen) if seen.is_left_over() => {
            let end = end_runs(name, seen, snapshot, now);
            if !end.writes.is_empty() {
                return end;
            }
            seen.renewed(settings, now)
        }
        Some(seen) => seen.clone(),
        None if !is_on => return Decision::none(),
        None => ScheduleRecord::new(settings, now),
    };
    let Ok(zone) = settings.calendar.time_zone(&TimeZone::UTC, jiff::tz::db()) else {
        let zone = settings.calendar.zone();
        tracing::warn!(%name, zone, "this machine does not know the time zone of a schedule");
        return Decision { next: seen.cloned(), ..Decision::none() };
    };
    next.follow(settings, now);
    let ScheduleRequests { paused, run_now } = next.requests;
    let requests = ScheduleRequests { paused: paused || !is_on, run_now };
    let statuses = next.observe(name, snapshot);
    let step = next.state.advance(settings, requests, &statuses, &zone, now);
    let mut writes = Vec::new();
    if seen == Some(&next) {
        for action in step.actions {
            // Several large files may not fit into one transaction.
            let is_start = matches!(action, ScheduleAction::Start { .. });
            writes.extend(write_of(action, unit, &mut next, snapshot));
            if is_start && !writes.is_empty() {
                break;
            }
        }
        let keeps = unit.requirements.job.as_ref().and_then(|job| job.settings.keep_for);
        if writes.is_empty() && keeps.is_none() {
            writes = removals(name, &next, KEPT_RUNS, snapshot);
        }
    }
    Decision { next: Some(next), writes, is_active: true, due: step.next }
}

/// Returns the settings of the schedule of a unit. A template has none.
fn schedule_of(unit: &Unit) -> Option<&ScheduleSettings> {
    let job = unit.requirements.job.as_ref().filter(|_| !unit.name.is_template())?;
    job.schedule.as_ref()
}

/// Returns the write of an action, and records a start.
fn write_of(
    action: ScheduleAction,
    unit: &Unit,
    next: &mut ScheduleRecord,
    snapshot: &Snapshot,
) -> Option<UnitWrite> {
    match action {
        ScheduleAction::Start { run } => {
            let name = run.unit_name(&unit.name).ok()?;
            let mut file = unit.file.clone();
            let is_kept = |option: fleet_unitfile::OptionView<'_>| {
                option.section() != "X-Fleet" || !SCHEDULE_OPTIONS.contains(&option.name())
            };
            file.edit().retain(is_kept).apply();
            tracing::info!(unit = %name, schedule = %unit.name, "starting a run of a schedule");
            let desired = TargetState::Launched;
            next.state.start(run).then_some(UnitWrite::Put(NewUnit { name, file, desired }))
        }
        ScheduleAction::Stop { run } => {
            let name = run.unit_name(&unit.name).ok()?;
            let is_wanted = snapshot.unit(name.as_str())?.desired != TargetState::Inactive;
            is_wanted.then_some(UnitWrite::SetDesired(name, TargetState::Inactive))
        }
    }
}

/// Decides how the record of a schedule ends that no longer exists: the units of its runs are
/// destroyed first, except for those that a user has started again.
fn end_runs(
    schedule: &UnitName,
    record: &ScheduleRecord,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Decision<ScheduleRecord> {
    let started = record.state.runs.iter().filter(|run| run.phase != RunPhase::Recorded);
    let unfinished = started.filter_map(|run| run.id.unit_name(schedule).ok());
    let exists = |unit: &UnitName| snapshot.unit(unit.as_str()).is_some();
    let mut writes: Vec<_> = unfinished.filter(exists).map(UnitWrite::Destroy).collect();
    writes.extend(removals(schedule, record, 0, snapshot));
    writes.truncate(DESTROYED_RUNS);
    if writes.is_empty() {
        return Decision::none();
    }
    Decision { next: Some(record.clone()), writes, is_active: true, due: Some(now) }
}

/// Returns the writes that remove the units of ended runs, except the last `kept` of them.
fn removals(
    schedule: &UnitName,
    record: &ScheduleRecord,
    kept: usize,
    snapshot: &Snapshot,
) -> Vec<UnitWrite> {
    let ended = record.state.history.iter().rev().filter_map(|entry| match entry {
        // A later unit of that name is another one.
        HistoryEntry::Run { result: RunEnd::Removed, .. } | HistoryEntry::Omitted { .. } => None,
        HistoryEntry::Run { id, .. } => Some(*id),
    });
    // A user may have started an ended run again, and its next job is not made yet.
    let has_ended = |unit: &UnitName| {
        let job = snapshot.job(unit.as_str());
        let is_stopped = |unit: &Arc<Unit>| unit.desired != TargetState::Launched;
        snapshot.unit(unit.as_str()).is_some_and(is_stopped)
            && job.is_some_and(|job| job.state.outcome().is_some())
    };
    let unit = |id: RunId| id.unit_name(schedule).ok();
    let units = ended.skip(kept).filter_map(unit).filter(has_ended);
    units.map(UnitWrite::Destroy).collect()
}
