//! `events` prints changes of the cluster as they happen. `--watch` prints a list again after each
//! change.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_http::client::{EventOptions, Events};
use fleet_http::wire;
use fleet_http::wire::{ClusterEvent, Time};
use serde::Serialize;
use tokio::time::timeout;

use super::logs::endless_document;
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::EventsArgs;
use crate::fleetctl::format::{MachineLabels, given_name, machine_label};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::names::unit_arg;
use crate::ui::output::Record;
use crate::ui::time::log_time;

/// Number of attempts to reconnect, and the pause between them.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// Time to wait, after an event, for the ID with which a reader can resume after this event. The
/// daemon usually sends the ID directly after the event.
const ID_DELAY: Duration = Duration::from_millis(50);

/// An event, with the id to resume from.
#[derive(Debug, Serialize)]
struct EventRecord<'a> {
    event: &'static str,
    /// Argument for `--since` to resume without a gap and with few repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a wire::UnitEntity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a wire::UnitStateEntity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a wire::MachineEntity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebalance: Option<&'a wire::RebalanceOrder>,
    /// Time at which the event was received.
    at: Time,
}

impl Record for EventRecord<'_> {
    fn name(&self) -> &str {
        let unit = self.unit.map(|it| it.name.as_str());
        let state = self.state.map(|it| it.name.as_str());
        let machine = self.machine.map(|it| it.id.as_str());
        unit.or(state).or(machine).unwrap_or(self.event)
    }
}

/// Runs the command. It resumes after connection losses.
pub(super) async fn run(context: &mut Context, args: &EventsArgs) -> Result<(), CliError> {
    if context.output.format() == Format::Json {
        return Err(endless_document("events"));
    }
    let machine = match &args.machine {
        Some(start) => Some(context.session.machine_named(start).await?.id),
        None => None,
    };
    let unit = match &args.unit {
        Some(unit) => Some(unit_arg(unit)?.name.to_string()),
        None => None,
    };
    let mut options = EventOptions::default()
        .with_since(args.since.clone())
        .with_unit(unit)
        .with_machine(machine);
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
                // The id that covers an event follows it, usually at once.
                ahead = timeout(ID_DELAY, events.next_event()).await.ok();
                print(context, &event, events.last_id())?;
                left -= 1;
            }
            lost => {
                let why = lost.err().map_or_else(String::new, |error| format!(": {error}"));
                context.progress.note(&format!("lost the event stream{why}; reconnecting"));
                options.since = events.last_id().map(str::to_owned).or(options.since);
                events = reconnect(context, &options).await?;
            }
        }
    }
    Ok(())
}

/// Reopens the event stream, retrying until a daemon responds.
pub(super) async fn reconnect(
    context: &Context,
    options: &EventOptions,
) -> Result<Events, CliError> {
    let mut tries = 0;
    loop {
        context.clock.sleep_until(context.clock.now().after(PAUSE)).await;
        match context.session.events(options).await {
            Err(_) if tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

fn print(context: &mut Context, event: &ClusterEvent, id: Option<&str>) -> Result<(), CliError> {
    let (mut unit, mut state, mut machine, mut rebalance) = (None, None, None, None);
    match event {
        ClusterEvent::Unit(it) | ClusterEvent::UnitGone(it) => unit = Some(&**it),
        ClusterEvent::State(it) | ClusterEvent::StateGone(it) => state = Some(&**it),
        ClusterEvent::Machine(it) | ClusterEvent::MachineGone(it) => machine = Some(&**it),
        ClusterEvent::Rebalance(it) => rebalance = Some(&**it),
        _ => {}
    }
    let at = Time::from(fleet_agent::wall_time());
    let record = EventRecord { event: event.kind(), id, unit, state, machine, rebalance, at };
    context.output.record(&record, &format!("{}{}\n", log_time(Some(at)), text(event)))
}

fn text(event: &ClusterEvent) -> String {
    let machines = MachineLabels::default();
    match event {
        ClusterEvent::Resync => "resync: earlier events may be missing".to_owned(),
        ClusterEvent::Unit(unit) => {
            let wire::UnitEntity { name, desired_state, current_state, machine_id, .. } = &**unit;
            let on = match (machine_id.as_str(), unit.reason.as_str()) {
                ("", "") => String::new(),
                ("", reason) => format!("; {reason}"),
                (id, _) => format!(" on {}", machines.label(id, false)),
            };
            let current = if current_state.is_empty() { "unknown" } else { current_state };
            let separator = if unit.failures.is_empty() { "" } else { "; " };
            let failures = format!("{separator}{}", unit.failures);
            format!("unit {name}: desired {desired_state}, current {current}{on}{failures}")
        }
        ClusterEvent::UnitGone(unit) => format!("unit {}: gone", unit.name),
        ClusterEvent::State(state) => {
            let (on, active) = (machines.label(&state.machine_id, false), state);
            let (active, sub) = (&active.systemd_active_state, &active.systemd_sub_state);
            let health = match state.health.as_str() {
                "" => String::new(),
                health => format!(", {health}"),
            };
            format!("state {} on {on}: {active} ({sub}{health})", state.name)
        }
        ClusterEvent::StateGone(state) => {
            format!("state {} on {}: gone", state.name, machines.label(&state.machine_id, false))
        }
        ClusterEvent::Machine(machine) => {
            let name = given_name(machine).unwrap_or_default();
            let at = machine_label(&machine.id, name, &machine.primary_ip, false);
            let intent = match machine.intent.as_str() {
                "" => "present",
                intent => intent,
            };
            format!("machine {at}: {intent}")
        }
        ClusterEvent::MachineGone(machine) => {
            format!("machine {}: gone", machines.label(&machine.id, false))
        }
        ClusterEvent::Rebalance(order) => rebalance_text(order, &machines),
        ClusterEvent::RebalanceGone => "rebalance: ended".to_owned(),
        _ => format!("{}: unknown kind of event", event.kind()),
    }
}

fn rebalance_text(order: &wire::RebalanceOrder, machines: &MachineLabels) -> String {
    let moves = order.moving.iter().map(|it| {
        let (from, to) = (machines.label(&it.from, false), machines.label(&it.to, false));
        format!("{} from {from} to {to}", it.unit)
    });
    match moves.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "rebalance: started".to_owned(),
        moves => format!("rebalance: {} moved; last {moves}", order.moved),
    }
}

/// Time without further changes after which the list is printed again. If changes continue, the
/// list is printed after [`MAX_DELAY`].
const QUIET_TIME: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Moves the cursor to the upper left corner, and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the list now and after each change, until Ctrl-C.
pub(super) async fn watch(
    context: &mut Context,
    list: impl AsyncFn(&mut Context) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let is_screen = stdout().is_terminal() && context.output.format() == Format::Table;
    let mut events = context.session.events(&EventOptions::default()).await?;
    let mut is_first = true;
    loop {
        // The first event arrives at once.
        if !matches!(events.next_event().await, Ok(Some(_))) {
            context
                .progress
                .note("fleetd does not respond, so the list may be out of date; reconnecting");
            events = reconnect(context, &EventOptions::default()).await?;
            continue;
        }
        let deadline = context.clock.now().after(MAX_DELAY);
        while context.clock.now() < deadline
            && matches!(timeout(QUIET_TIME, events.next_event()).await, Ok(Ok(Some(_))))
        {}
        match (is_screen, is_first) {
            (true, _) => context.output.raw(CLEAR.as_bytes())?,
            (false, false) => context.output.for_people("\n")?,
            (false, true) => {}
        }
        list(context).await?;
        is_first = false;
    }
}
