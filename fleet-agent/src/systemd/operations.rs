//! Starts, restarts and stops units, and waits for the jobs.

use fleet_core::{Generation, KnownUnit, TargetState};
use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

use super::bus::{Bus, CallError, UNIT, unit_path};
use super::context::{ManagerContext, unavailable};
use super::jobs::JobEnd;
use super::reason::{reload_problem, start_problem, stop_problem, triggers};
use super::record::{PendingStart, Record};
use super::state::ObservedState;
use crate::ServiceError;

/// Requests a start or restart, and waits until it is over.
///
/// The unit is locked only until systemd has accepted the request. So a later stop can end a start
/// that hangs.
pub(crate) async fn launch(
    context: &ManagerContext,
    unit: &UnitName,
    method: &str,
    generation: Generation,
) -> Result<(), ServiceError> {
    let turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    let mut record = context.record(unit)?;
    let before = record.known;
    let observed = context.units.observed(unit);
    if record.has_started(generation, observed.invocation()) {
        return record_accepted(context, unit, record, TargetState::Launched, generation);
    }
    record.order = Some(PendingStart { generation, invocation: observed.invocation().to_vec() });
    context.units.on_start(unit, ObservedState::on_start_requested);
    context.remember(unit, record.clone())?;
    if !context.units.take_new(unit) {
        // A request begins a new count of failures and starts.
        drop(bus.manager::<_, ()>("ResetFailedUnit", &unit.as_str()).await);
    }
    let call = context.jobs.begin_call(unit);
    let job = bus.job(method, unit.as_str()).await;
    if let Err(error @ CallError::Lost(_)) = job {
        return Err(unavailable(error)); // the outcome is unknown: the start stays on record
    }
    record_accepted(context, unit, record, TargetState::Launched, generation)?;
    let problem = match job {
        Ok(job) => {
            let end = call.wait_for(job);
            drop(turn);
            let end = wait_for_end(end).await?;
            let missing = missing(context, &bus, unit, &end).await;
            if !matches!(missing, Ok(None)) {
                undo_launch(context, unit, before).await?;
            }
            if let Some(missing) = missing? {
                return Err(ServiceError::NothingToTrigger { unit: unit.clone(), missing });
            }
            let problem = started(context, unit, end);
            if problem.is_none() {
                context.units.on_start(unit, ObservedState::on_started);
                context.feed.report(unit);
            }
            problem
        }
        Err(CallError::Refused { message, .. } | CallError::Lost(message)) => Some(message),
    };
    let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
    problem.map_or(Ok(()), |problem| Err(failed(problem)))
}

/// Returns the unit that a timer, socket or path should start, if systemd does not have that unit.
/// In this case systemd refuses the start without setting the timer, socket or path to `failed`.
async fn missing(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    end: &JobEnd,
) -> Result<Option<String>, ServiceError> {
    let is_refused = *end == JobEnd::Result("failed".to_owned());
    if !is_refused || !triggers(unit) || context.units.observed(unit).has_failed() {
        return Ok(None);
    }
    let path = unit_path(unit.as_str());
    let wanted = bus.property::<Vec<String>>(&path, UNIT, "Triggers").await.map_err(unavailable)?;
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let states = bus.states(&names).await.map_err(unavailable)?;
    let missing = states.into_iter().find(|states| states.load != "loaded");
    Ok(missing.map(|states| states.name))
}

/// Reverts the record to before the start, if nothing else was requested since.
async fn undo_launch(
    context: &ManagerContext,
    unit: &UnitName,
    before: KnownUnit,
) -> Result<(), ServiceError> {
    let _turn = context.locks.lock_unit(unit).await;
    let Some(record) = context.units.record(unit) else { return Ok(()) };
    let is_last = record.order.is_none() && record.known.requested == TargetState::Launched;
    if !is_last || record.known.hash != before.hash {
        return Ok(());
    }
    let KnownUnit { requested: asked, generation, .. } = before;
    let known = KnownUnit { requested: asked, generation, ..record.known };
    context.remember(unit, Record { known, order: None })
}

/// Returns why a finished start was no success.
fn started(context: &ManagerContext, unit: &UnitName, end: JobEnd) -> Option<String> {
    let observed = context.units.observed(unit);
    match end {
        // A failed condition also gives the result `done`.
        JobEnd::Result(result) if result == "done" => {
            observed.has_no_run().then(|| start_problem(unit, "skipped", &observed))
        }
        JobEnd::Result(result) => Some(start_problem(unit, &result, &observed)),
        JobEnd::Unknown if observed.has_failed() => Some(observed.failure()),
        JobEnd::Unknown => None,
    }
}

/// Stops a unit and records the request.
pub(crate) async fn stop(context: &ManagerContext, unit: &UnitName) -> Result<(), ServiceError> {
    let _turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    let record = context.record(unit)?;
    let call = context.jobs.begin_call(unit);
    let job = request_stop(&bus, unit).await?;
    let end = job.map(|job| call.wait_for(job));
    let generation = record.known.generation;
    record_accepted(context, unit, record, TargetState::Loaded, generation)?;
    stopped(context, unit, end).await
}

/// Stops a unit that is being unloaded.
pub(crate) async fn stop_and_wait(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), ServiceError> {
    let call = context.jobs.begin_call(unit);
    let job = request_stop(bus, unit).await?;
    let end = job.map(|job| call.wait_for(job));
    stopped(context, unit, end).await
}

/// Makes a unit reload its configuration, and waits until that is over.
pub(crate) async fn reload_unit(
    context: &ManagerContext,
    unit: &UnitName,
) -> Result<(), ServiceError> {
    let turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    context.record(unit)?;
    let failed = |problem| ServiceError::ReloadFailed { unit: unit.clone(), problem };
    if !context.units.observed(unit).is_active() {
        return Err(failed("it is not active: start it".to_owned()));
    }
    let can_reload = bus.property::<bool>(&unit_path(unit.as_str()), UNIT, "CanReload").await;
    if !can_reload.map_err(unavailable)? {
        let problem = "it cannot reload: set ExecReload= or Type=notify-reload, or restart it";
        return Err(failed(problem.to_owned()));
    }
    let call = context.jobs.begin_call(unit);
    let job = match bus.job("ReloadUnit", unit.as_str()).await {
        Ok(job) => job,
        Err(CallError::Refused { message, .. }) => return Err(failed(message)),
        Err(error) => return Err(unavailable(error)),
    };
    let end = call.wait_for(job);
    drop(turn);
    match wait_for_end(end).await? {
        JobEnd::Result(result) if result == "done" => Ok(()),
        JobEnd::Result(result) => Err(failed(reload_problem(&result))),
        // The unit's state does not show the result.
        JobEnd::Unknown => Err(failed("its result was missed: try again".to_owned())),
    }
}

/// Requests the stop of a unit. Returns the path of the job, or `None` if systemd does not know the
/// unit.
async fn request_stop(bus: &Bus, unit: &UnitName) -> Result<Option<String>, ServiceError> {
    match bus.job("StopUnit", unit.as_str()).await {
        Ok(job) => Ok(Some(job)),
        Err(error) if error.no_such_unit() => Ok(None),
        Err(CallError::Refused { message, .. }) => {
            Err(ServiceError::StopFailed { unit: unit.clone(), problem: message })
        }
        Err(error) => Err(unavailable(error)),
    }
}

async fn stopped(
    context: &ManagerContext,
    unit: &UnitName,
    end: Option<oneshot::Receiver<JobEnd>>,
) -> Result<(), ServiceError> {
    let Some(end) = end else { return Ok(()) };
    let problem = match wait_for_end(end).await? {
        JobEnd::Result(result) if result == "done" => return Ok(()),
        JobEnd::Result(result) => stop_problem(&result),
        JobEnd::Unknown if context.units.observed(unit).is_active() => {
            "systemd has dropped the job".to_owned()
        }
        JobEnd::Unknown => return Ok(()),
    };
    Err(ServiceError::StopFailed { unit: unit.clone(), problem })
}

async fn wait_for_end(end: oneshot::Receiver<JobEnd>) -> Result<JobEnd, ServiceError> {
    // The sender is dropped only with the whole manager.
    end.await.map_err(|_| ServiceError::Unavailable("the daemon is shutting down".to_owned()))
}

/// Records a request that systemd has accepted.
fn record_accepted(
    context: &ManagerContext,
    unit: &UnitName,
    mut record: Record,
    asked: TargetState,
    generation: Generation,
) -> Result<(), ServiceError> {
    (record.known.requested, record.known.generation) = (asked, generation);
    record.order = None;
    context.remember(unit, record)
}
