//! `journal`: what a unit wrote, and writes.

use fleet_http::JournalOptions;
use fleet_unitfile::UnitName;
use serde::Serialize;

use crate::fleetctl::args::JournalArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::names::{nearest, unit_arg};
use crate::fleetctl::output::Record;
use crate::fleetctl::session::{Session, next_line};
use crate::fleetctl::words::short_machine;

/// One line of a journal.
#[derive(Debug, Serialize)]
struct Line {
    unit: String,
    line: String,
}

impl Record for Line {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. Lines are printed as they come; Ctrl-C ends the program as it ends any.
pub(super) async fn run(context: &mut Context, args: &JournalArgs) -> Result<(), CliError> {
    let name = unit_arg(&args.unit)?.name;
    let unit = context.session.known_unit(&name).await?;
    if unit.global && args.machine.is_none() {
        one_machine(&context.session, &name).await?;
    }
    let machine = match &args.machine {
        Some(start) => Some(whole_id(&context.session, start).await?),
        None => None,
    };
    let options = JournalOptions { lines: Some(args.lines), follow: args.follow, machine };
    let mut journal = context.session.journal(&name, &options).await?;
    while let Some(line) = next_line(&mut journal, &name).await? {
        let text = format!("{line}\n");
        context.output.record(&Line { unit: name.to_string(), line }, &text)?;
    }
    context.output.finish()
}

/// A global unit has a journal on each of its machines: where there are several, a person chooses.
async fn one_machine(session: &Session, name: &UnitName) -> Result<(), CliError> {
    let states = session.states_of(name).await?;
    let [first, _, ..] = states.as_slice() else { return Ok(()) };
    let id = short_machine(&first.machine_id);
    Err(CliError::failed(format!("{name} is on {} machines", states.len()))
        .help(format!("choose one, for example with --machine {}", id.trim_end_matches('.'))))
}

/// The machine of which this is the ID, or the start of the ID.
async fn whole_id(session: &Session, start: &str) -> Result<String, CliError> {
    let start = start.trim_end_matches('.');
    let machines = session.machines().await?;
    let ids: Vec<&str> = machines.iter().map(|machine| machine.id.as_str()).collect();
    match pick(start, &ids).as_slice() {
        [id] => Ok((*id).to_owned()),
        [] => {
            let error = CliError::failed(format!("no machine that is present is called {start}"));
            Err(match nearest(start, ids) {
                Some(near) => error.help(format!("did you mean {near}?")),
                None => error.help("\"fleetctl list-machines\" shows those that are"),
            })
        }
        several => Err(CliError::failed(format!("several machines are called {start}"))
            .help(format!("write more of one of {}", several.join(", ")))),
    }
}

/// The ID that is the text, or those that start with it.
fn pick<'a>(start: &str, ids: &[&'a str]) -> Vec<&'a str> {
    if let Some(id) = ids.iter().find(|id| **id == start) {
        return vec![id];
    }
    ids.iter().copied().filter(|id| id.starts_with(start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_the_start_of_its_id() {
        let ids = ["m1", "m10", "m2"];
        for (start, expected) in
            [("m1", &["m1"] as &[_]), ("m2", &["m2"]), ("m10", &["m10"]), ("m", &ids), ("x", &[])]
        {
            assert_eq!(pick(start, &ids), expected, "{start}");
        }
    }
}
