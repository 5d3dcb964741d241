//! `journal`: what a unit wrote, and writes.

use fleet_http::JournalOptions;
use serde::Serialize;

use super::logs::never_whole;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::look_args::JournalArgs;
use crate::fleetctl::names::unit_arg;
use crate::fleetctl::output::Record;
use crate::fleetctl::session::next_line;

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

/// Runs the command. Of a unit that is on several machines the daemon tells the lines of all, each
/// with the ID of its machine before it. Lines are printed as they come; Ctrl-C ends the program as
/// it ends any.
pub(super) async fn run(context: &mut Context, args: &JournalArgs) -> Result<(), CliError> {
    if args.follow && context.output.format() == Format::Json {
        return Err(never_whole("journals that are followed"));
    }
    let name = unit_arg(&args.unit)?.name;
    context.session.known_unit(&name).await?;
    let machine = match &args.machine {
        Some(start) => Some(context.session.machine_named(start).await?.id),
        None => None,
    };
    // Whoever says since when wants all of it; otherwise a few lines will do.
    let lines = args.lines.or_else(|| args.since.is_none().then_some(10));
    let options = JournalOptions { lines, since: args.since, follow: args.follow, machine };
    let mut journal = context.session.journal(&name, &options).await?;
    while let Some(line) = next_line(&mut journal, &name).await? {
        let line = Line { unit: name.to_string(), line };
        context.output.written("", &line.line, args.raw, &line)?;
    }
    context.output.finish()
}
