//! Starts, restarts and stops units, and waits for the ends of the jobs that this makes.

use fleet_core::{Generation, KnownUnit, TargetState};
use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

use super::bus::{Bus, CallError, UNIT, unit_path};
use super::jobs::JobEnd;
use super::machine::{Machine, unavailable};
use super::reason::{reload_problem, start_problem, stop_problem, triggers};
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
    let before = record.known;
    let seen = machine.units.seen(unit);
    if record.has_begun(generation, seen.invocation()) {
        return accepted(machine, unit, record, TargetState::Launched, generation);
    }
    record.order = Some(Order { generation, invocation: seen.invocation().to_vec() });
    machine.units.on_start(unit, Seen::on_order);
    machine.remember(unit, record.clone())?;
    if !machine.units.end_new(unit) {
        // A person's order begins a new count of failures and starts.
        drop(bus.manager::<_, ()>("ResetFailedUnit", &unit.as_str()).await);
    }
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
            let end = end_of(end).await?;
            let missing = missing(machine, &bus, unit, &end).await;
            if !matches!(missing, Ok(None)) {
                take_back(machine, unit, before).await?;
            }
            if let Some(missing) = missing? {
                return Err(ServiceError::NothingToTrigger { unit: unit.clone(), missing });
            }
            let problem = started(machine, unit, end);
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

/// What a timer, socket or path is to start and systemd does not have, where it has refused to
/// start the unit for that: it then does nothing, and has not failed either.
async fn missing(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
    end: &JobEnd,
) -> Result<Option<String>, ServiceError> {
    let is_refused = *end == JobEnd::Told("failed".to_owned());
    if !is_refused || !triggers(unit) || machine.units.seen(unit).has_failed() {
        return Ok(None);
    }
    let path = unit_path(unit.as_str());
    let wanted = bus.property::<Vec<String>>(&path, UNIT, "Triggers").await.map_err(unavailable)?;
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let states = bus.states(&names).await.map_err(unavailable)?;
    let missing = states.into_iter().find(|states| states.load != "loaded");
    Ok(missing.map(|states| states.name))
}

/// Lets a start count as never asked, if nothing else was asked since.
async fn take_back(
    machine: &Machine,
    unit: &UnitName,
    before: KnownUnit,
) -> Result<(), ServiceError> {
    let _turn = machine.gates.turn(unit).await;
    let Some(record) = machine.units.record(unit) else { return Ok(()) };
    let is_last = record.order.is_none() && record.known.asked == TargetState::Launched;
    if !is_last || record.known.hash != before.hash {
        return Ok(());
    }
    let KnownUnit { asked, generation, .. } = before;
    let known = KnownUnit { asked, generation, ..record.known };
    machine.remember(unit, Record { known, order: None })
}

/// Why a start that is over was no success.
fn started(machine: &Machine, unit: &UnitName, end: JobEnd) -> Option<String> {
    let seen = machine.units.seen(unit);
    match end {
        // Where a condition does not hold, systemd is done with nothing.
        JobEnd::Told(result) if result == "done" => {
            seen.has_not_run().then(|| start_problem(unit, "skipped", &seen))
        }
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

/// Has a unit read its own configuration again, and waits until that is over.
pub(crate) async fn reload_unit(machine: &Machine, unit: &UnitName) -> Result<(), ServiceError> {
    let turn = machine.gates.turn(unit).await;
    let bus = machine.bus()?;
    machine.record(unit)?;
    let failed = |problem| ServiceError::ReloadFailed { unit: unit.clone(), problem };
    if !machine.units.seen(unit).is_active() {
        return Err(failed("it is not active: start it".to_owned()));
    }
    let can_reload = bus.property::<bool>(&unit_path(unit.as_str()), UNIT, "CanReload").await;
    if !can_reload.map_err(unavailable)? {
        let problem = "it does not say how: write ExecReload= or Type=notify-reload, or restart it";
        return Err(failed(problem.to_owned()));
    }
    let asking = machine.jobs.ask(unit);
    let job = match bus.job("ReloadUnit", unit.as_str()).await {
        Ok(job) => job,
        Err(CallError::Refused { message, .. }) => return Err(failed(message)),
        Err(error) => return Err(unavailable(error)),
    };
    let end = asking.wait_for(job);
    drop(turn);
    match end_of(end).await? {
        JobEnd::Told(result) if result == "done" => Ok(()),
        JobEnd::Told(result) => Err(failed(reload_problem(&result))),
        // The unit's state does not tell how that went.
        JobEnd::Unheard => Err(failed("its end was missed: ask again".to_owned())),
    }
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
