//! `journal`: prints the journal of one unit.

use fleet_http::JournalOptions;
use serde::Serialize;

use super::logs::endless_document;
use crate::fleetctl::args::inspect_args::JournalArgs;
use crate::fleetctl::session::context::Context;
use crate::fleetctl::session::next_line;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::names::unit_arg;
use crate::ui::output::Record;

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

/// Runs the command. Prints the lines as they arrive; Ctrl-C ends the program.
///
/// If the unit is on several machines, the daemon merges their journals and prefixes each line with
/// the ID of its machine.
pub(super) async fn run(context: &mut Context, args: &JournalArgs) -> Result<(), CliError> {
    if args.follow && context.output.format() == Format::Json {
        return Err(endless_document("followed journals"));
    }
    let name = unit_arg(&args.unit)?.name;
    context.session.known_unit(&name).await?;
    let machine = match &args.machine {
        Some(start) => Some(context.session.machine_named(start).await?.id),
        None => None,
    };
    // With `--since`, all lines of that time are printed.
    let lines = args.lines.or_else(|| args.since.is_none().then_some(10));
    let options = JournalOptions { lines, since: args.since, follow: args.follow, machine };
    let mut journal = context.session.journal(&name, &options).await?;
    while let Some(line) = next_line(&mut journal, &name).await? {
        let line = Line { unit: name.to_string(), line };
        context.output.journal_line("", &line.line, args.raw, &line)?;
    }
    context.output.finish()
}
