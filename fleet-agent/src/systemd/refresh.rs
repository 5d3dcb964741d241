//! Queries the states of units where signals are not enough, and the elapses of timers.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::{UnitName, UnitType};
use futures_util::stream;
use futures_util::stream::{StreamExt as _, TryStreamExt as _};
use rustix::time::{ClockId, clock_gettime};
use zbus::wire::OwnedVariant;

use super::batch_query::BatchRole;
use super::bus::{Bus, CallError, JOB, States, UNIT, unit_path};
use super::context::ManagerContext;
use super::recovery::PendingRequests;
use super::state::{ObservedState, Properties, details};
use super::units::apply_properties;
use crate::{UnitDetails, wall_time};

/// Number of units queried concurrently.
const MAX_CONCURRENT: usize = 8;

/// Maximum number of attempts to read the details of a unit. An attempt is repeated if a signal
/// about the unit arrives during it, because the details may then be outdated. Even if all attempts
/// fail, no change is missed, because each change has its own signal.
const ATTEMPTS: usize = 3;

/// Reads all units, and resolves pending requests. Then notifies callers that wait for a job that
/// no longer exists.
pub(crate) async fn refresh_all(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    let units = context.units.names();
    if !units.is_empty() {
        refresh_units(context, bus, &units).await?;
    }
    resolve_jobs(context, bus).await
}

/// Reads the states of all units in one call, and then the details of units that have changed.
async fn refresh_units(
    context: &ManagerContext,
    bus: &Bus,
    units: &[UnitName],
) -> Result<(), CallError> {
    // Locked before the query, so that the response shows the effect of each pending request.
    let pending = PendingRequests::lock(context);
    let signals: Vec<u64> = units.iter().map(|unit| context.units.signals(unit)).collect();
    let names: Vec<&str> = units.iter().map(UnitName::as_str).collect();
    let states = bus.states(&names).await?;
    let mut changed = Vec::new();
    for ((unit, signals), states) in units.iter().zip(signals).zip(&states) {
        if apply_states(context, unit, signals, states) {
            changed.push(refresh_details(context, bus, unit));
        }
    }
    stream::iter(changed).buffer_unordered(MAX_CONCURRENT).try_collect::<()>().await?;
    pending.resolve(context, bus, &units.iter().zip(&states).collect()).await
}

/// Applies the states of a unit. Returns whether its details have to be read.
fn apply_states(context: &ManagerContext, unit: &UnitName, signals: u64, states: &States) -> bool {
    let mut more = false;
    let take =
        |observed: &mut ObservedState, is_latest| more = observed.on_states(states, is_latest);
    if context.units.on_response(unit, signals, take) {
        context.feed.report(unit);
    }
    more
}

/// Loads one unit, and applies its states.
pub(crate) async fn refresh_unit(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<States>, CallError> {
    let (signals, states) = states(context, bus, unit).await?;
    if let Some(states) = &states
        && apply_states(context, unit, signals, states)
    {
        refresh_details(context, bus, unit).await?;
    }
    Ok(states)
}

/// Queries the states of a unit. Concurrent queries for other units share one call. Also returns
/// the unit's signal count from before the query.
async fn states(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(u64, Option<States>), CallError> {
    let signals = context.units.signals(unit);
    let batch = match context.state_queries.join(unit.as_str()).await {
        BatchRole::Answered(states) => return Ok((signals, states?)),
        BatchRole::Leader(batch) => batch,
    };
    let answer = bus.states(&batch.about()).await;
    let mut found = match &answer {
        Ok(all) => all.iter().map(|states| (states.name.as_str(), states)).collect(),
        Err(_) => BTreeMap::new(),
    };
    let states = batch.answer(|unit| match &answer {
        Ok(_) => Ok(found.remove(unit).cloned()),
        Err(error) => Err(error.clone()),
    });
    Ok((signals, states?))
}

/// Reads the details that the three states lack.
pub(crate) async fn refresh_details(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), CallError> {
    let path = unit_path(unit.as_str());
    for _ in 0..ATTEMPTS {
        let signals = context.units.signals(unit);
        let common = ask(bus, &path, UNIT, &["StateChangeTimestamp", "InvocationID"]).await?;
        let own = match details(unit.unit_type()) {
            Some((interface, names)) => ask(bus, &path, interface, names).await?,
            None => Properties::new(),
        };
        let mut is_done = false;
        let is_new = context.units.on_response(unit, signals, |observed, is_latest| {
            is_done = is_latest;
            if is_latest {
                apply_properties(UNIT, &common)(observed);
                apply_properties("", &own)(observed);
            }
        });
        if is_new {
            context.feed.report(unit);
        }
        if is_done {
            break;
        }
    }
    Ok(())
}

async fn ask(
    bus: &Bus,
    path: &str,
    interface: &str,
    names: &[&str],
) -> Result<Properties, CallError> {
    let mut properties = Properties::new();
    for name in names {
        match bus.property::<OwnedVariant>(path, interface, name).await {
            Ok(value) => drop(properties.insert((*name).to_owned(), value)),
            // An idle unit may be unloaded between two calls.
            Err(CallError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(properties)
}

/// Returns the stop timeout that systemd applies to a unit; `Duration::MAX` if there is none.
/// Returns `None` if units of this type have no processes.
pub(crate) async fn stop_timeout(
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<Duration>, CallError> {
    let Some((interface, name)) = timeout_property(unit.unit_type()) else { return Ok(None) };
    let path = unit_path(unit.as_str());
    let micros: u64 = bus.property(&path, interface, name).await?;
    let kills: bool = bus.property(&path, interface, "SendSIGKILL").await?;
    let ends = kills && micros != u64::MAX;
    Ok(Some(if ends { Duration::from_micros(micros) } else { Duration::MAX }))
}

/// Returns the interface and property with the stop timeout.
fn timeout_property(unit_type: UnitType) -> Option<(&'static str, &'static str)> {
    match unit_type {
        UnitType::Service => Some(("org.freedesktop.systemd1.Service", "TimeoutStopUSec")),
        UnitType::Socket => Some(("org.freedesktop.systemd1.Socket", "TimeoutUSec")),
        UnitType::Mount => Some(("org.freedesktop.systemd1.Mount", "TimeoutUSec")),
        UnitType::Swap => Some(("org.freedesktop.systemd1.Swap", "TimeoutUSec")),
        _ => None,
    }
}

/// Resolves callers of jobs that are gone, whose signal may have been missed.
async fn resolve_jobs(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    for job in context.jobs.waited_for() {
        match bus.property::<OwnedVariant>(&job, JOB, "State").await {
            Err(CallError::Refused { .. }) => {
                // The signal may have been sent already, and not processed yet.
                context.catch_up(bus).await?;
                context.jobs.on_gone(&job);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(())
}

const TIMER: &str = "org.freedesktop.systemd1.Timer";

/// Reads when a timer elapses next, and when it last elapsed.
pub(crate) async fn timer_details(bus: &Bus, unit: &UnitName) -> Result<UnitDetails, CallError> {
    let path = unit_path(unit.as_str());
    let read = async |name| {
        let micros: u64 = bus.property(&path, TIMER, name).await?;
        Ok::<_, CallError>(timestamp(micros))
    };
    let monotonic = read("NextElapseUSecMonotonic").await?;
    let wall = read("NextElapseUSecRealtime").await?;
    let last = read("LastTriggerUSec").await?;
    let monotonic = monotonic.map(|at| wall_time().after(at.since(monotonic_time())));
    let next_elapse = monotonic.into_iter().chain(wall).min();
    Ok(UnitDetails::default().with_next_elapse(next_elapse).with_last_elapse(last))
}

/// Converts one of systemd's times, which are in microseconds. Zero and the maximum mean that there
/// is no time.
fn timestamp(micros: u64) -> Option<Timestamp> {
    (micros != 0 && micros != u64::MAX).then(|| Timestamp::from_millis(micros / 1000))
}

/// Returns the time of the clock that systemd's monotonic times refer to. It differs from fleet's
/// clock: it stops while the machine sleeps.
fn monotonic_time() -> Timestamp {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero on boot, and never has a negative time.
    let since = Duration::try_from(now).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_times_of_systemd_are_none() {
        assert_eq!(timestamp(0), None);
        assert_eq!(timestamp(u64::MAX), None);
        assert_eq!(timestamp(1_500_999), Some(Timestamp::from_millis(1500)));
    }
}
