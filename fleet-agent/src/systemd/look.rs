//! Looks at units by asking systemd, where its signals are not enough.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_unitfile::{UnitName, UnitType};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use zbus::wire::OwnedVariant;

use super::bus::{Bus, CallError, JOB, States, UNIT, unit_path};
use super::gather::Part;
use super::machine::Machine;
use super::state::{Properties, Seen, details};
use super::units::told;

/// How many units are asked for at a time.
const AT_ONCE: usize = 8;

/// How often a unit is asked for again that changes while it is being asked for. Each change brings
/// its own signal, so nothing is missed by giving up.
const ATTEMPTS: usize = 3;

/// Looks at all units once: one call for all of them, and more for those that have changed. Then
/// at the jobs that somebody waits for.
pub(crate) async fn look_at_all(machine: &Machine, bus: &Bus) -> Result<(), CallError> {
    let units = machine.units.names();
    let mut changed = Vec::new();
    if !units.is_empty() {
        let news: Vec<u64> = units.iter().map(|unit| machine.units.news(unit)).collect();
        let names: Vec<&str> = units.iter().map(UnitName::as_str).collect();
        let states = bus.states(&names).await?;
        for ((unit, news), states) in units.iter().zip(news).zip(&states) {
            if take_in(machine, unit, news, states) {
                changed.push(look_closer(machine, bus, unit));
            }
        }
    }
    stream::iter(changed).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    settle_jobs(machine, bus).await
}

/// Takes the three states of a unit in; whether there is more to ask.
fn take_in(machine: &Machine, unit: &UnitName, news: u64, states: &States) -> bool {
    let mut more = false;
    let take = |seen: &mut Seen, is_latest| more = seen.on_states(states, is_latest);
    if machine.units.on_answer(unit, news, take) {
        machine.feed.report(unit);
    }
    more
}

/// Reads one unit, and takes in what systemd says of it.
pub(crate) async fn look_at(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<States>, CallError> {
    let (news, states) = states(machine, bus, unit).await?;
    if let Some(states) = &states
        && take_in(machine, unit, news, states)
    {
        look_closer(machine, bus, unit).await?;
    }
    Ok(states)
}

/// The three states of a unit, asked for together with those of others; and how much systemd had
/// told of the unit before.
async fn states(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(u64, Option<States>), CallError> {
    let news = machine.units.news(unit);
    let batch = match machine.looks.join(unit.as_str()).await {
        Part::Told(states) => return Ok((news, states?)),
        Part::Ask(batch) => batch,
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
    Ok((news, states?))
}

/// Asks for what the three states do not tell.
pub(crate) async fn look_closer(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), CallError> {
    let path = unit_path(unit.as_str());
    for _ in 0..ATTEMPTS {
        let news = machine.units.news(unit);
        let common = ask(bus, &path, UNIT, &["StateChangeTimestamp", "InvocationID"]).await?;
        let own = match details(unit.unit_type()) {
            Some((interface, names)) => ask(bus, &path, interface, names).await?,
            None => Properties::new(),
        };
        let mut is_done = false;
        let is_new = machine.units.on_answer(unit, news, |seen, is_latest| {
            is_done = is_latest;
            if is_latest {
                told(UNIT, &common)(seen);
                told("", &own)(seen);
            }
        });
        if is_new {
            machine.feed.report(unit);
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
            // A unit that does nothing may be forgotten between two questions.
            Err(CallError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(properties)
}

/// The time-out of a unit's stop; nothing for a unit without processes of its own.
pub(crate) async fn stop_time_out(
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<Duration>, CallError> {
    let Some((interface, name)) = time_out(unit.unit_type()) else { return Ok(None) };
    let path = unit_path(unit.as_str());
    let micros: u64 = bus.property(&path, interface, name).await?;
    let kills: bool = bus.property(&path, interface, "SendSIGKILL").await?;
    let ends = kills && micros != u64::MAX;
    Ok(Some(if ends { Duration::from_micros(micros) } else { Duration::MAX }))
}

/// Where systemd tells the time-out of stops.
fn time_out(unit_type: UnitType) -> Option<(&'static str, &'static str)> {
    match unit_type {
        UnitType::Service => Some(("org.freedesktop.systemd1.Service", "TimeoutStopUSec")),
        UnitType::Socket => Some(("org.freedesktop.systemd1.Socket", "TimeoutUSec")),
        UnitType::Mount => Some(("org.freedesktop.systemd1.Mount", "TimeoutUSec")),
        UnitType::Swap => Some(("org.freedesktop.systemd1.Swap", "TimeoutUSec")),
        _ => None,
    }
}

/// Tells those who wait for a job that is gone by now: its end may have been missed.
async fn settle_jobs(machine: &Machine, bus: &Bus) -> Result<(), CallError> {
    for job in machine.jobs.waited_for() {
        match bus.property::<OwnedVariant>(&job, JOB, "State").await {
            Err(CallError::Refused { .. }) => {
                // Its end may have been told already, and not taken in yet.
                machine.catch_up(bus).await?;
                machine.jobs.on_gone(&job);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(())
}
