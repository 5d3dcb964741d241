//! `machine`: what is known of a machine, and what is to become of it.

use std::fmt::Write as _;

use fleet_core::MachineId;
use fleet_http::wire;
use serde::Serialize;

use super::machine_drain;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::machine_args::MachineCommand;
use crate::fleetctl::output::Record;
use crate::fleetctl::session::is_whole;
use crate::fleetctl::words::{self, short_machine};

/// What was said of a machine.
#[derive(Debug, Serialize)]
struct Said {
    machine: String,
    intent: &'static str,
}

impl Record for Said {
    fn name(&self) -> &str {
        &self.machine
    }
}

/// A machine with what is on it.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    machine: wire::Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<wire::DrainReport>,
    units: Vec<wire::UnitState>,
}

impl Record for Shown {
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
            said(context, &id, "cordoned", "takes no more units")
        }
        MachineCommand::Uncordon(args) => {
            let id = known_or_typed(context, &args.machine).await?;
            context.session.uncordon(&id).await?;
            said(context, &id, "", "takes units")
        }
        MachineCommand::Drain(args) => {
            let id = id(context, &args.named.machine).await?;
            return machine_drain::run(context, &id, args).await;
        }
    };
    done.map(|()| Exit::Success)
}

async fn id(context: &Context, start: &str) -> Result<MachineId, CliError> {
    let id = context.session.machine_named(start).await?.id;
    id.parse().map_err(|error| CliError::failed("the server names a machine oddly").because(error))
}

/// A machine that is away may be meant, too, if its whole ID is typed: it may never come back.
async fn known_or_typed(context: &Context, typed: &str) -> Result<MachineId, CliError> {
    let known = id(context, typed).await;
    match (known, typed.parse()) {
        (Err(_), Ok(typed_id)) if is_whole(typed) => Ok(typed_id),
        (known, _) => known,
    }
}

fn said(
    context: &mut Context,
    id: &MachineId,
    intent: &'static str,
    text: &str,
) -> Result<(), CliError> {
    let said = Said { machine: id.to_string(), intent };
    let text = format!("Machine {} {text}\n", short_machine(id.as_str()));
    context.output.record(&said, &text)?;
    context.output.finish()
}

async fn show(context: &mut Context, start: &str) -> Result<(), CliError> {
    let machine = context.session.machine_named(start).await?;
    let units = context.session.states_on(&machine.id).await?;
    let drain = match machine.id.parse() {
        Ok(id) if machine.intent == "drained" => context.session.draining(&id).await?,
        _ => None,
    };
    let shown = Shown { machine, drain, units };
    context.output.record(&shown, &shown.text())?;
    context.output.finish()
}

impl Shown {
    fn text(&self) -> String {
        let wire::Machine { id, primary_ip, version, metadata, offers, intent, cordoned } =
            &self.machine;
        let mut text = format!("{id}\n");
        line(&mut text, "Address", primary_ip);
        line(&mut text, "Version", version);
        let pairs: Vec<_> = metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
        line(&mut text, "Metadata", &pairs.join(","));
        line(&mut text, "Offers", &words::offers(offers));
        let intent = if intent.is_empty() && *cordoned { "cordoned" } else { intent };
        let keep_up = self.drain.as_ref().map(|drain| drain.keep_up).filter(|up| *up > 0);
        let up = keep_up.map(|up| format!(", with {up} instances of each template up"));
        line(&mut text, "Intent", &format!("{intent}{}", up.unwrap_or_default()));
        for state in &self.units {
            let (active, sub) = (&state.systemd_active_state, &state.systemd_sub_state);
            line(&mut text, "Unit", &format!("{}: {active} ({sub})", state.name));
        }
        text.push_str(&self.drain.as_ref().map_or_else(String::new, machine_drain::text));
        text
    }
}

/// A label and what is known; nothing where nothing is.
fn line(text: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        let _infallible = writeln!(text, "{label:>10}: {value}");
    }
}
