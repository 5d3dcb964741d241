//! `machine`: shows, cordons or drains a machine.

use std::fmt::Write as _;
use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::MachineId;
use fleet_http::wire;
use fleet_http::wire::DrainReport;
use serde::Serialize;

use crate::fleetctl::args::subcommands::{DrainArgs, MachineCommand};
use crate::fleetctl::format::short_machine;
use crate::fleetctl::session::{Session, is_complete_id};
use crate::fleetctl::{Context, format};
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

/// Result of `cordon` and `uncordon`.
#[derive(Debug, Serialize)]
struct IntentRecord {
    machine: String,
    intent: &'static str,
}

impl Record for IntentRecord {
    fn name(&self) -> &str {
        &self.machine
    }
}

/// A machine with its units and the progress of its drain.
#[derive(Debug, Serialize)]
struct MachineRecord {
    #[serde(flatten)]
    machine: wire::MachineEntity,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<DrainReport>,
    units: Vec<wire::UnitStateEntity>,
}

impl Record for MachineRecord {
    fn name(&self) -> &str {
        &self.machine.id
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, command: &MachineCommand) -> Result<Exit, CliError> {
    let done = match command {
        MachineCommand::Show(args) => show(context, &args.machine).await,
        MachineCommand::Cordon(args) => {
            let id = id(context, &args.machine).await?;
            context.session.cordon(&id).await?;
            print_intent(context, &id, "cordoned", "is cordoned")
        }
        MachineCommand::Uncordon(args) => {
            let id = resolve_or_parse(context, &args.machine).await?;
            context.session.uncordon(&id).await?;
            print_intent(context, &id, "", "is uncordoned")
        }
        MachineCommand::Drain(args) => {
            let id = id(context, &args.named.machine).await?;
            return drain(context, &id, args).await;
        }
    };
    done.map(|()| Exit::Success)
}

async fn id(context: &Context, start: &str) -> Result<MachineId, CliError> {
    let id = context.session.machine_named(start).await?.id;
    id.parse()
        .map_err(|error| CliError::failed("fleetd returned an invalid machine ID").because(error))
}

/// Returns the ID of the machine to uncordon. An absent machine can also be uncordoned, but only by
/// its complete ID, because a prefix is matched with present machines.
async fn resolve_or_parse(context: &Context, typed: &str) -> Result<MachineId, CliError> {
    let known = id(context, typed).await;
    match (known, typed.parse()) {
        (Err(_), Ok(typed_id)) if is_complete_id(typed) => Ok(typed_id),
        (known, _) => known,
    }
}

/// Describes a service manager, such as `native of root, accepts the loss of sandboxing`.
fn manager_text(manager: &wire::ServiceManagerEntity) -> String {
    let root = if manager.root { " of root" } else { "" };
    let accept = match &manager.accept[..] {
        [] => String::new(),
        accept => format!(", accepts the loss of {}", accept.join(", ")),
    };
    format!("{}{root}{accept}", manager.kind)
}

fn print_intent(
    context: &mut Context,
    id: &MachineId,
    intent: &'static str,
    text: &str,
) -> Result<(), CliError> {
    let record = IntentRecord { machine: id.to_string(), intent };
    let text = format!("Machine {} {text}\n", short_machine(id.as_str()));
    context.output.record(&record, &text)?;
    context.output.finish()
}

/// Returns the text that `machine show` prints.
///
/// # Errors
///
/// The machine is not present, or a request failed.
pub(super) async fn describe(session: &Session, name: &str) -> Result<String, CliError> {
    Ok(load(session, name).await?.text())
}

async fn load(session: &Session, name: &str) -> Result<MachineRecord, CliError> {
    let machine = session.machine_named(name).await?;
    let units = session.states_on(&machine.id).await?;
    let drain = match machine.id.parse() {
        Ok(id) if machine.intent == "drained" => session.drain_status(&id).await?,
        _ => None,
    };
    Ok(MachineRecord { machine, drain, units })
}

async fn show(context: &mut Context, name: &str) -> Result<(), CliError> {
    let record = load(&context.session, name).await?;
    context.output.record(&record, &record.text())?;
    context.output.finish()
}

impl MachineRecord {
    fn text(&self) -> String {
        let wire::MachineEntity {
            id,
            hostname,
            primary_ip,
            version,
            metadata,
            offers,
            service_manager,
            intent,
            cordoned,
            ..
        } = &self.machine;
        let mut text = format!("{id}\n");
        line(&mut text, "Host name", hostname);
        line(&mut text, "Address", primary_ip);
        line(&mut text, "Version", version);
        let pairs: Vec<_> = metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
        line(&mut text, "Metadata", &pairs.join(","));
        line(&mut text, "Offers", &format::offers(offers));
        let manager = service_manager.as_ref().map(manager_text);
        line(&mut text, "Manager", &manager.unwrap_or_default());
        let intent = if intent.is_empty() && *cordoned { "cordoned" } else { intent };
        let min_available =
            self.drain.as_ref().map(|drain| drain.min_available).filter(|up| *up > 0);
        let up = min_available.map(|up| format!(", keeping {up} instances of each template up"));
        line(&mut text, "Intent", &format!("{intent}{}", up.unwrap_or_default()));
        for state in &self.units {
            let (active, sub) = (&state.systemd_active_state, &state.systemd_sub_state);
            line(&mut text, "Unit", &format!("{}: {active} ({sub})", state.name));
        }
        text.push_str(&self.drain.as_ref().map_or_else(String::new, drain_text));
        text
    }
}

/// Writes a line with a label; nothing for an empty value.
fn line(text: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        let _infallible = writeln!(text, "{label:>10}: {value}");
    }
}

/// Pause between two polls of the drain.
const PAUSE: Duration = Duration::from_millis(500);

impl Record for DrainReport {
    fn name(&self) -> &str {
        &self.machine_id
    }
}

/// Runs the command.
pub(super) async fn drain(
    context: &mut Context,
    id: &MachineId,
    args: &DrainArgs,
) -> Result<Exit, CliError> {
    let first = context.session.drain(id, args.keep_up, args.dry_run).await?;
    let mut text = drain_text(&first);
    if args.dry_run && first.is_empty() {
        text.push_str("nothing would move\n");
    }
    context.output.record(&first, &text)?;
    let emptied = if args.wait { wait(context, id, args).await } else { Ok(()) };
    context.output.finish()?;
    emptied?;
    Ok(if args.dry_run && !first.moves.is_empty() { Exit::Changes } else { Exit::Success })
}

/// Waits until a machine is empty.
async fn wait(context: &mut Context, id: &MachineId, args: &DrainArgs) -> Result<(), CliError> {
    let limit = args.wait_timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let deadline = limit.map(|limit| context.clock.now().after(limit));
    loop {
        let Some(report) = context.session.drain_status(id).await? else {
            let text = format!("the drain of machine {} was cancelled", short(id));
            return Err(CliError::failed(text));
        };
        if report.is_empty() {
            context.progress.note(&format!("Machine {} is empty", short(id)));
            return Ok(());
        }
        let now = context.clock.now();
        if let Some(seconds) = args.wait_timeout.filter(|_| deadline.is_some_and(|it| now >= it)) {
            return Err(late(id, &report, seconds));
        }
        context.progress.show(&summary(&report));
        let wake = now.after(PAUSE);
        let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
        context.clock.sleep_until(wake).await;
    }
}

fn late(id: &MachineId, report: &DrainReport, seconds: u32) -> CliError {
    let (id_text, summary) = (short(id), summary(report));
    let error =
        CliError::failed(format!("machine {id_text} still has units after {seconds} s: {summary}"));
    let held =
        report.held.iter().map(|held| format!("{} stays for now: {}", held.unit, held.reason));
    let error = held.fold(error, CliError::help);
    error.help(format!(
        "the drain continues; \"fleetctl machine cordon {id}\" ends it, and the remaining \
         units stay"
    ))
}

fn summary(report: &DrainReport) -> String {
    let DrainReport { moves, leaving, held, .. } = report;
    format!("{} to move, {} stopping, {} held back", moves.len(), leaving.len(), held.len())
}

/// Formats a line for each unit.
pub(super) fn drain_text(report: &DrainReport) -> String {
    let moves = report.moves.iter();
    let moves = moves.map(|it| format!("{} moves to {}", it.unit, short_machine(&it.to)));
    let leaving = report.leaving.iter().map(|unit| format!("{unit} is stopping"));
    let held = report.held.iter().map(|it| format!("{} stays for now: {}", it.unit, it.reason));
    let global = report.global.iter().map(|unit| format!("{unit} stays: it is global"));
    moves.chain(leaving).chain(held).chain(global).map(|line| line + "\n").collect()
}

fn short(id: &MachineId) -> String {
    short_machine(id.as_str())
}
