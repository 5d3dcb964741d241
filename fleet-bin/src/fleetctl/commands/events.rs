//! `events`: what changes in the cluster, as it changes.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_http::wire::{self, Event};
use fleet_http::{EventOptions, Events};
use serde::Serialize;
use tokio::time::timeout;

use super::logs::never_whole;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::look_args::EventsArgs;
use crate::fleetctl::names::unit_arg;
use crate::fleetctl::output::Record;
use crate::fleetctl::words::{Machines, legend};

/// How often a daemon that went away is looked for, and how long is waited in between.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// How long an event is held back for the id that covers it.
const SOON: Duration = Duration::from_millis(50);

/// An event, with where to go on after it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    event: &'static str,
    /// What to give to `--since`, so that nothing is missed and little is told twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a wire::Unit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a wire::UnitState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a wire::Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebalance: Option<&'a wire::RebalanceOrder>,
}

impl Record for Told<'_> {
    fn name(&self) -> &str {
        let unit = self.unit.map(|it| it.name.as_str());
        let state = self.state.map(|it| it.name.as_str());
        let machine = self.machine.map(|it| it.id.as_str());
        unit.or(state).or(machine).unwrap_or(self.event)
    }
}

/// Runs the command. Where the connection is lost it goes on with what was not told yet.
pub(super) async fn run(context: &mut Context, args: &EventsArgs) -> Result<(), CliError> {
    if context.output.format() == Format::Json {
        return Err(never_whole("events"));
    }
    let machine = match &args.machine {
        Some(start) => Some(context.session.machine_named(start).await?.id),
        None => None,
    };
    let unit = match &args.unit {
        Some(unit) => Some(unit_arg(unit)?.name.to_string()),
        None => None,
    };
    let mut options =
        EventOptions { since: args.since.clone(), unit, machine, ..EventOptions::default() };
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut events = context.session.events(&options).await?;
    let mut ahead = None;
    while left > 0 {
        let next = match ahead.take() {
            Some(next) => next,
            None => events.next_event().await,
        };
        match next {
            Ok(Some(event)) => {
                // The id that covers an event comes behind it, mostly at once.
                ahead = timeout(SOON, events.next_event()).await.ok();
                print(context, &event, events.last_id())?;
                left -= 1;
            }
            lost => {
                let why = lost.err().map_or_else(String::new, |error| format!(": {error}"));
                context.progress.note(&format!("the events broke off{why}; going on"));
                options.since = events.last_id().map(str::to_owned).or(options.since);
                events = again(context, &options).await?;
            }
        }
    }
    Ok(())
}

/// Opens the events again, once somebody answers.
pub(super) async fn again(context: &Context, options: &EventOptions) -> Result<Events, CliError> {
    let mut tries = 0;
    loop {
        context.clock.sleep_until(context.clock.now().after(PAUSE)).await;
        match context.session.events(options).await {
            Err(_) if tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

fn print(context: &mut Context, event: &Event, id: Option<&str>) -> Result<(), CliError> {
    let (mut unit, mut state, mut machine, mut rebalance) = (None, None, None, None);
    match event {
        Event::Unit(it) | Event::UnitGone(it) => unit = Some(&**it),
        Event::State(it) | Event::StateGone(it) => state = Some(&**it),
        Event::Machine(it) | Event::MachineGone(it) => machine = Some(&**it),
        Event::Rebalance(it) => rebalance = Some(&**it),
        _ => {}
    }
    let told = Told { event: event.kind(), id, unit, state, machine, rebalance };
    context.output.record(&told, &format!("{}\n", text(event)))
}

fn text(event: &Event) -> String {
    let machines = Machines::default();
    match event {
        Event::Resync => "resync: what comes from here on is new".to_owned(),
        Event::Unit(unit) => {
            let wire::Unit { name, desired_state, current_state, machine_id, .. } = &**unit;
            let on = match (machine_id.as_str(), unit.reason.as_str()) {
                ("", "") => String::new(),
                ("", reason) => format!("; {reason}"),
                (id, _) => format!(" on {}", machines.legend(id, false)),
            };
            let is = if current_state.is_empty() { "unknown" } else { current_state };
            format!("unit {name}: to be {desired_state}, is {is}{on}")
        }
        Event::UnitGone(unit) => format!("unit {}: gone", unit.name),
        Event::State(state) => {
            let (on, active) = (machines.legend(&state.machine_id, false), state);
            let (active, sub) = (&active.systemd_active_state, &active.systemd_sub_state);
            format!("state {} on {on}: {active} ({sub})", state.name)
        }
        Event::StateGone(state) => {
            format!("state {} on {}: gone", state.name, machines.legend(&state.machine_id, false))
        }
        Event::Machine(machine) => {
            let at = legend(&machine.id, &machine.primary_ip, false);
            let intent = match machine.intent.as_str() {
                "" => "present",
                intent => intent,
            };
            format!("machine {at}: {intent}")
        }
        Event::MachineGone(machine) => {
            format!("machine {}: gone", machines.legend(&machine.id, false))
        }
        Event::Rebalance(order) => rebalanced(order, &machines),
        Event::RebalanceGone => "rebalance: over".to_owned(),
        _ => format!("{}: of a kind that this version does not know", event.kind()),
    }
}

fn rebalanced(order: &wire::RebalanceOrder, machines: &Machines) -> String {
    let moves = order.moving.iter().map(|it| {
        let (from, to) = (machines.legend(&it.from, false), machines.legend(&it.to, false));
        format!("{} from {from} to {to}", it.unit)
    });
    match moves.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "rebalance: ordered".to_owned(),
        moves => format!("rebalance: {} moved; last {moves}", order.moved),
    }
}
