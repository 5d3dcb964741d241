//! Starts, restarts and stops units, and waits for the jobs.

use fleet_core::Generation;
use fleet_unitfile::{UnitName, UnitType};
use tokio::sync::oneshot;

use super::bus::{Bus, CallError, UNIT, unit_path};
use super::context::{ManagerContext, unavailable};
use super::jobs::{JobEnd, reload_problem, start_problem, stop_problem, triggers};
use super::quadlet;
use super::record::{PendingOrder, PendingStart, Record};
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
    let record = context.record(unit)?;
    let observed = context.units.observed(unit);
    if record.has_started(generation, observed.invocation()) {
        return context.remember_received(unit, record.launched(generation));
    }
    let start = PendingStart { generation, invocation: observed.invocation().to_vec() };
    let record = record.pending(PendingOrder::Start(start.clone()));
    context.remember(unit, record.clone())?;
    context.units.on_start(unit, ObservedState::on_start_requested);
    context.feed.report(unit);
    if !context.units.take_new(unit) {
        // A request begins a new count of failures and starts.
        drop(bus.reset_failed(unit).await);
    }
    let call = context.jobs.begin_call(unit);
    let job = match bus.job(method, unit).await {
        Ok(job) => job,
        Err(error) if error.no_such_unit() && unit.unit_type() == UnitType::Container => {
            context.remember_received(unit, record.launched(generation))?;
            let problem = quadlet::no_service(context, unit);
            return Err(ServiceError::StartFailed { unit: unit.clone(), problem });
        }
        Err(CallError::Refused { message, .. }) => {
            context.remember_received(unit, record.launched(generation))?;
            return Err(ServiceError::StartFailed { unit: unit.clone(), problem: message });
        }
        // The outcome is unknown, so the start stays on record.
        Err(error) => return Err(unavailable(error)),
    };
    // Whether there is a unit to trigger is only known at the end of the job.
    let stored = match triggers(unit) {
        true => Ok(()),
        false => context.remember_received(unit, record.launched(generation)),
    };
    let end = call.wait_for(job);
    drop(turn);
    let end = wait_for_end(end).await?;
    if triggers(unit) {
        conclude_start(context, &bus, unit, start, &end).await?;
    }
    if let Some(problem) = started(context, unit, end) {
        return Err(ServiceError::StartFailed { unit: unit.clone(), problem });
    }
    context.units.on_start(unit, ObservedState::on_started);
    context.feed.report(unit);
    stored
}

/// Records whether a timer, socket or path was started, unless another request was made meanwhile.
async fn conclude_start(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    start: PendingStart,
    end: &JobEnd,
) -> Result<(), ServiceError> {
    let missing = missing(context, bus, unit, end).await?;
    let _turn = context.locks.lock_unit(unit).await;
    let generation = start.generation;
    let is_last = |record: &Record| record.order == Some(PendingOrder::Start(start));
    let record = context.units.record(unit).filter(is_last);
    let stored = record.map_or(Ok(()), |record| {
        let is_started = missing.is_none();
        let record = if is_started { record.launched(generation) } else { record.unchanged() };
        context.remember_received(unit, record)
    });
    match missing {
        Some(missing) => Err(ServiceError::NothingToTrigger { unit: unit.clone(), missing }),
        None => stored,
    }
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
    let path = unit_path(unit);
    let wanted = bus.property::<Vec<String>>(&path, UNIT, "Triggers").await.map_err(unavailable)?;
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let states = bus.states(&names).await.map_err(unavailable)?;
    let missing = states.into_iter().find(|states| states.load != "loaded");
    Ok(missing.map(|states| states.name))
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

/// Stops a unit. The request is stored before it is sent, and again once systemd has accepted it.
pub(crate) async fn stop(context: &ManagerContext, unit: &UnitName) -> Result<(), ServiceError> {
    let _turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    let record = context.record(unit)?;
    let end = request_stop(context, &bus, unit, &record).await?;
    let stored = context.remember_received(unit, record.stopped());
    stopped(context, unit, end).await?;
    stored
}

/// Stops a unit that is being unloaded. The stop stays pending until it is over, because the caller
/// removes the record then.
pub(crate) async fn stop_and_wait(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    record: &Record,
) -> Result<(), ServiceError> {
    let end = request_stop(context, bus, unit, record).await?;
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
    let can_reload = bus.property::<bool>(&unit_path(unit), UNIT, "CanReload").await;
    if !can_reload.map_err(unavailable)? {
        let problem = "it cannot reload: set ExecReload= or Type=notify-reload, or restart it";
        return Err(failed(problem.to_owned()));
    }
    let call = context.jobs.begin_call(unit);
    let job = match bus.job("ReloadUnit", unit).await {
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

/// Stores that a unit is about to be stopped, and requests the stop. Returns the receiver of the
/// job's end, or `None` if systemd does not know the unit.
async fn request_stop(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    record: &Record,
) -> Result<Option<oneshot::Receiver<JobEnd>>, ServiceError> {
    context.remember_stop(unit, record);
    let call = context.jobs.begin_call(unit);
    match bus.job("StopUnit", unit).await {
        Ok(job) => Ok(Some(call.wait_for(job))),
        Err(error) if error.no_such_unit() => Ok(None),
        Err(CallError::Refused { message, .. }) => {
            // If this cannot be stored, the next daemon finds out that the unit was not stopped.
            drop(context.remember_received(unit, record.clone().unchanged()));
            Err(ServiceError::StopFailed { unit: unit.clone(), problem: message })
        }
        // The outcome is unknown, so the stop stays on record.
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
