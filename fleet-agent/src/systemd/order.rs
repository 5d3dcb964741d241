//! Starts, restarts and stops units, and waits for the ends of the jobs that this makes.

use fleet_core::{Generation, TargetState};
use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

use super::bus::{Bus, CallError};
use super::jobs::JobEnd;
use super::machine::{Machine, unavailable};
use super::reason::{start_problem, stop_problem};
use super::record::{Order, Record};
use super::state::Seen;
use crate::ServiceError;

/// Asks for a start or restart, and waits until it is over.
///
/// The order of calls holds until systemd has accepted this one; so a start that hangs can be
/// ended by a stop.
pub(crate) async fn launch(
    machine: &Machine,
    unit: &UnitName,
    method: &str,
    generation: Generation,
) -> Result<(), ServiceError> {
    let turn = machine.gates.turn(unit).await;
    let bus = machine.bus()?;
    let mut record = machine.record(unit)?;
    let seen = machine.units.seen(unit);
    if record.has_begun(generation, seen.invocation()) {
        return accepted(machine, unit, record, TargetState::Launched, generation);
    }
    record.order = Some(Order { generation, invocation: seen.invocation().to_vec() });
    machine.units.on_start(unit, Seen::on_order);
    machine.remember(unit, record.clone())?;
    // A person's order begins a new count of failures and starts.
    drop(bus.manager::<_, ()>("ResetFailedUnit", &unit.as_str()).await);
    let asking = machine.jobs.ask(unit);
    let job = bus.job(method, unit.as_str()).await;
    if let Err(error @ CallError::Lost(_)) = job {
        return Err(unavailable(error)); // nobody knows, so the order stays on record
    }
    accepted(machine, unit, record, TargetState::Launched, generation)?;
    let problem = match job {
        Ok(job) => {
            let end = asking.wait_for(job);
            drop(turn);
            let problem = started(machine, unit, end_of(end).await?);
            if problem.is_none() {
                machine.units.on_start(unit, Seen::on_started);
                machine.feed.report(unit);
            }
            problem
        }
        Err(CallError::Refused { message, .. } | CallError::Lost(message)) => Some(message),
    };
    let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
    problem.map_or(Ok(()), |problem| Err(failed(problem)))
}

/// Why a start that is over was no success.
fn started(machine: &Machine, unit: &UnitName, end: JobEnd) -> Option<String> {
    let seen = machine.units.seen(unit);
    match end {
        JobEnd::Told(result) if result == "done" => None,
        JobEnd::Told(result) => Some(start_problem(unit, &result, &seen)),
        JobEnd::Unheard if seen.has_failed() => Some(seen.failure()),
        JobEnd::Unheard => None,
    }
}

/// Stops a unit and remembers that this was asked.
pub(crate) async fn stop(machine: &Machine, unit: &UnitName) -> Result<(), ServiceError> {
    let _turn = machine.gates.turn(unit).await;
    let bus = machine.bus()?;
    let record = machine.record(unit)?;
    let asking = machine.jobs.ask(unit);
    let job = ask_to_stop(&bus, unit).await?;
    let end = job.map(|job| asking.wait_for(job));
    let generation = record.known.generation;
    accepted(machine, unit, record, TargetState::Loaded, generation)?;
    stopped(machine, unit, end).await
}

/// Stops a unit that is about to be forgotten.
pub(crate) async fn stop_and_wait(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), ServiceError> {
    let asking = machine.jobs.ask(unit);
    let job = ask_to_stop(bus, unit).await?;
    let end = job.map(|job| asking.wait_for(job));
    stopped(machine, unit, end).await
}

/// The path of the job; `None` when systemd knows nothing that it could stop.
async fn ask_to_stop(bus: &Bus, unit: &UnitName) -> Result<Option<String>, ServiceError> {
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
    machine: &Machine,
    unit: &UnitName,
    end: Option<oneshot::Receiver<JobEnd>>,
) -> Result<(), ServiceError> {
    let Some(end) = end else { return Ok(()) };
    let problem = match end_of(end).await? {
        JobEnd::Told(result) if result == "done" => return Ok(()),
        JobEnd::Told(result) => stop_problem(&result),
        JobEnd::Unheard if machine.units.seen(unit).is_active() => {
            "systemd has dropped the order".to_owned()
        }
        JobEnd::Unheard => return Ok(()),
    };
    Err(ServiceError::StopFailed { unit: unit.clone(), problem })
}

async fn end_of(end: oneshot::Receiver<JobEnd>) -> Result<JobEnd, ServiceError> {
    // The other end goes only with all of the manager.
    end.await.map_err(|_| ServiceError::Unavailable("the daemon ends".to_owned()))
}

/// Remembers what systemd was asked.
fn accepted(
    machine: &Machine,
    unit: &UnitName,
    mut record: Record,
    asked: TargetState,
    generation: Generation,
) -> Result<(), ServiceError> {
    (record.known.asked, record.known.generation) = (asked, generation);
    record.order = None;
    machine.remember(unit, record)
}
